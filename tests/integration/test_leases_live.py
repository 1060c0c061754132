"""Pages that never end, or end their workers, in a fleet: they are dead letters, and all others are done."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=60, hosts=4)) as started:
        yield started


def letters(crawl: LabCrawl) -> list[dict[bytes, bytes]]:
    with Redis.from_url(crawl.server.url) as client:
        return [fields for _, fields in client.xrange(f"trawlnet:{{{crawl.spider}:0}}:dead")]


def test_a_callback_that_never_returns_holds_up_neither_the_crawl_nor_its_end(lab: Lab, tmp_path: Path) -> None:
    arguments = {"base": lab.base(0), "count": "12"}
    with lab_crawl(lab, tmp_path, "hanging") as crawl:
        for _ in range(2):
            crawl.start(["CRAWLER_FRONTIER_LEASE_MAX_SECONDS=3", "CRAWLER_STOP_GRACE_SECONDS=1"], arguments=arguments)

        assert crawl.wait(60) == [0, 0]
        (letter,) = letters(crawl)
        assert letter[b"class"] == b"lease_age"
        assert sorted(lab.hits().values()) == [1] * 12
        assert (len(crawl.items()), crawl.counters()["done"], crawl.counters()["dead"]) == (11, 11, 1)


PATIENT = ["CRAWLER_MEMBERSHIP_LAPSE_SECONDS=4", "CRAWLER_FRONTIER_LEASE_SECONDS=10"]
"""A worker that a busy machine holds up for two seconds is not dead, and its real death must count."""


def test_a_page_that_kills_every_worker_of_a_fleet_takes_no_other_with_it(lab: Lab, tmp_path: Path) -> None:
    arguments = {"base": lab.base(0), "count": "16"}
    with lab_crawl(lab, tmp_path, "poison") as crawl:

        def finished() -> bool:
            """Keeps two workers alive until one of them ends well."""
            states = [worker.poll() for worker in crawl.workers]
            if 0 in states:
                return True
            for _ in range(2 - states.count(None)):
                crawl.start(PATIENT, arguments=arguments)
            return False

        wait_until(finished, 110, "a worker to end well")
        crawl.wait()

        killed = [worker.returncode for worker in crawl.workers].count(-signal.SIGKILL)
        # One death makes it a suspect, three more as the only one bury it (test_leases_reap.py counts exactly);
        # the death of a worker that was held up for longer than the lapse before is nobody's.
        assert 4 <= killed <= 8
        (letter,) = letters(crawl)
        assert letter[b"class"] == b"worker_death"
        assert f"{lab.base(0)}/slow/0?n=7" not in crawl.items()
        assert max(count for url, count in lab.hits().items() if not url.endswith("n=7")) <= killed
        # No counters: a worker that starts just when the crawl ends begins a new one, and they with it.
        assert len(crawl.items()) == 15
