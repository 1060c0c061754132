"""A crawl of the lab by real workers, and what became of it."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from crawler.redisdb.embedded import EmbeddedServer
from crawler.redisdb.keys import Partition
from crawler.storage.backends import open_storage
from tests.support.accounts import check_account
from tests.support.lab import Lab
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 100.0


class LabCrawl:
    """Workers of one spider on one server, with items in SQLite; ``extra`` are settings as NAME=VALUE."""

    def __init__(self, lab: Lab, server: EmbeddedServer, folder: Path, spider: str = "lab") -> None:
        self.lab = lab
        self.server = server
        self.folder = folder
        self.spider = spider
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def storage(self) -> str:
        """Address of the items."""
        return f"sqlite:///{self.folder / 'items.db'}"

    def start(
        self,
        extra: Sequence[str] = (),
        module: str = "tests.support.lab_settings",
        environment: Mapping[str, str] | None = None,
        arguments: Mapping[str, str] | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Starts one worker more."""
        command = [sys.executable, "-m", "scrapy", "crawl", self.spider]
        for setting in (f"REDIS_URL={self.server.url}", f"CRAWLER_STORAGE={self.storage}", *extra):
            command += ["-s", setting]
        for name, value in (arguments or {"url": self.lab.url}).items():
            command += ["-a", f"{name}={value}"]
        variables = {**os.environ, "SCRAPY_SETTINGS_MODULE": module, **(environment or {})}
        with self.log_path(len(self.workers)).open("wb") as log:
            worker = subprocess.Popen(
                command, cwd=ROOT, env=variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        self.workers.append(worker)
        return worker

    def log_path(self, number: int) -> Path:
        """File of a worker's log."""
        return self.folder / f"worker-{number}.log"

    def log(self, number: int) -> str:
        """A worker's log so far."""
        return self.log_path(number).read_text(errors="replace")

    def wait_for_hits(self, count: int) -> None:
        """Waits until the lab was asked for so many pages."""
        wait_until(lambda: self.lab.stats()["hits"] >= count, LIMIT_SECONDS, f"{count} hits")

    def wait(self, limit_seconds: float = LIMIT_SECONDS) -> list[int]:
        """Waits until all workers have ended; their exit codes."""
        wait_until(
            lambda: all(worker.poll() is not None for worker in self.workers), limit_seconds, "the end of all workers"
        )
        return [worker.wait() for worker in self.workers]

    def end(self) -> None:
        """Kills what still runs."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGKILL)
            worker.wait()

    def counters(self) -> dict[str, int]:
        """The crawl's counters, and what is in flight, delayed or suspect."""
        partition = Partition(self.spider)
        with Redis.from_url(self.server.url) as client:
            found = {name.decode(): int(value) for name, value in client.hgetall(partition.key("counters")).items()}
            found["in_flight"] = client.hlen(partition.key("inflight"))
            found["delayed"] = client.zcard(partition.key("delayed"))
            found["suspects"] = client.llen(partition.key("suspects"))
        return found

    def items(self) -> Counter[str]:
        """How often the item of each page is stored, by the page's URL."""
        store = open_storage(self.storage)
        store.open()
        try:
            return Counter(str(record.data["url"]) for record in store.records())
        finally:
            store.close()

    def page_hits(self) -> dict[str, int]:
        """Hits of each content page that has any."""
        pages = self.lab.truth()["pages"]
        return {url: count for url, count in self.lab.hits().items() if url in pages}

    def assert_complete(self) -> None:
        """Every page was fetched, every item is stored once, and Redis has nothing left."""
        pages = self.lab.truth()["pages"]
        assert set(self.page_hits()) == set(pages), "pages were never fetched"
        assert self.items() == Counter(dict.fromkeys(pages, 1)), "items are missing, or stored twice"
        left = {name: self.counters().get(name, 0) for name in ("waiting", "in_flight", "delayed", "suspects")}
        assert not any(left.values()), f"the frontier still holds {left}"


@contextmanager
def lab_crawl(lab: Lab, folder: Path, spider: str = "lab") -> Iterator[LabCrawl]:
    """A crawl on a server of its own; its workers end with the block."""
    lab.reset()
    with EmbeddedServer(folder / "redis") as server:
        crawl = LabCrawl(lab, server, folder, spider)
        try:
            yield crawl
        finally:
            crawl.end()
        with Redis.from_url(server.url) as client:
            check_account(client, crawl.spider)
