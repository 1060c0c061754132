"""Three measured workers crawl the lab while something is done to their Redis."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil
from redis import Redis

from crawler.control.crawls import Crawls
from tests.support.crawling import (
    START_SECONDS,
    assert_exact,
    extension,
    hits_of_pages,
    logs,
    wait_for_end,
    wait_with_logs,
)
from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.loopgap import ENVIRONMENT, LoopGap, read_gaps

WORKERS = 3
SPEC = LabSpec(pages=600, hosts=10, links=5, latency_seconds=0.5)
"""Slow pages: the workers are at work for some seconds, and the processor is mostly free for the measurement."""

BEGIN_HITS = 150
GAP_SECONDS = 0.4
"""A call that blocks through an outage takes seconds; on a machine of half the usual speed a long step takes 0.2 s."""


@dataclass(frozen=True, slots=True)
class Survived:
    """A crawl that went on after an outage: fetches, the longest time without one since the outage began, and the
    longest that a loop stood still from then on; ``foreign_share`` of this machine's processors was other programs'.
    """

    hits: int
    silence_seconds: float
    gap_seconds: float
    foreign_share: float
    logs: tuple[str, ...]

    @property
    def gap_limit_seconds(self) -> float:
        """What a loop may stand still: GAP_SECONDS, and longer by as much as others made all work here take longer."""
        return GAP_SECONDS / (1 - min(self.foreign_share, 0.9))


def survive(lab: Lab, folder: Path, outage: Callable[[LabCrawl], None]) -> Survived:
    """Crawls through the outage; checks that all is there, once, and that no worker ended before.

    Where a loop stood still, as on a machine that others keep busy, all is done and measured a second time.
    """
    first = _survive(lab, folder / "first", outage)
    if first.gap_seconds < GAP_SECONDS:
        return first
    return _survive(lab, folder / "second", outage)


def _survive(lab: Lab, folder: Path, outage: Callable[[LabCrawl], None]) -> Survived:
    folder.mkdir()
    usage = _Usage(lab)
    with lab_crawl(lab, folder) as crawl:
        for _ in range(WORKERS):
            crawl.start([extension(LoopGap)], environment={ENVIRONMENT: str(folder)})
        wait_with_logs(crawl, lambda: _at_work(crawl), "three workers at work", START_SECONDS)
        began, began_at = time.monotonic(), time.time()
        outage(crawl)
        assert all(worker.poll() is None for worker in crawl.workers), f"a worker ended\n{logs(crawl)}"
        wait_for_end(crawl, *crawl.workers)
        assert_exact(crawl)
        gaps = [gap for worker in crawl.workers for gap in read_gaps(folder, worker.pid)]
        times = [began_at, *(hit.at for hit in lab.times() if hit.at > began_at)]
        found = hits_of_pages(crawl)
        texts = tuple(crawl.log(number) for number in range(WORKERS))
    return Survived(
        hits=found,
        silence_seconds=max(later - earlier for earlier, later in pairwise(times)),
        gap_seconds=max((gap.seconds for gap in gaps if gap.at >= began), default=0.0),
        foreign_share=usage.foreign_share(),
        logs=texts,
    )


class _Usage:
    """Processor time of this machine that was neither the lab's, this process's nor that of its ended children."""

    def __init__(self, lab: Lab) -> None:
        self._lab = psutil.Process(lab.pid)
        self._began = time.monotonic()
        self._foreign = self._seconds()

    def foreign_share(self) -> float:
        """The part of all processors that it came to since the beginning."""
        seconds = time.monotonic() - self._began
        return max(0.0, self._seconds() - self._foreign) / seconds / (psutil.cpu_count() or 1)

    def _seconds(self) -> float:
        machine = psutil.cpu_times()
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        lab = self._lab.cpu_times()
        idle = machine.idle + getattr(machine, "iowait", 0.0)
        all_seconds = sum(machine) - idle - getattr(machine, "guest", 0.0) - getattr(machine, "guest_nice", 0.0)
        return all_seconds - sum(each.ru_utime + each.ru_stime for each in own) - lab.user - lab.system


def _at_work(crawl: LabCrawl) -> bool:
    if crawl.lab.stats()["hits"] < BEGIN_HITS:
        return False
    with Redis.from_url(crawl.server.url) as client:
        members = Crawls(client, crawl.spider).status().workers
    return len(members) == WORKERS and all(member.pages for member in members)
