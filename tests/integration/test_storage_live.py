"""A worker is killed before its items are stored: their pages are fetched again, and the items stored once."""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.crawling import extension
from tests.support.failpoints import ENVIRONMENT, Failpoint, Failpoints
from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.troubled_storage import VARIABLE
from tests.support.waiting import wait_until

PAGES = 12


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=60, hosts=4)) as started:
        yield started


def start_slow(crawl: LabCrawl, *extra: str) -> None:
    """Starts a worker whose batches of items take two seconds each."""
    crawl.start(
        ["CRAWLER_STORAGE=tests.support.troubled_storage.SlowStorage", *extra],
        environment={VARIABLE: crawl.storage},
        arguments=arguments(crawl),
    )


def arguments(crawl: LabCrawl) -> dict[str, str]:
    return {"base": crawl.lab.base(0), "count": str(PAGES)}


def test_pages_whose_items_died_with_their_worker_are_not_done(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        start_slow(crawl)
        crawl.wait_for_hits(PAGES)
        crawl.workers[0].kill()
        crawl.workers[0].wait()
        assert crawl.counters().get("done", 0) == 0
        assert crawl.counters()["in_flight"] == PAGES

        crawl.start(arguments=arguments(crawl))
        assert crawl.wait()[1] == 0
        assert sorted(lab.hits().values()) == [2] * PAGES
        assert crawl.items() == Counter(dict.fromkeys(lab.hits(), 1))
        assert crawl.counters()["done"] == PAGES


def test_pages_of_written_batches_are_done_and_no_others(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        start_slow(crawl, "CRAWLER_STORAGE_BATCH_RECORDS=4")
        wait_until(lambda: crawl.counters().get("done", 0) > 0, 60, "the first batch to be settled")
        crawl.workers[0].kill()
        crawl.workers[0].wait()
        done = crawl.counters()["done"]
        assert len(crawl.items()) >= done

        crawl.start(arguments=arguments(crawl))
        assert crawl.wait()[1] == 0
        assert sum(lab.hits().values()) == 2 * PAGES - done
        assert crawl.items() == Counter(dict.fromkeys(lab.hits(), 1))
        assert crawl.counters()["done"] == PAGES


def test_spiders_that_share_a_storage_keep_their_rows_of_the_same_page(lab: Lab, tmp_path: Path) -> None:
    """Pages of the second come back after their items were stored, so that rows of its earlier fetches go."""
    with lab_crawl(lab, tmp_path, "flat") as first:
        first.start(arguments=arguments(first))
        assert first.wait() == [0]
        second = LabCrawl(lab, first.server, tmp_path, "flat_again")
        second.start(
            ["CRAWLER_STORAGE_BATCH_RECORDS=4", extension(Failpoints)],
            environment={ENVIRONMENT: str(Failpoint.of("after:write:2"))},
            arguments=arguments(second),
        )
        assert second.wait() == [-signal.SIGKILL]
        second.start(arguments=arguments(second))
        assert second.wait()[1] == 0
        assert sum(lab.hits().values()) > 2 * PAGES, "no page came back"
        assert second.items() == Counter(dict.fromkeys(lab.hits(), 2))
