"""Seeds that come late: after a crawl was ended, while its worker stops, or three hundred at a time."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from crawler.control.crawls import Crawls
from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.waiting import wait_until

KEY = "waiting:start_urls"
ENDING = "CRAWLER_CLOSE_ON_FINISH=True"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=60, hosts=4)) as started:
        yield started


def start(crawl: LabCrawl, *extra: str) -> int:
    """Starts a worker and waits until it has joined; its number."""
    number = len(crawl.workers)
    crawl.start(extra, arguments={"x": "1"})
    wait_until(lambda: "joined generation" in crawl.log(number), 60, "the worker to join")
    return number


def state(crawl: LabCrawl) -> tuple[str, int, int]:
    with Redis.from_url(crawl.server.url) as client:
        status = Crawls(client, crawl.spider).status()
    return status.state, status.generation, status.done


def test_a_seed_reopens_a_crawl_that_another_worker_has_ended(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        staying, leaving = start(crawl), start(crawl, ENDING)
        client.rpush(KEY, *(f"{lab.base(0)}/flat/{number}" for number in range(5)))
        wait_until(lambda: crawl.workers[leaving].poll() is not None, 60, "the end of one worker")
        assert crawl.workers[leaving].returncode == 0
        assert state(crawl) == ("finished", 1, 5)

        client.rpush(KEY, *(f"{lab.base(0)}/flat/{number}" for number in range(5, 10)))
        wait_until(lambda: state(crawl)[2] == 10, 30, "the later seeds to be done")
        assert crawl.workers[staying].poll() is None
        assert state(crawl) == ("open", 1, 10)
        assert len(crawl.items()) == 10


def test_seeds_that_come_while_the_only_worker_stops_wait_for_the_next(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        number = start(crawl)
        client.rpush(KEY, *(f"{lab.base(0)}/slow/3?n={number}" for number in range(4)))
        crawl.wait_for_hits(4)
        crawl.workers[number].send_signal(signal.SIGTERM)
        wait_until(lambda: "claiming no more" in crawl.log(number), 30, "the worker to stop")
        client.rpush(KEY, *(f"{lab.base(0)}/flat/{number}" for number in range(6)))
        assert crawl.wait() == [0]
        assert lab.stats()["hits"] == 4
        assert client.llen(KEY) == 6

        start(crawl, ENDING)
        assert crawl.wait() == [0, 0]
        assert sorted(lab.hits().values()) == [1] * 10
        assert len(crawl.items()) == 10


def test_a_fleet_shares_three_hundred_seeds_and_slow_ones_hold_up_no_other(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        for _ in range(2):
            start(crawl, ENDING)
        urls = [f"{lab.base(0)}/slow/{3 if number % 16 == 0 else 0}?n={number}" for number in range(320)]
        client.rpush(KEY, *urls)

        assert crawl.wait() == [0, 0]
        assert sorted(lab.hits().values()) == [1] * 320
        times = [hit.at for hit in lab.times()]
        # 20 slow pages over 32 places: scrapy-redis, one batch after the other, takes twenty times the slow page.
        assert max(times) - min(times) < 8
        assert len(crawl.items()) == 320
