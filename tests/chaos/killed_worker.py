"""One crawl of the lab by three workers, one of which is killed at a random moment; ours, or scrapy-redis's."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from crawler.redisdb.embedded import EmbeddedServer
from crawler.redisdb.keys import Partition
from crawler.storage.backends import open_storage
from tests.support.lab import Lab
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 3
START_SECONDS = 60.0
CRAWL_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """Figures of one run; ``hits`` counts fetches of content pages, ``killed_held`` what the killed worker held."""

    impl: str
    pages: int
    never_fetched: int
    missing_items: int
    duplicate_items: int
    hits: int
    killed_held: int
    killed_at: int
    seconds: float

    @property
    def kept_promise(self) -> bool:
        """Nothing missing, nothing twice, and no page fetched again but those of the killed worker."""
        lost = self.never_fetched or self.missing_items or self.duplicate_items
        return not lost and self.hits - self.pages <= self.killed_held


def trawlnet_run(lab: Lab, folder: Path, chance: random.Random) -> RunResult:
    """A run of this project: start URL of the spider, items in SQLite."""
    with EmbeddedServer(folder / "redis") as server:
        storage = f"sqlite:///{folder / 'items.db'}"
        settings = [f"REDIS_URL={server.url}", f"CRAWLER_STORAGE={storage}"]
        workers = [
            _worker("tests.support.lab_settings", "lab", settings, folder, n, url=lab.url) for n in range(WORKERS)
        ]
        with Redis.from_url(server.url) as client:
            kill = _KillTrawlnet(client, Partition("lab"))
            started, killed_at = _crawl(lab, workers, kill, chance)
        store = open_storage(storage)
        store.open()
        urls = [str(record.data["url"]) for record in store.records()]
        store.close()
        return _result("trawlnet", lab, urls, kill.held, killed_at, started)


def scrapy_redis_run(lab: Lab, folder: Path, chance: random.Random) -> RunResult:
    """The same under scrapy-redis 0.9.1: start URL pushed, items in its list."""
    with EmbeddedServer(folder / "redis") as server, Redis.from_url(server.url) as client:
        client.rpush("redis_lab:start_urls", lab.url)
        settings = [f"REDIS_URL={server.url}"]
        workers = [_worker("tests.support.control_settings", "redis_lab", settings, folder, n) for n in range(WORKERS)]
        kill = _KillControl()
        started, killed_at = _crawl(lab, workers, kill, chance)
        urls = [json.loads(item)["url"] for item in client.lrange("redis_lab:items", 0, -1)]
        return _result("scrapy-redis", lab, urls, kill.held, killed_at, started)


class _KillTrawlnet:
    """Kills a worker and counts what it held then, which its name in Redis tells: it has the process id."""

    def __init__(self, client: Redis, partition: Partition) -> None:
        self._client = client
        self._partition = partition
        self.held = 0

    def __call__(self, worker: "subprocess.Popen[bytes]") -> None:
        worker.kill()
        worker.wait()
        prefix = self._partition.held("").encode()
        for key in self._client.scan_iter(match=b"*held:*"):
            if key.startswith(prefix) and f"-{worker.pid}-" in key.decode():
                self.held = self._client.scard(key)


class _KillControl:
    held = 0

    def __call__(self, worker: "subprocess.Popen[bytes]") -> None:
        worker.kill()
        worker.wait()


def _worker(
    settings_module: str, spider: str, settings: list[str], folder: Path, number: int, **arguments: str
) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "scrapy", "crawl", spider]
    for setting in settings:
        command += ["-s", setting]
    for name, value in arguments.items():
        command += ["-a", f"{name}={value}"]
    environment = {**os.environ, "SCRAPY_SETTINGS_MODULE": settings_module}
    with (folder / f"worker-{number}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _crawl(
    lab: Lab, workers: "list[subprocess.Popen[bytes]]", kill: "_KillTrawlnet | _KillControl", chance: random.Random
) -> tuple[float, int]:
    started = time.monotonic()
    moment = int(lab.spec.pages * chance.uniform(0.05, 0.85))
    try:
        wait_until(lambda: lab.stats()["hits"] >= moment, START_SECONDS + CRAWL_SECONDS, f"{moment} pages fetched")
        victim = chance.choice(workers)
        kill(victim)
        wait_until(
            lambda: all(worker.poll() is not None for worker in workers), CRAWL_SECONDS, "the end of the other workers"
        )
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGKILL)
            worker.wait()
    return started, moment


def _result(impl: str, lab: Lab, urls: list[str], held: int, killed_at: int, started: float) -> RunResult:
    pages = lab.truth()["pages"]
    hits = {url: count for url, count in lab.hits().items() if url in pages}
    items = Counter(urls)
    return RunResult(
        impl=impl,
        pages=len(pages),
        never_fetched=len(pages) - len(hits),
        missing_items=len(pages) - len(items),
        duplicate_items=sum(count - 1 for count in items.values()),
        hits=sum(hits.values()),
        killed_held=held,
        killed_at=killed_at,
        seconds=round(time.monotonic() - started, 1),
    )
