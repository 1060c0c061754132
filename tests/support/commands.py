"""Runs commands of a user to their end: ``scrapy`` in a project, and ``trawlnet``, for one crawl and its storage."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawler.control.crawls import Crawls
from crawler.storage.backends import open_storage
from tests.support.lab import Lab
from tests.support.lab.process import ROOT
from tests.support.waiting import wait_until

LIMIT_SECONDS = 90.0

Settings = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that ended: its exit code, and what it printed on either stream."""

    code: int
    out: str
    log: str

    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


@dataclass(slots=True)
class Running:
    """A command that may still run; its output goes to files, so that no pipe can fill."""

    process: "subprocess.Popen[bytes]"
    files: tuple[Path, Path]

    def end(self) -> Ended:
        """Waits for its end."""
        try:
            code = self.process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"no end within {LIMIT_SECONDS:g} s; its log:\n{self.log()[-6000:]}") from None
        return Ended(code, self.files[0].read_text(errors="replace"), self.log())

    def log(self) -> str:
        """What it logged so far."""
        return self.files[1].read_text(errors="replace")


@dataclass(slots=True)
class UserProject:
    """One crawl as its user sees it: commands, items, dead letters."""

    redis: Any
    redis_url: str
    crawl: str
    folder: Path
    module: str = "tests.support.lab_settings"
    cwd: Path = ROOT
    environment: dict[str, str] = field(default_factory=dict)
    started: list[Running] = field(default_factory=list)

    @property
    def storage(self) -> str:
        """Where the items are."""
        return f"sqlite:///{self.folder / 'items.db'}"

    def start(self, *words: str, given: Settings | None = None) -> Running:
        """Starts a command of Python's ``-m``; settings in ``given`` go with ``-s``."""
        command = [sys.executable, "-m", *words]
        for name, value in (given or {}).items():
            command += ["-s", f"{name}={value}"]
        environment = {**os.environ, "SCRAPY_SETTINGS_MODULE": self.module, **self.environment}
        environment.pop("REDIS_URL", None)
        number = len(self.started)
        files = (self.folder / f"{number}.out", self.folder / f"{number}.log")
        with files[0].open("wb") as out, files[1].open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.cwd, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=log
            )
        running = Running(process, files)
        self.started.append(running)
        return running

    def worker(self, spider: str, given: Settings | None = None, **arguments: str) -> Running:
        """Starts ``scrapy crawl`` of the crawl, with SQLite unless ``given`` says otherwise."""
        settings = {
            "REDIS_URL": self.redis_url,
            "CRAWLER_CRAWL": self.crawl,
            "CRAWLER_STORAGE": self.storage,
            "REDIS_START_URLS_KEY": f"{self.crawl}:start_urls",
            **(given or {}),
        }
        words = [word for name, value in arguments.items() for word in ("-a", f"{name}={value}")]
        return self.start("scrapy", "crawl", spider, *words, given=settings)

    def run(self, spider: str, given: Settings | None = None, **arguments: str) -> Ended:
        """One worker to its end."""
        return self.worker(spider, given, **arguments).end()

    def finish(self, spider: str, given: Settings | None = None, **arguments: str) -> Ended:
        """One worker to an end without error."""
        ended = self.run(spider, given, **arguments)
        assert ended.code == 0, ended.log[-6000:]
        return ended

    def scrapy(self, *words: str) -> Ended:
        """Another command of Scrapy's in the project."""
        return self.start("scrapy", *words, given={"REDIS_URL": self.redis_url, "CRAWLER_CRAWL": self.crawl}).end()

    def trawlnet(self, *words: str) -> Ended:
        """A command of ours."""
        given = {
            "REDIS_URL": self.redis_url,
            "CRAWLER_CRAWL": self.crawl,
            "REDIS_START_URLS_KEY": f"{self.crawl}:start_urls",
        }
        return self.start("crawler.cli", *words, given=given).end()

    def workers(self, count: int, spider: str, given: Settings | None = None, **arguments: str) -> list[Running]:
        """Starts workers, and waits until all have joined."""
        started = [self.worker(spider, {"DOWNLOAD_TIMEOUT": 80, **(given or {})}, **arguments) for _ in range(count)]
        wait_until(lambda: len(self.status()["workers"]) == count, 80, f"{count} workers in the roster")
        return started

    def push(self, *seeds: str | bytes) -> None:
        """Pushes seeds into the crawl's start URLs key; the first is taken first."""
        self.redis.rpush(f"{self.crawl}:start_urls", *seeds)

    def items(self) -> list[dict[str, Any]]:
        """What is stored, ordered by id."""
        store = open_storage(self.storage)
        store.open()
        found = [record.data for record in store.records()]
        store.close()
        return sorted(found, key=lambda item: str(item["id"]))

    def ids(self) -> list[str]:
        """Ids of what is stored, in order."""
        return [str(item["id"]) for item in self.items()]

    def letters(self) -> list[dict[str, str]]:
        """Dead letters, oldest first, without the entries' bytes."""
        found = self.redis.xrange(f"trawlnet:{{{self.crawl}:0}}:dead")
        return [
            {name.decode(): value.decode() for name, value in fields.items() if name != b"element"}
            for _, fields in found
        ]

    def status(self) -> dict[str, Any]:
        """What ``trawlnet status --json`` says."""
        return Crawls(self.redis, self.crawl, f"{self.crawl}:start_urls").status().as_dict()

    def keys(self) -> list[str]:
        """Every key of the server that has to do with the crawl."""
        return sorted(key.decode() for key in self.redis.scan_iter() if self.crawl in key.decode())

    def close(self) -> None:
        """Ends what still runs."""
        for running in self.started:
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait()


@contextmanager
def held(lab: Lab) -> Iterator[None]:
    """Nothing is answered by the lab meanwhile, so that no crawl of it can end before all workers are there."""
    os.kill(lab.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(lab.pid, signal.SIGCONT)


def paths(lab: Lab) -> dict[str, int]:
    """How often each path was asked for, on whatever host."""
    counts: dict[str, int] = {}
    for hit in lab.times():
        counts[hit.path] = counts.get(hit.path, 0) + 1
    return counts
