"""Slow hosts, a slow store and a far Redis: nothing is lost by waiting, and waiting holds up little."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.far_redis import far_redis
from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.troubled_storage import VARIABLE

PAGES = 300


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=PAGES, hosts=6, latency_seconds=0.03)) as started:
        yield started


def test_requests_that_wait_for_their_delay_are_not_lost_with_their_worker(lab: Lab, tmp_path: Path) -> None:
    arguments = {"base": lab.base(0), "count": "60"}
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        crawl.start(["DOWNLOAD_DELAY=0.1"], arguments=arguments)
        crawl.wait_for_hits(20)
        crawl.workers[0].kill()
        crawl.workers[0].wait()
        crawl.start(arguments=arguments)

        assert crawl.wait()[-1] == 0
        assert len(crawl.items()) == 60


@pytest.mark.parametrize("stopped", [False, True])
def test_a_worker_ends_only_when_its_items_are_stored(lab: Lab, tmp_path: Path, stopped: bool) -> None:
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        crawl.start(
            ["CRAWLER_STORAGE=tests.support.troubled_storage.SlowStorage"],
            environment={VARIABLE: crawl.storage},
            arguments={"base": lab.base(0), "count": "12"},
        )
        crawl.wait_for_hits(12)
        if stopped:
            crawl.workers[0].send_signal(signal.SIGTERM)

        assert crawl.wait() == [0]
        assert len(crawl.items()) == 12
        assert crawl.counters()["done"] == 12
        assert crawl.counters()["in_flight"] == 0


def test_pages_whose_items_were_not_stored_are_fetched_again_or_are_dead_letters(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        crawl.start(
            ["CRAWLER_STORAGE=tests.support.troubled_storage.FlakyStorage", "CRAWLER_STORAGE_RETRY_SECONDS=0"],
            environment={VARIABLE: crawl.storage},
            arguments={"base": lab.base(0), "count": "20"},
        )

        assert crawl.wait() == [0]
        counters = crawl.counters()
        assert (counters["done"], counters["dead"]) == (18, 2)
        assert counters["retried"] == counters["storage_failed"] > 0
        assert len(crawl.items()) == 18


def _pages_a_second(crawl: LabCrawl, number: int) -> float:
    elapsed = re.search(r"'elapsed_time_seconds': ([\d.]+)", crawl.log(number))
    assert elapsed is not None
    return PAGES / float(elapsed.group(1))


def _trips(crawl: LabCrawl, number: int) -> float:
    trips = re.search(r"'frontier/round_trips': (\d+)", crawl.log(number))
    assert trips is not None
    return int(trips.group(1)) / PAGES


@pytest.mark.alone
def test_a_redis_two_milliseconds_away_costs_little(lab: Lab, tmp_path: Path) -> None:
    ratios = []
    for run in range(3):
        folder = tmp_path / str(run)
        folder.mkdir()
        with lab_crawl(lab, folder) as crawl, far_redis(crawl.server.port, 0.002) as far:
            crawl.start()
            assert crawl.wait() == [0]
            crawl.start([f"REDIS_URL={far}"])
            assert crawl.wait() == [0, 0]
            crawl.assert_complete()
            assert _trips(crawl, 1) <= 1
            ratios.append(_pages_a_second(crawl, 1) / _pages_a_second(crawl, 0))
        if ratios[-1] >= 0.8:
            break

    # A run beside other work on the machine may come out lower; one of three does not.
    assert max(ratios) >= 0.8, ratios
