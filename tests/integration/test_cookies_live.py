"""One worker logs in, and all are logged in (CASES.md, P83)."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.storage.backends import open_storage
from tests.support.crawling import wait_for_end
from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.waiting import wait_until

PACE = 'CRAWLER_THROTTLE={"*": {"rate": 40, "burst": 4}}'
"""Slow enough that both workers get some."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=1, hosts=1)) as started:
        yield started


@pytest.fixture
def crawl(lab: Lab, tmp_path: Path) -> Iterator[LabCrawl]:
    with lab_crawl(lab, tmp_path, "members") as made:
        yield made


def start(crawl: LabCrawl, *settings: str, **arguments: str) -> None:
    crawl.start([PACE, *settings], arguments={"base": crawl.lab.base(0), **arguments})


def shown(crawl: LabCrawl) -> dict[str, str]:
    """Where each page that was asked for ended."""
    store = open_storage(crawl.storage)
    store.open()
    try:
        return {str(record.data["url"]): str(record.data["shown"]) for record in store.records()}
    finally:
        store.close()


def pages(crawl: LabCrawl, number: int) -> int:
    """Pages that a worker that has ended was through with."""
    found = re.search(r"'frontier/pages': (\d+)", crawl.log(number))
    return int(found.group(1)) if found else 0


@pytest.mark.parametrize("jar", ["", "mine"])
def test_who_did_not_log_in_is_logged_in_too(crawl: LabCrawl, jar: str) -> None:
    for _ in range(2):
        start(crawl, jar=jar)
    wait_for_end(crawl, *crawl.workers)
    found = shown(crawl)
    assert len(found) == 60
    assert [url for url, at in found.items() if url != at] == []
    assert min(pages(crawl, 0), pages(crawl, 1)) > 5
    assert crawl.lab.hits()[f"{crawl.lab.base(0)}/login"] == 2, "the form, and what was sent with it"


def test_a_worker_that_starts_after_the_login_is_logged_in(crawl: LabCrawl) -> None:
    start(crawl)
    wait_until(lambda: crawl.counters().get("done", 0) > 10, 30, "the login")
    crawl.workers[0].kill()
    start(crawl, "CRAWLER_MEMBERSHIP_BEAT_SECONDS=0.3", "CRAWLER_MEMBERSHIP_LAPSE_SECONDS=1")
    wait_for_end(crawl, crawl.workers[1])
    found = shown(crawl)
    assert len(found) == 60
    assert [url for url, at in found.items() if url != at] == []


def test_without_a_lifetime_each_worker_has_its_own(crawl: LabCrawl) -> None:
    for _ in range(2):
        start(crawl, "CRAWLER_COOKIES_LIFETIME_SECONDS=0")
    wait_for_end(crawl, *crawl.workers)
    found = shown(crawl)
    # Who is not logged in is sent to the login, which was seen before.
    assert 0 < len([url for url, at in found.items() if url == at]) < 60
