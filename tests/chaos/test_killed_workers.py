"""A killed worker is replaced while the rest of its fleet goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from crawler.control.crawls import Crawls
from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl

PAGES = 300


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=PAGES, hosts=6, latency_seconds=0.1)) as started:
        yield started


def kill(crawl: LabCrawl, number: int) -> int:
    """Kills a worker; how many leases it held."""
    worker = crawl.workers[number]
    worker.kill()
    worker.wait()
    with Redis.from_url(crawl.server.url) as client:
        roster = Crawls(client, crawl.spider).status().workers
    return sum(member.held for member in roster if f"-{worker.pid}-" in member.name)


def test_killed_workers_are_replaced_one_after_the_other_and_nothing_is_lost(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path) as crawl:
        for _ in range(2):
            crawl.start()
        held = 0
        for number, hits in enumerate((60, 140)):
            crawl.wait_for_hits(hits)
            held += kill(crawl, number)
            crawl.start()

        assert crawl.wait()[2:] == [0, 0]
        crawl.assert_complete()
        assert sum(crawl.page_hits().values()) <= PAGES + held
