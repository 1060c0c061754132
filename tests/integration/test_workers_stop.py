"""Workers are stopped, gently and not: what they held is in Redis at every moment, and is fetched by the next."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.waiting import wait_until

PAGES = 16


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=200, hosts=4, latency_seconds=0.03)) as started:
        yield started


def slow_pages(crawl: LabCrawl, seconds: float, *extra: str) -> None:
    crawl.start(
        ["CONCURRENT_REQUESTS=8", "CRAWLER_FRONTIER_LEASE_SECONDS=60", "CRAWLER_MEMBERSHIP_LAPSE_SECONDS=3", *extra],
        arguments={"base": crawl.lab.base(0), "count": str(PAGES), "seconds": str(seconds)},
    )


def left(crawl: LabCrawl) -> int:
    counters = crawl.counters()
    return sum(counters.get(name, 0) for name in ("waiting", "in_flight", "delayed", "suspects"))


def test_unfinished_pages_are_in_redis_while_a_stop_lasts_and_when_it_is_cut_short(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        slow_pages(crawl, 30)
        wait_until(
            lambda: crawl.counters().get("put") == PAGES and crawl.counters()["in_flight"] >= 8, 60, "slots full"
        )

        crawl.workers[0].send_signal(signal.SIGTERM)
        wait_until(lambda: crawl.counters().get("returned", 0) > 0, 20, "unstarted pages to go back")
        during = left(crawl)
        crawl.workers[0].kill()
        crawl.workers[0].wait()

        assert (during, left(crawl)) == (PAGES, PAGES)


def test_after_its_grace_a_worker_hands_back_what_it_still_downloads(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        slow_pages(crawl, 30, "CRAWLER_STOP_GRACE_SECONDS=1")
        wait_until(lambda: crawl.counters()["in_flight"] >= 8, 60, "slots full")

        crawl.workers[0].send_signal(signal.SIGTERM)

        assert crawl.wait(20) == [0]
        assert crawl.counters()["waiting"] == PAGES
        assert crawl.counters()["in_flight"] == 0


def test_a_second_signal_hands_everything_back_at_once(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        slow_pages(crawl, 1.5)
        wait_until(lambda: crawl.counters()["in_flight"] >= 8, 60, "slots full")

        crawl.workers[0].send_signal(signal.SIGTERM)
        wait_until(lambda: "shutting down gracefully" in crawl.log(0), 20, "the first signal to be heard")
        crawl.workers[0].send_signal(signal.SIGTERM)
        crawl.wait(20)
        assert left(crawl) == PAGES
        slow_pages(crawl, 1.5)

        assert crawl.wait()[-1] == 0
        assert len(crawl.items()) == PAGES


def test_one_worker_leaves_and_the_other_fetches_the_rest_once(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path) as crawl:
        crawl.start()
        crawl.start()
        crawl.wait_for_hits(80)

        crawl.workers[0].send_signal(signal.SIGTERM)

        assert crawl.wait() == [0, 0]
        crawl.assert_complete()
        assert sum(crawl.page_hits().values()) == 200


def test_a_stopped_crawl_goes_on_and_a_finished_one_begins_anew(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path) as crawl:
        crawl.start()
        crawl.wait_for_hits(60)
        crawl.workers[0].send_signal(signal.SIGTERM)
        crawl.wait()
        crawl.start()
        crawl.wait()
        crawl.assert_complete()
        assert sum(crawl.page_hits().values()) == 200

        crawl.start()

        assert crawl.wait() == [0, 0, 0]
        assert sum(crawl.page_hits().values()) == 400
        crawl.assert_complete()
