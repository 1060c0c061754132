"""Spiders that wait for seeds: how soon a seed is fetched, how little an idle fleet asks, and when it ends."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.waiting import wait_until

KEY = "waiting:start_urls"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=60, hosts=4)) as started:
        yield started


def fetched(lab: Lab, count: int) -> bool:
    return len(lab.times()) == count


def idle_worker(crawl: LabCrawl, *extra: str) -> int:
    number = len(crawl.workers)
    crawl.start(extra, arguments={"x": "1"})
    wait_until(lambda: "joined generation" in crawl.log(number), 30, "the worker to join")
    return number


def test_a_pushed_seed_is_fetched_within_half_a_second(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        idle_worker(crawl, "CRAWLER_MEMBERSHIP_BEAT_SECONDS=5", "CRAWLER_MEMBERSHIP_LAPSE_SECONDS=11")
        wait_until(lambda: client.scard("trawlnet:{waiting:0}:idle") == 1, 20, "the worker to be idle")
        delays = []
        for number in range(8):
            pushed = time.time()
            client.lpush(KEY, f"{lab.base(0)}/leaf/{number}")
            wait_until(partial(fetched, lab, number + 1), 5, "the seed to be fetched")
            delays.append(lab.times()[-1].at - pushed)

        # One of eight may meet a busy machine.
        assert sorted(delays)[-2] < 0.5, delays


def test_a_slow_page_holds_up_no_other_seed(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        urls = [f"{lab.base(0)}/slow/{3 if number % 16 == 0 else 0}?n={number}" for number in range(160)]
        client.rpush(KEY, *urls)
        started = time.monotonic()
        idle_worker(crawl, "CRAWLER_CLOSE_ON_FINISH=True")

        assert crawl.wait() == [0]
        # One batch after the other, as scrapy-redis has it, takes ten times the slow page.
        assert time.monotonic() - started < 20
        assert len(crawl.items()) == 160


def test_seeds_pushed_while_nobody_is_there_wait(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        client.sadd(KEY, *(f"{lab.base(0)}/leaf/{number}" for number in range(10)))
        idle_worker(crawl, "CRAWLER_CLOSE_ON_FINISH=True")

        assert crawl.wait() == [0]
        assert len(crawl.items()) == 10


def test_the_idle_limit_counts_from_the_last_activity(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        client.rpush(KEY, *(f"{lab.base(0)}/slow/1?n={number}" for number in range(6)))
        idle_worker(crawl, "CONCURRENT_REQUESTS=1", "MAX_IDLE_TIME_BEFORE_CLOSE=3")

        assert crawl.wait() == [0]
        last = lab.times()[-1].at + 1
        assert 2.5 < time.time() - last < 9
        assert len(crawl.items()) == 6


def test_a_worker_stays_while_another_holds_a_page_that_will_have_links(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        for _ in range(2):
            crawl.start(["MAX_IDLE_TIME_BEFORE_CLOSE=4", "CONCURRENT_REQUESTS=4"], arguments={"x": "1"})
        wait_until(lambda: all("joined generation" in crawl.log(number) for number in range(2)), 30, "both to join")
        client.rpush(KEY, f"{lab.base(0)}/slow/6?yields=60")

        assert crawl.wait() == [0, 0]
        assert len(crawl.items()) == 61
        shares = [crawl.log(number).count("'response_received_count'") for number in range(2)]
        assert shares == [1, 1], "both fetched pages"


def test_idle_workers_ask_for_less_than_one_command_a_second(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        ordinary = ("CRAWLER_MEMBERSHIP_BEAT_SECONDS=5", "CRAWLER_MEMBERSHIP_LAPSE_SECONDS=10.5")
        for _ in range(4):
            idle_worker(crawl, *ordinary)
        wait_until(lambda: client.scard("trawlnet:{waiting:0}:idle") == 4, 30, "all to be idle")
        client.config_resetstat()
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began >= 12, 20, "some time to pass")

        sent = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
        connections = [found for found in client.client_list() if found["name"] == "trawlnet"]
        assert sent / (time.monotonic() - began) / 4 < 1
        assert len(connections) <= 2 * 4
