"""A worker is killed, or sleeps past its lease: nothing is lost, nothing is stored twice."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.killed_worker import trawlnet_run
from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import lab_crawl
from tests.support.sleeping import put_to_sleep
from tests.support.waiting import wait_until

RUNS = 3


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=600, hosts=12, latency_seconds=0.02)) as started:
        yield started


@pytest.mark.parametrize("run", range(RUNS))
def test_a_killed_worker_costs_no_page_and_no_item(lab: Lab, tmp_path: Path, run: int) -> None:
    lab.reset()

    result = trawlnet_run(lab, tmp_path, random.Random())

    assert result.kept_promise, f"this run was: {result}"


def test_all_workers_killed_then_a_new_one_finishes(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path) as crawl:
        for _ in range(2):
            crawl.start()
        crawl.wait_for_hits(200)
        for worker in crawl.workers:
            worker.kill()
        crawl.start()

        assert crawl.wait()[-1] == 0
        crawl.assert_complete()


def test_a_worker_that_slept_past_its_lease_settles_nothing(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path) as crawl:
        sleeper = crawl.start()
        crawl.wait_for_hits(100)
        put_to_sleep(sleeper, tmp_path / "items.db")
        crawl.start()
        wait_until(lambda: crawl.counters().get("returned", 0) > 0, 60, "its leases to be given back")
        sleeper.send_signal(signal.SIGCONT)

        assert crawl.wait() == [0, 0]
        assert crawl.counters()["stale"] > 0, "the late settles were refused and counted"
        crawl.assert_complete()
