"""When workers end: all of a fleet with the crawl, those that wait for seeds when they may, others not at all."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.waiting import wait_until

KEY = "waiting:start_urls"
END_SECONDS = 10.0


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=60, hosts=4)) as started:
        yield started


def wait_for_members(crawl: LabCrawl, count: int) -> None:
    def joined() -> bool:
        return all("joined generation" in crawl.log(number) for number in range(count))

    wait_until(joined, 90, f"{count} workers to join")


def seconds_since_last_page(lab: Lab, page_seconds: float) -> float:
    return time.time() - lab.times()[-1].at - page_seconds


def test_every_worker_of_a_fleet_ends_soon_after_the_last_page(lab: Lab, tmp_path: Path) -> None:
    arguments = {"base": lab.base(0), "count": "4", "seconds": "3"}
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        for _ in range(3):
            crawl.start(["CONCURRENT_REQUESTS=2"], arguments=arguments)

        assert crawl.wait() == [0, 0, 0]
        assert seconds_since_last_page(lab, 3) < END_SECONDS
        assert all("Closing spider (finished)" in crawl.log(number) for number in range(3))
        assert sorted(lab.hits().values()) == [1] * 4


def test_workers_that_wait_for_seeds_end_on_request_when_all_are_done(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        for _ in range(2):
            crawl.start(["CRAWLER_CLOSE_ON_FINISH=True"], arguments={"x": "1"})
        wait_for_members(crawl, 2)
        client.rpush(KEY, f"{lab.base(0)}/slow/1?yields=20")

        assert crawl.wait() == [0, 0]
        assert seconds_since_last_page(lab, 0.2) < END_SECONDS
        assert len(crawl.items()) == 21
        assert all("Closing spider (finished)" in crawl.log(number) for number in range(2))


def test_a_worker_of_another_project_is_refused_and_those_at_work_go_on(lab: Lab, tmp_path: Path) -> None:
    with lab_crawl(lab, tmp_path, "flat") as crawl:
        arguments = {"base": lab.base(0), "count": "4", "seconds": "5"}
        crawl.start(arguments=arguments)
        crawl.wait_for_hits(4)
        crawl.start(["BOT_NAME=another"], arguments=arguments)
        wait_until(lambda: crawl.workers[1].poll() is not None, 60, "the end of the stranger")
        log = crawl.log(1)

        assert crawl.workers[1].returncode == 2
        (line,) = [line for line in log.splitlines() if " ERROR: " in line]
        assert "'another'" in line
        assert "'trawlnet'" in line
        assert "Traceback" not in log
        assert crawl.wait() == [0, 2]
        assert sorted(lab.hits().values()) == [1] * 4


def test_an_idle_fleet_of_ten_sends_less_than_a_command_a_second_each(lab: Lab, tmp_path: Path) -> None:
    fleet = 10
    with lab_crawl(lab, tmp_path, "waiting") as crawl, Redis.from_url(crawl.server.url) as client:
        for _ in range(fleet):
            crawl.start(
                ["CRAWLER_MEMBERSHIP_BEAT_SECONDS=5", "CRAWLER_MEMBERSHIP_LAPSE_SECONDS=10.5"], arguments={"x": "1"}
            )
        wait_until(lambda: client.scard("trawlnet:{waiting:0}:idle") == fleet, 110, "all to be idle")
        assert len(client.client_list()) - 1 <= 2 * fleet

        assert commands_sent(client, 10.0) / 10.0 / fleet < 1
        assert all(worker.poll() is None for worker in crawl.workers)


def commands_sent(client: Redis, seconds: float) -> int:
    """Commands that clients send in so long a time; INFO commandstats would count those inside scripts too."""
    sent = 0
    with client.monitor() as monitor:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            sent += monitor.next_command()["client_type"] != "lua"
    return sent
