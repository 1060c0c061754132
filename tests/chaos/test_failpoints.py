"""Workers killed, and replies lost, at each network call of a worker's background tasks: nothing is lost by it."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.support.crawling import (
    START_SECONDS,
    Process,
    assert_exact,
    extension,
    hits_of_pages,
    logs,
    wait_for_end,
    wait_with_logs,
)
from tests.support.failpoints import ENVIRONMENT, Failpoint, Failpoints
from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl

PAGES = 180
SETTINGS = (
    # Items are durable soon, so that pages often settle in the very batch that carries their links.
    "CRAWLER_STORAGE_BATCH_SECONDS=0",
    "CONCURRENT_REQUESTS=4",
    "CRAWLER_MEMBERSHIP_BEAT_SECONDS=0.3",
    "CRAWLER_MEMBERSHIP_LAPSE_SECONDS=1",
    # Many killers in one crawl are not what it blames entries for.
    "CRAWLER_FRONTIER_DEATHS_MAX=50",
)

ON_THE_WAY = [
    ("before:open:1", "after:open:1"),
    ("before:start:1", "after:start:1"),
    ("before:start:2",),
    ("after:start:2",),
    ("before:settle:1",),
    ("after:settle:1",),
    ("before:settle:5", "after:settle:6"),
    ("half:settle:4", "after:settle:7"),
    ("before:claim:4", "after:claim:5"),
    ("before:beat:2", "after:beat:2"),
    ("before:reap:3", "after:reap:4"),
    ("before:write:3", "after:write:4"),
]
"""Points of workers of which each starts when the one before is dead; a whole one joins the last of them.

``start`` 1 asks for the start requests, 2 says that they are in; ``settle`` 1 puts them.
"""

AT_THE_END = [("before:finish:1", "after:finish:1"), ("before:leave:1", "after:leave:1")]
"""Points that a worker reaches when all is done; a whole worker is there from the start."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Twelve chains of pages: with a lost link all that comes after it is lost, since nothing else leads there."""
    with Lab(LabSpec(pages=PAGES, hosts=12, links=1, same_host=True, latency_seconds=0.08)) as lab:
        yield lab


@pytest.fixture
def crawl(lab: Lab, tmp_path: Path) -> Iterator[LabCrawl]:
    with lab_crawl(lab, tmp_path) as crawl:
        yield crawl


def _start(crawl: LabCrawl, point: str = "", start_url: str | None = None) -> Process:
    settings, environment = list(SETTINGS), {}
    if point:
        settings.append(extension(Failpoints))
        environment = {ENVIRONMENT: str(Failpoint.of(point))}
    arguments = {"url": crawl.lab.url if start_url is None else start_url}
    return crawl.start(settings, environment=environment, arguments=arguments)


def _wait_for_kill(crawl: LabCrawl, *workers: Process) -> None:
    wait_for_end(crawl, *workers, code=-signal.SIGKILL)


@pytest.mark.parametrize("points", ON_THE_WAY, ids=" ".join)
def test_a_worker_killed_at_a_call_loses_nothing(crawl: LabCrawl, points: tuple[str, ...]) -> None:
    *earlier, last = points
    for point in earlier:
        _wait_for_kill(crawl, _start(crawl, point))
    hits = crawl.lab.stats()["hits"]
    killed = _start(crawl, last)
    wait_with_logs(
        crawl,
        lambda: crawl.lab.stats()["hits"] > hits or killed.poll() is not None,
        "the next page",
        START_SECONDS,
    )
    whole = _start(crawl)
    _wait_for_kill(crawl, killed)
    wait_for_end(crawl, whole)
    assert_exact(crawl)


@pytest.mark.parametrize("points", AT_THE_END, ids=" ".join)
def test_a_worker_killed_while_it_ends_or_leaves_loses_nothing(crawl: LabCrawl, points: tuple[str, ...]) -> None:
    killed = [_start(crawl, point) for point in points]
    whole = _start(crawl)
    _wait_for_kill(crawl, *killed)
    wait_for_end(crawl, whole)
    assert_exact(crawl)


def test_workers_killed_around_the_removal_of_older_rows_lose_nothing(crawl: LabCrawl) -> None:
    """Rows of an earlier fetch are there to be removed only after a worker died between its items and its settle."""
    for point in ("after:write:2", "before:commit:1", "after:commit:1"):
        _wait_for_kill(crawl, _start(crawl, point))
    wait_for_end(crawl, _start(crawl), _start(crawl))
    assert_exact(crawl)


def test_workers_killed_while_they_read_seeds_lose_none(crawl: LabCrawl) -> None:
    """All pages are found from the first seed; the second comes again after its worker died, and is not run twice."""
    first, second, *_ = crawl.lab.truth()["pages"]
    _push_seed(crawl, first)
    for point in ("before:take:1", "after:take:1", "after:taken:1"):
        _wait_for_kill(crawl, _start(crawl, point, start_url=""))
    _push_seed(crawl, second)
    _wait_for_kill(crawl, _start(crawl, "before:taken:1", start_url=""))
    wait_for_end(crawl, _start(crawl, start_url=""))
    assert_exact(crawl)


def _push_seed(crawl: LabCrawl, url: str) -> None:
    with Redis.from_url(crawl.server.url) as client:
        client.rpush("lab:start_urls", json.dumps({"url": url, "dont_filter": False}))


@pytest.mark.parametrize("point", ["lossy:any:3", "lossy:settle:2", "lossy:beat:2", "lossy:write:2"])
def test_a_lost_reply_makes_nothing_happen_twice(crawl: LabCrawl, point: str) -> None:
    workers = [_start(crawl, point) for _ in range(2)]
    wait_for_end(crawl, *workers)
    assert any(f"{point}: reached" in crawl.log(number) for number in range(2)), logs(crawl)
    assert_exact(crawl)
    assert hits_of_pages(crawl) == PAGES


@pytest.mark.parametrize("point", ["lost:take:1", "lost:taken:1"])
def test_a_lost_reply_of_the_intake_makes_no_seed_run_twice(crawl: LabCrawl, point: str) -> None:
    _push_seed(crawl, crawl.lab.url)
    wait_for_end(crawl, _start(crawl, point, start_url=""))
    assert f"{point}: reached" in crawl.log(0)
    assert_exact(crawl)
    assert hits_of_pages(crawl) == PAGES
