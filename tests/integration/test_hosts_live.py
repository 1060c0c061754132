"""What a host sees of a fleet while it is in trouble, capped, slow, or under an operator's orders."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from redis import Redis

from crawler.control.crawls import Crawls
from tests.support.crawling import wait_for_end
from tests.support.lab import Lab, LabSpec
from tests.support.lab.hits import Hit
from tests.support.labcrawl import ROOT, LabCrawl, lab_crawl
from tests.support.pacing import gaps_of, times_of
from tests.support.waiting import wait_until

timed = pytest.mark.alone
"""What hosts see is timed; tests beside these would make workers late on their way."""

FAST_BEATS = ("CRAWLER_MEMBERSHIP_BEAT_SECONDS=0.3", "CRAWLER_MEMBERSHIP_LAPSE_SECONDS=1")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=3, hosts=3)) as started:
        yield started


@pytest.fixture
def crawl(lab: Lab, tmp_path: Path) -> Iterator[LabCrawl]:
    with lab_crawl(lab, tmp_path, "listed") as made:
        yield made


def start(crawl: LabCrawl, urls: Sequence[str], *settings: str, workers: int = 1) -> None:
    plan = crawl.folder / "plan.json"
    plan.write_text(json.dumps(list(urls)))
    for _ in range(workers):
        crawl.start(settings, arguments={"plan": str(plan)})


def host_command(crawl: LabCrawl, *words: str) -> str:
    """What ``trawlnet host`` says."""
    given = [sys.executable, "-m", "crawler.cli", "host", *words, "-s", f"REDIS_URL={crawl.server.url}"]
    done = subprocess.run(given, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def most_at_once(hits: Sequence[Hit], seconds: float) -> int:
    """The most requests under way at a time, each of which took so long."""
    times = [hit.at for hit in hits]
    return max(sum(at - seconds < other <= at for other in times) for at in times)


@pytest.mark.parametrize("setting", ["CONCURRENT_REQUESTS_PER_DOMAIN=4", 'CRAWLER_THROTTLE={"*": {"concurrency": 4}}'])
def test_a_cap_is_the_fleet_s(crawl: LabCrawl, setting: str) -> None:
    base = crawl.lab.base(0)
    start(crawl, [f"{base}/slow/0.2?n={number}" for number in range(80)], setting, *FAST_BEATS, workers=3)
    crawl.wait_for_hits(20)
    crawl.workers[0].kill()
    wait_for_end(crawl, *crawl.workers[1:])
    hits = crawl.lab.times()
    assert most_at_once(hits, 0.2) == 4
    assert len({hit.path for hit in hits}) == 80


@timed
def test_a_cap_is_used_up(crawl: LabCrawl) -> None:
    base = crawl.lab.base(0)
    start(
        crawl, [f"{base}/slow/0.1?n={number}" for number in range(200)], "CONCURRENT_REQUESTS_PER_DOMAIN=4", workers=3
    )
    wait_for_end(crawl, *crawl.workers)
    times = times_of(crawl.lab)[crawl.lab.spec.address(0)]
    assert max(len([other for other in times if at <= other < at + 0.1]) for at in times) >= 4
    assert times[-1] - times[0] < 2 * 200 / 4 * 0.1, "a worker asks when another's answer has come, without waiting"


def test_a_host_in_trouble_is_left_alone_and_tried_until_it_works(crawl: LabCrawl) -> None:
    urls = [f"{crawl.lab.base(host)}/slow/0.05?n={number}" for number in range(100) for host in (0, 1)]
    start(crawl, urls, "CRAWLER_THROTTLE_CIRCUIT_SECONDS=1", "RETRY_TIMES=5", workers=2)
    crawl.wait_for_hits(60)
    crawl.lab.mood(0, status=500)
    wait_until(lambda: any("again and again" in crawl.log(number) for number in (0, 1)), 30, "the circuit to open")
    opened_at = time.time()
    wait_until(lambda: len([hit for hit in crawl.lab.times() if hit.host == "127.0.0.2"]) == 100, 30, "the other host")
    wait_until(lambda: time.time() > opened_at + 4, 10, "some tries")
    crawl.lab.mood(0)
    well_at = time.time()
    wait_for_end(crawl, *crawl.workers)
    first = [hit for hit in crawl.lab.times() if hit.host == "127.0.0.1"]
    assert len([hit for hit in first if opened_at + 0.3 < hit.at < well_at]) <= 4, "one for each time that it opened"
    assert crawl.items() == dict.fromkeys(urls, 1)
    assert any("works again" in crawl.log(number) for number in (0, 1))


def test_urls_of_a_host_that_nobody_can_reach_end_as_dead_letters(crawl: LabCrawl) -> None:
    gone = [f"http://127.0.0.77:{crawl.lab.port}/{number}" for number in range(40)]
    good = [f"{crawl.lab.base(0)}/flat/{number}" for number in range(20)]
    circuit = ("CRAWLER_THROTTLE_CIRCUIT_SECONDS=0.5", "CRAWLER_THROTTLE_CIRCUIT_MAX_SECONDS=3")
    start(crawl, [*gone, *good], *circuit, workers=2)
    wait_for_end(crawl, *crawl.workers)
    assert crawl.items() == dict.fromkeys(good, 1)
    with Redis.from_url(crawl.server.url) as client:
        letters = list(Crawls(client, "listed").dead_letters())
    assert sorted(letter.fields["url"] for letter in letters) == sorted(gone)
    classes = Counter(letter.fields["class"] for letter in letters)
    assert set(classes) <= {"download", "host_lost"}
    assert classes["host_lost"] > 10
    assert all(letter.replayable for letter in letters)


@timed
def test_the_time_of_answers_slows_the_fleet_as_a_whole(crawl: LabCrawl) -> None:
    """Answers that take 0.2 s, and one request under way on average: five a second, not five for each worker."""
    base = crawl.lab.base(0)
    autothrottle = ("AUTOTHROTTLE_ENABLED=1", "AUTOTHROTTLE_TARGET_CONCURRENCY=1")
    start(crawl, [f"{base}/slow/0.2?n={number}" for number in range(60)], *autothrottle, workers=3)
    wait_for_end(crawl, *crawl.workers)
    gaps = gaps_of(times_of(crawl.lab)[crawl.lab.spec.address(0)])[-25:]
    assert 0.17 < sum(gaps) / len(gaps) < 0.32


@timed
def test_a_byte_rate_holds_over_time(crawl: LabCrawl) -> None:
    base = crawl.lab.base(0)
    urls = [f"{base}/large/20000?n={number}" for number in range(300)]
    start(crawl, urls, 'CRAWLER_THROTTLE={"*": {"byte_rate": 2000000}}')
    wait_for_end(crawl, *crawl.workers)
    times = times_of(crawl.lab)[crawl.lab.spec.address(0)]
    assert times[-1] - times[0] > 0.75 * 300 * 20_000 / 2_000_000


@timed
def test_orders_hold_for_all_workers_within_a_second(crawl: LabCrawl) -> None:
    first, second = crawl.lab.spec.address(0), crawl.lab.spec.address(1)
    urls = [f"{crawl.lab.base(host)}/slow/0.2?n={number}" for number in range(400) for host in (0, 1)]
    start(crawl, urls, "CONCURRENT_REQUESTS=8", workers=2)
    crawl.wait_for_hits(40)
    host_command(crawl, "pause", "listed", first)
    paused_at = time.time()
    host_command(crawl, "slow", "listed", second, "5")
    slowed_at = time.time()
    wait_until(lambda: time.time() > slowed_at + 3, 10, "some time")
    shown = json.loads(host_command(crawl, "list", "listed", "--json"))
    assert {each["host"]: each["order"] for each in shown} == {first: "pause", second: "slow"}
    host_command(crawl, "block", "listed", first)
    host_command(crawl, "resume", "listed", second)
    wait_for_end(crawl, *crawl.workers)
    hits = crawl.lab.times()
    assert [hit for hit in hits if hit.host == first and hit.at > paused_at + 1] == []
    slowed = [hit for hit in hits if hit.host == second and slowed_at + 1 < hit.at < slowed_at + 3]
    assert 4 <= len(slowed) <= 11
    done = crawl.items()
    assert {url for url in urls if second in url} <= set(done)
    with Redis.from_url(crawl.server.url) as client:
        dead = [letter.fields for letter in Crawls(client, "listed").dead_letters(1000)]
    assert {letter["class"] for letter in dead} == {"host_refused"}
    assert {letter["url"] for letter in dead} | set(done) == set(urls)


@timed
def test_names_of_one_address_share_its_pace(crawl: LabCrawl) -> None:
    port = crawl.lab.port
    urls = [f"http://{name}:{port}/flat/{number}" for number in range(8) for name in ("localhost", "127.0.0.1")]
    start(crawl, urls, "CRAWLER_THROTTLE_SCOPE=ip", 'CRAWLER_THROTTLE={"*": {"rate": 5}}', workers=2)
    wait_for_end(crawl, *crawl.workers)
    times = times_of(crawl.lab)["127.0.0.1"]
    assert len(times) == 16
    assert min(gaps_of(times)) > 0.17


@timed
def test_a_redirect_to_another_host_waits_for_that_host_s_turn(crawl: LabCrawl) -> None:
    there = crawl.lab.spec.address(1)
    urls = [f"{crawl.lab.base(0)}/redirect/{code}/1" for code in (301, 302, 303, 307, 308)]
    start(crawl, urls, "CRAWLER_THROTTLE=" + json.dumps({there: {"rate": 5}}), workers=2)
    wait_for_end(crawl, *crawl.workers)
    times = times_of(crawl.lab)[there]
    assert min(gaps_of(times)) > 0.17


def test_no_more_pages_of_a_host_are_fetched_than_its_budget(crawl: LabCrawl) -> None:
    """Three workers follow the links of a site of hundreds of pages on three hosts, with 20 for each."""
    with Lab(LabSpec(pages=600, hosts=3)) as site:
        crawl.spider = "lab"
        for _ in range(3):
            crawl.start(['CRAWLER_THROTTLE={"*": {"budget": 20}}'], arguments={"url": site.url})
        wait_for_end(crawl, *crawl.workers)
        counts = Counter(hit.host for hit in site.times())
    assert counts == {f"127.0.0.{host}": 20 for host in (1, 2, 3)}
    assert crawl.counters()["over_budget"] > 0


def test_a_calendar_without_end_ends(crawl: LabCrawl) -> None:
    crawl.spider = "lab"
    for _ in range(2):
        crawl.start(["CRAWLER_TRAPS_DATES_MAX=40"], arguments={"url": f"{crawl.lab.base(0)}/calendar/2026/1"})
    wait_for_end(crawl, *crawl.workers)
    assert len(crawl.lab.times()) in {40, 41}, "the first is not a link"
