"""Test extension that measures how long the event loop of a worker is ever kept from turning."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from scrapy import signals
from scrapy.crawler import Crawler

ENVIRONMENT = "LOOPGAP_FOLDER"
TICK_SECONDS = 0.01
KEPT_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which the loop did not turn: when it ended (system-wide monotonic), how long it was, and how much of
    it the loop's thread was at work; the rest it waited, for a processor or for something that blocked it.
    """

    at: float
    seconds: float
    cpu_seconds: float


class GapMeter:
    """Asks the running loop to be called every 10 ms, and keeps each delay beyond that which matters."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu_clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._cpu_seconds = 0.0
        self._called_at: float | None = None
        self._next: asyncio.TimerHandle | None = None
        self.gaps: list[Gap] = []

    def start(self) -> None:
        """Begins; does nothing the second time."""
        if self._called_at is None:
            self._called_at, self._cpu_seconds = self._clock(), self._cpu_clock()
            self._schedule()

    def _schedule(self) -> None:
        self._next = asyncio.get_running_loop().call_later(TICK_SECONDS, self._called)

    def _called(self) -> None:
        now, cpu_seconds = self._clock(), self._cpu_clock()
        assert self._called_at is not None
        gap = now - self._called_at - TICK_SECONDS
        if gap >= KEPT_SECONDS:
            self.gaps.append(Gap(now, gap, cpu_seconds - self._cpu_seconds))
        self._called_at, self._cpu_seconds = now, cpu_seconds
        self._schedule()

    def stop(self) -> None:
        """Ends the measurement."""
        if self._next is not None:
            self._next.cancel()


class LoopGap:
    """Measures from the first response, when all is imported, to the close; writes the gaps to LOOPGAP_FOLDER."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._meter = GapMeter()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "LoopGap":
        """Connects the extension to the signals of a crawler."""
        extension = cls(Path(os.environ[ENVIRONMENT]))
        crawler.signals.connect(extension.response_received, signals.response_received)
        crawler.signals.connect(extension.spider_closed, signals.spider_closed)
        return extension

    def response_received(self) -> None:
        """Begins to measure."""
        self._meter.start()

    def spider_closed(self) -> None:
        """Writes what was measured."""
        self._meter.stop()
        written = [asdict(gap) for gap in self._meter.gaps]
        (self._folder / f"gaps-{os.getpid()}.json").write_text(json.dumps(written))


def read_gaps(folder: Path, pid: int) -> list[Gap]:
    """The gaps that a worker wrote; raises FileNotFoundError where it measured none or did not close."""
    return [Gap(**gap) for gap in json.loads((folder / f"gaps-{pid}.json").read_text())]
