"""Leases of living workers last, those of dead ones come back, and start requests are run once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import lab_crawl
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=60, hosts=4)) as started:
        yield started


def test_a_page_slower_than_its_lease_is_fetched_once(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        for _ in range(2):
            crawl.start(
                ["CRAWLER_FRONTIER_LEASE_SECONDS=2"], arguments={"base": lab.base(0), "count": "1", "seconds": "9"}
            )

        assert crawl.wait() == [0, 0]
        assert list(lab.hits().values()) == [1]


def test_the_page_of_a_killed_worker_is_back_within_two_leases(lab: Lab, tmp_path: Path) -> None:
    # So long that the other one is there before it is through.
    arguments = {"base": lab.base(0), "count": "1", "seconds": "15"}
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        crawl.start(["CRAWLER_FRONTIER_LEASE_SECONDS=5"], arguments=arguments)
        crawl.wait_for_hits(1)
        crawl.start(["CRAWLER_FRONTIER_LEASE_SECONDS=5"], arguments=arguments)
        wait_until(lambda: "joined generation" in crawl.log(1), 30, "the other worker")
        crawl.workers[0].kill()

        wait_until(lambda: crawl.counters().get("returned", 0) == 1, 10, "the page to come back")
        assert crawl.wait()[-1] == 0
        assert len(crawl.items()) == 1


def test_a_callback_that_blocks_past_the_lapse_loses_no_lease(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "blocking") as crawl:
        for _ in range(2):
            crawl.start(arguments={"base": lab.base(0), "count": "2", "block": "5"})

        assert crawl.wait() == [0, 0]
        assert sorted(lab.hits().values()) == [1, 1]
        assert len(crawl.items()) == 2


def test_a_page_that_kills_its_workers_is_a_dead_letter_and_takes_no_other_with_it(lab: Lab, tmp_path: Path) -> None:
    arguments = {"base": lab.base(0), "count": "20"}
    with lab_crawl(lab, tmp_path, "poison") as crawl:

        def replaced() -> bool:
            if crawl.workers[-1].poll() not in {None, 0}:
                crawl.start(arguments=arguments)
            return crawl.workers[-1].poll() == 0

        crawl.start(arguments=arguments)
        wait_until(replaced, 100, "a worker to end well")

        assert len(crawl.items()) == 19
        assert crawl.counters()["dead"] == 1
        assert len(crawl.workers) == 5, "one death makes it a suspect, three more as the only one bury it"
        with Redis.from_url(crawl.server.url) as client:
            ((_, letter),) = client.xrange("trawlnet:{poison:0}:dead")
        assert letter[b"class"] == b"worker_death"


def test_start_requests_are_run_by_one_worker(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        for _ in range(3):
            # Pages that last until all have joined: who comes after the end begins a new run.
            crawl.start(arguments={"base": lab.base(0), "count": "10", "seconds": "5"})

        assert crawl.wait() == [0, 0, 0]
        assert list(lab.hits().values()) == [1] * 10


def test_start_requests_are_taken_over_when_their_worker_dies_half_way(lab: Lab, tmp_path: Path) -> None:
    arguments = {"base": lab.base(0), "count": "20", "pause": "0.1"}
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        crawl.start(arguments=arguments)
        crawl.wait_for_hits(5)
        crawl.start(arguments=arguments)
        wait_until(lambda: "joined generation" in crawl.log(1), 30, "the other worker")
        crawl.workers[0].kill()

        assert crawl.wait()[-1] == 0
        assert len(crawl.items()) == 20


def test_redis_that_is_not_there_is_named_without_its_password(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path) as crawl:
        crawl.start(["REDIS_URL=redis://:secret@127.0.0.1:1/0", "CRAWLER_REDIS_WAIT_SECONDS=1"])

        assert crawl.wait() == [3]
        errors = [line for line in crawl.log(0).splitlines() if " ERROR: " in line]
        assert len(errors) == 1
        assert "127.0.0.1:1" in errors[0]
        assert "secret" not in crawl.log(0)
        assert "Traceback" not in crawl.log(0)
