"""A worker sleeps (SIGSTOP) while the fleet goes on without it, and wakes up in another time."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from crawler.control.crawls import Crawls
from crawler.storage.backends import open_storage
from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.sleeping import put_to_sleep
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=60, hosts=4)) as started:
        yield started


def sleep_after(crawl: LabCrawl, hits: int, arguments: dict[str, str]) -> None:
    """Starts a worker and stops it when the lab was asked for so many pages."""
    crawl.start(arguments=arguments)
    crawl.wait_for_hits(hits)
    put_to_sleep(crawl.workers[0], crawl.folder / "items.db")


def ended(crawl: LabCrawl, number: int) -> int:
    wait_until(lambda: crawl.workers[number].poll() is not None, 90, f"the end of worker {number}")
    return crawl.workers[number].wait()


def fetches(crawl: LabCrawl) -> list[int]:
    """Fetch numbers (lease ids) of the stored items."""
    store = open_storage(crawl.storage)
    store.open()
    try:
        return [record.fetch for record in store.records()]
    finally:
        store.close()


def state(crawl: LabCrawl) -> tuple[str, int]:
    with Redis.from_url(crawl.server.url) as client:
        status = Crawls(client, crawl.spider).status()
    return status.state, status.generation


def test_a_worker_that_slept_through_the_end_settles_nothing(lab: Lab, tmp_path: Path) -> None:
    arguments = {"base": lab.base(0), "count": "1", "seconds": "1.5"}
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        sleep_after(crawl, 1, arguments)
        crawl.start(arguments=arguments)
        assert ended(crawl, 1) == 0
        stored = fetches(crawl)
        crawl.workers[0].send_signal(signal.SIGCONT)

        assert ended(crawl, 0) == 0
        assert list(lab.hits().values()) == [2]
        assert (crawl.counters()["done"], crawl.counters()["stale"]) == (1, 1)
        assert state(crawl) == ("finished", 1)
        assert fetches(crawl) == stored, "the item is that of the fetch that settled"


def test_a_worker_that_slept_into_the_next_generation_leaves_it_alone(lab: Lab, tmp_path: Path) -> None:
    arguments = {"base": lab.base(0), "count": "1", "seconds": "1.5"}
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        sleep_after(crawl, 1, arguments)
        for number in (1, 2):
            crawl.start(arguments=arguments)
            assert ended(crawl, number) == 0
        stored, hits = fetches(crawl), lab.stats()["hits"]
        crawl.workers[0].send_signal(signal.SIGCONT)

        assert ended(crawl, 0) == 0
        assert state(crawl) == ("finished", 2)
        assert crawl.counters()["done"] == 1
        assert fetches(crawl) == stored
        assert (hits, lab.stats()["hits"]) == (3, 3)


def test_start_requests_of_a_worker_that_fell_asleep_are_taken_over(lab: Lab, tmp_path: Path) -> None:
    arguments = {"base": lab.base(0), "count": "20", "pause": "0.1"}
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        sleep_after(crawl, 5, arguments)
        crawl.start(arguments=arguments)
        assert ended(crawl, 1) == 0
        assert len(crawl.items()) == 20
        hits = lab.stats()["hits"]
        crawl.workers[0].send_signal(signal.SIGCONT)

        assert ended(crawl, 0) == 0
        assert crawl.items().total() == 20
        assert crawl.counters()["done"] == 20
        assert lab.stats()["hits"] == hits, "what start() still gave was there already"
