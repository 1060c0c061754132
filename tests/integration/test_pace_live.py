"""What hosts see of a fleet: workers share the pace of each host, whatever they ask it and whoever is killed."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.components.downloader import SHORT_BLOCK_SECONDS
from tests.support.crawling import wait_for_end
from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.pacing import excess_of, gaps_of, times_of
from tests.support.waiting import wait_until

timed = pytest.mark.alone
"""What hosts see is timed; tests beside these would make workers late on their way."""

HOSTS = 4


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=8, hosts=HOSTS)) as started:
        yield started


@pytest.fixture
def crawl(lab: Lab, tmp_path: Path) -> Iterator[LabCrawl]:
    with lab_crawl(lab, tmp_path, "paced") as made:
        yield made


def start(crawl: LabCrawl, pages: list[int], *settings: str, workers: int = 1) -> None:
    """Starts workers that ask the first host for the first number of pages, and so on."""
    plan = crawl.folder / "plan.json"
    plan.write_text(json.dumps({crawl.lab.base(host): count for host, count in enumerate(pages)}))
    for _ in range(workers):
        crawl.start(settings, arguments={"plan": str(plan)})


def throttle(**rules: object) -> str:
    return "CRAWLER_THROTTLE=" + json.dumps({name.replace("_", "."): rule for name, rule in rules.items()})


@timed
def test_a_download_delay_is_the_fleet_s(crawl: LabCrawl) -> None:
    start(crawl, [16], "DOWNLOAD_DELAY=0.5", "DOWNLOAD_DELAY_JITTER=0", "RANDOMIZE_DOWNLOAD_DELAY=0", workers=3)
    wait_for_end(crawl, *crawl.workers)
    gaps = gaps_of(times_of(crawl.lab)["127.0.0.1"])
    assert len(gaps) == 15
    assert min(gaps) > 0.45
    assert sum(gaps) / len(gaps) == pytest.approx(0.5, rel=0.15)


@timed
def test_hosts_that_wait_hold_up_no_others(crawl: LabCrawl) -> None:
    """Two requests at a time, and three hosts whose requests wait most of the time."""
    start(crawl, [4, 4, 4, 60], throttle(**{"127_0_0_4": 0, "*": 1}), "CONCURRENT_REQUESTS=2")
    wait_for_end(crawl, *crawl.workers)
    times = times_of(crawl.lab)
    assert [len(times[f"127.0.0.{host}"]) for host in (1, 2, 3, 4)] == [4, 4, 4, 60]
    assert times["127.0.0.4"][-1] < min(times[f"127.0.0.{host}"][2] for host in (1, 2, 3))
    assert all(excess_of(times[f"127.0.0.{host}"], 1, 2) <= 0 for host in (1, 2, 3))


@timed
def test_slow_hosts_are_asked_side_by_side(crawl: LabCrawl) -> None:
    """Where a slow host's requests took the places of others, three hosts would take longer than one."""
    start(crawl, [20] * 3, throttle(**{"*": 5}), "CONCURRENT_REQUESTS=4", workers=2)
    wait_for_end(crawl, *crawl.workers)
    for times in times_of(crawl.lab).values():
        assert sum(gaps_of(times)) == pytest.approx(19 / 5, rel=0.3)


@timed
def test_killed_and_new_workers_keep_the_pace(crawl: LabCrawl) -> None:
    settings = (
        throttle(**{"*": {"rate": 20, "burst": 5}}),
        "CRAWLER_MEMBERSHIP_BEAT_SECONDS=0.3",
        "CRAWLER_MEMBERSHIP_LAPSE_SECONDS=1",
    )
    start(crawl, [60] * HOSTS, *settings, workers=2)
    crawl.wait_for_hits(40)
    crawl.workers[0].send_signal(signal.SIGKILL)
    start(crawl, [60] * HOSTS, *settings)
    wait_for_end(crawl, *crawl.workers[1:])
    times = times_of(crawl.lab)
    assert all(len(hits) >= 60 for hits in times.values())
    assert max(excess_of(hits, 20, 5) for hits in times.values()) <= 0


@timed
def test_robots_txt_waits_for_its_turn_too(crawl: LabCrawl) -> None:
    start(crawl, [4], throttle(**{"*": 4}), "ROBOTSTXT_OBEY=True")
    wait_for_end(crawl, *crawl.workers)
    assert any(hit.path == "/robots.txt" for hit in crawl.lab.times())
    times = times_of(crawl.lab)["127.0.0.1"]
    assert len(times) == 5
    assert excess_of(times, 4, 2) <= 0


@timed
def test_the_delay_of_a_download_slot_is_its_host_s(crawl: LabCrawl) -> None:
    slots = {"127.0.0.1": {"delay": 0.3, "jitter": 0, "randomize_delay": False, "concurrency": 8}}
    start(crawl, [8, 8], "DOWNLOAD_SLOTS=" + json.dumps(slots), workers=2)
    wait_for_end(crawl, *crawl.workers)
    times = times_of(crawl.lab)
    assert min(gaps_of(times["127.0.0.1"])) > 0.25
    assert sum(gaps_of(times["127.0.0.2"])) < sum(gaps_of(times["127.0.0.1"]))


