"""What a worker does between the signal and its end: what is fetched, what goes back, and who does the rest."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import scrapy
from redis import Redis

from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.waiting import wait_until

HTTPX = "scrapy.core.downloader.handlers._httpx.HttpxDownloadHandler"
REACTORLESS = ("TWISTED_REACTOR_ENABLED=False", f'DOWNLOAD_HANDLERS={{"http": "{HTTPX}", "https": "{HTTPX}"}}')
SLOTS = "CONCURRENT_REQUESTS=8"
PAGES = 16

needs_reactorless = pytest.mark.skipif(scrapy.version_info[:2] < (2, 15), reason="this Scrapy always has a reactor")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=200, hosts=6, latency_seconds=0.03)) as started:
        yield started


def slow_pages(crawl: LabCrawl, seconds: float, *extra: str) -> int:
    """Starts a worker on pages that take so long each; its number."""
    crawl.start([SLOTS, *extra], arguments={"base": crawl.lab.base(0), "count": str(PAGES), "seconds": str(seconds)})
    return len(crawl.workers) - 1


def stop(crawl: LabCrawl, number: int, how: signal.Signals = signal.SIGTERM) -> None:
    crawl.workers[number].send_signal(how)
    wait_until(lambda: "shutting down gracefully" in crawl.log(number), 30, "the signal to be heard")


def wait_for_slots(crawl: LabCrawl) -> None:
    wait_until(lambda: crawl.counters().get("put") == PAGES and crawl.lab.stats()["hits"] == 8, 60, "8 pages under way")


@pytest.mark.parametrize(
    ("how", "extra"),
    [
        pytest.param(signal.SIGTERM, (), id="SIGTERM"),
        pytest.param(signal.SIGINT, (), id="Ctrl-C"),
        pytest.param(signal.SIGTERM, REACTORLESS, id="reactorless", marks=needs_reactorless),
    ],
)
def test_pages_under_way_are_done_in_the_grace_time_and_all_others_are_left(
    lab: Lab, tmp_path: Path, how: signal.Signals, extra: tuple[str, ...]
) -> None:
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        number = slow_pages(crawl, 3, *extra)
        wait_for_slots(crawl)
        stop(crawl, number, how)

        assert crawl.wait() == [0]
        counters = crawl.counters()
        assert (counters["done"], counters["waiting"], counters["in_flight"]) == (8, 8, 0)
        assert len(crawl.items()) == 8

        slow_pages(crawl, 3)
        assert crawl.wait() == [0, 0]
        assert sorted(lab.hits().values()) == [1] * PAGES, "no page was fetched again"
        assert len(crawl.items()) == PAGES


@pytest.mark.parametrize("again", [True, False], ids=["second signal", "end of grace"])
@pytest.mark.parametrize("extra", [(), pytest.param(REACTORLESS, id="reactorless", marks=needs_reactorless)])
def test_pages_that_are_handed_back_have_not_failed(
    lab: Lab, tmp_path: Path, extra: tuple[str, ...], again: bool
) -> None:
    with lab_crawl(lab, tmp_path, "erring") as crawl:
        number = slow_pages(crawl, 15, f"CRAWLER_STOP_GRACE_SECONDS={60 if again else 1}", *extra)
        wait_for_slots(crawl)
        stop(crawl, number)
        if again:
            crawl.workers[number].send_signal(signal.SIGTERM)

        assert crawl.wait(14) == [0]
        counters = crawl.counters()
        assert (counters.get("done", 0), counters["waiting"], counters["in_flight"]) == (0, PAGES, 0)
        assert "errback called" not in crawl.log(number)
        assert " ERROR: " not in crawl.log(number)


@pytest.mark.parametrize(("spider", "times"), [("flat", 1), ("insistent", 2)])
def test_start_requests_that_a_stopped_worker_did_not_come_to_are_run_by_the_next(
    lab: Lab, tmp_path: Path, spider: str, times: int
) -> None:
    arguments = {"base": lab.base(0), "count": "30", "pause": "0.1"}
    with lab_crawl(lab, tmp_path, spider) as crawl:
        crawl.start(arguments=arguments)
        crawl.wait_for_hits(5)
        stop(crawl, 0)
        assert crawl.wait() == [0]
        assert 1 < len(crawl.items()) < 30

        crawl.start(arguments=arguments)
        assert crawl.wait() == [0, 0]
        assert sorted(lab.hits().values()) == [times] * 30
        assert sorted(crawl.items().values()) == [times] * 30


def test_seeds_that_a_stopped_worker_did_not_come_to_are_fetched_by_the_next(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        client.rpush("waiting:start_urls", *(f"{lab.base(0)}/slow/0.2?n={number}" for number in range(100)))
        crawl.start([SLOTS], arguments={"x": "1"})
        crawl.wait_for_hits(10)
        stop(crawl, 0)
        assert crawl.wait() == [0]
        assert lab.stats()["hits"] < 100

        crawl.start([SLOTS, "CRAWLER_CLOSE_ON_FINISH=True"], arguments={"x": "1"})
        assert crawl.wait() == [0, 0]
        assert sorted(lab.hits().values()) == [1] * 100
        assert len(crawl.items()) == 100


def test_a_fleet_that_is_stopped_together_is_continued_by_a_new_one(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path) as crawl:
        for _ in range(2):
            crawl.start()
        crawl.wait_for_hits(60)
        for worker in crawl.workers:
            worker.send_signal(signal.SIGTERM)
        assert crawl.wait() == [0, 0]
        assert crawl.counters()["waiting"] > 0

        for _ in range(2):
            crawl.start()
        assert crawl.wait() == [0, 0, 0, 0]
        crawl.assert_complete()
        assert sum(crawl.page_hits().values()) == 200


def test_a_worker_that_closes_itself_leaves_the_rest_to_the_others(lab: Lab, tmp_path: Path) -> None:
    arguments = {"base": lab.base(0), "count": "40", "seconds": "0.2"}
    with lab_crawl(lab, tmp_path, "closing") as crawl:
        crawl.start([SLOTS], arguments=arguments)
        assert crawl.wait() == [0]
        assert "Closing spider (enough)" in crawl.log(0)
        assert crawl.counters()["waiting"] > 0

        crawl.start([SLOTS, "CLOSESPIDER_PAGECOUNT=5"], arguments={**arguments, "patient": "1"})
        assert crawl.wait() == [0, 0]
        assert "closespider_pagecount" in crawl.log(1)
        assert crawl.counters()["waiting"] > 0

        crawl.start([SLOTS], arguments={**arguments, "patient": "1"})
        assert crawl.wait() == [0, 0, 0]
        assert sorted(lab.hits().values()) == [1] * 40
        assert len(crawl.items()) == 40


def test_a_worker_that_is_stopped_while_redis_is_silent_ends_and_nothing_is_lost(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path) as crawl:
        crawl.start()
        crawl.wait_for_hits(60)
        os.kill(crawl.server.pid, signal.SIGSTOP)
        try:
            crawl.workers[0].send_signal(signal.SIGTERM)
            assert crawl.wait(60) == [0]
        finally:
            os.kill(crawl.server.pid, signal.SIGCONT)

        crawl.start()
        assert crawl.wait() == [0, 0]
        crawl.assert_complete()