def listed(crawl: LabCrawl, urls: list[str]) -> str:
    """A plan of the spider ``listed``."""
    crawl.spider = "listed"
    plan = crawl.folder / "plan.json"
    plan.write_text(json.dumps(urls))
    return str(plan)


FAST_BEATS = ("CRAWLER_MEMBERSHIP_BEAT_SECONDS=0.3", "CRAWLER_MEMBERSHIP_LAPSE_SECONDS=1")


NOTICE_SECONDS = 0.25


def assert_patient(crawl: LabCrawl, seconds: float) -> None:
    """After a refusal nothing was asked of the first host for the time that it named, once that was noticed."""
    hits = [hit for hit in crawl.lab.times() if hit.host == crawl.lab.spec.address(0)]
    refusals = [hit.at for hit in hits if hit.status in {429, 503}]
    assert refusals
    early = [hit for hit in hits for at in refusals if at + NOTICE_SECONDS < hit.at < at + seconds - 0.01]
    assert early == []


@timed
def test_one_refusal_stops_the_whole_fleet_for_the_time_that_the_host_names(crawl: LabCrawl) -> None:
    """Eight requests are refused at once, when all workers are at work; the other host goes on meanwhile."""
    first, second = crawl.lab.base(0), crawl.lab.base(1)
    urls = [f"{base}/slow/0.1?n={number}" for number in range(300) for base in (first, second)]
    # Its first host is slowed down after that, and few are left of it.
    urls = urls[:360] + urls[361::2]
    urls[300:300] = [f"{first}/flaky/1?status=429&retry_after=2&n={number}" for number in range(8)]
    plan = listed(crawl, urls)
    for _ in range(3):
        crawl.start(["CONCURRENT_REQUESTS=8"], arguments={"plan": plan})
    wait_for_end(crawl, *crawl.workers)
    assert_patient(crawl, 2)
    assert crawl.items() == dict.fromkeys(urls, 1)
    assert not any("the errback got" in crawl.log(number) for number in range(3))
    times = times_of(crawl.lab)
    refused_at = next(hit.at for hit in crawl.lab.times() if hit.status == 429)
    assert len([at for at in times["127.0.0.2"] if refused_at < at < refused_at + 2]) > 60


@pytest.mark.parametrize("seconds", [2, 6])
def test_requests_that_wait_for_a_place_when_their_host_refuses_are_not_sent(crawl: LabCrawl, seconds: int) -> None:
    """For a short block they wait where they are, for a long one in the frontier; the spider is not told of either."""
    base = crawl.lab.base(0)
    # After some the worker knows how fast it is, and has as many at hand as it may.
    urls = [f"{base}/slow/0.01?n={number}" for number in range(150)]
    urls.insert(120, f"{base}/flaky/1?status=503&retry_after={seconds}")
    plan = listed(crawl, urls)
    crawl.start(["CONCURRENT_REQUESTS=16", "CONCURRENT_REQUESTS_PER_DOMAIN=1"], arguments={"plan": plan})
    if seconds > SHORT_BLOCK_SECONDS:
        wait_until(lambda: "asks for patience" in crawl.log(0), 30, "the block")
        wait_until(lambda: crawl.counters()["in_flight"] == 0, 5, "all pages to wait in the frontier")
    wait_for_end(crawl, *crawl.workers)
    hits = crawl.lab.times()
    refused_at = next(hit.at for hit in hits if hit.status == 503)
    assert not any(refused_at < hit.at < refused_at + seconds for hit in hits)
    assert crawl.items() == dict.fromkeys(urls, 1)
    assert len(hits) == len(urls) + 1
    assert "the errback got" not in crawl.log(0)


def test_a_block_outlives_workers_and_redis(crawl: LabCrawl) -> None:
    """A long block: pages under way go back to the frontier; the worker that heard of it and Redis are killed."""
    base = crawl.lab.base(0)
    urls = [f"{base}/flaky/1?status=429&retry_after=8"] + [f"{base}/flat/{number}" for number in range(40)]
    arguments = {"plan": listed(crawl, urls)}
    crawl.start(["CONCURRENT_REQUESTS=1", *FAST_BEATS], arguments=arguments)
    crawl.wait_for_hits(1)
    wait_until(lambda: "asks for patience" in crawl.log(0), 30, "the block")
    wait_until(lambda: crawl.counters().get("in_flight") == 0, 30, "the pages to wait in the frontier")
    crawl.workers[0].kill()
    crawl.server.kill()
    crawl.server.start()
    crawl.start(["CONCURRENT_REQUESTS=4", *FAST_BEATS], arguments=arguments)
    wait_for_end(crawl, crawl.workers[1])
    assert_patient(crawl, 8)
    assert crawl.items() == dict.fromkeys(urls, 1)


def test_a_wrong_rule_ends_the_start_with_one_line(crawl: LabCrawl) -> None:
    start(crawl, [1], throttle(**{"127_0_0_1": {"rate": "quick"}}))
    wait_for_end(crawl, *crawl.workers, code=2)
    assert "CRAWLER_THROTTLE['127.0.0.1'] has the rate 'quick'; it must be a number" in crawl.log(0)
    assert "Traceback" not in crawl.log(0)
