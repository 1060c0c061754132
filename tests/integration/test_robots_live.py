"""robots.txt of real crawls: asked once for the fleet, kept to by all, and waited for where it cannot be had."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from crawler.control.crawls import Crawls
from tests.support.crawling import let_pass, logs, wait_for_end, wait_with_logs
from tests.support.lab import Lab, LabSpec
from tests.support.lab.site import RobotsAnswer
from tests.support.labcrawl import LabCrawl, lab_crawl
from tests.support.pacing import gaps_of

HOSTS = 3
OBEY = "ROBOTSTXT_OBEY=True"
SINGLE = "CONCURRENT_REQUESTS=1"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=8, hosts=HOSTS)) as started:
        yield started


@pytest.fixture(scope="module")
def slow_lab() -> Iterator[Lab]:
    with Lab(LabSpec(pages=8, hosts=HOSTS, crawl_delay_seconds=1)) as started:
        yield started


@pytest.fixture
def crawl(lab: Lab, tmp_path: Path) -> Iterator[LabCrawl]:
    with lab_crawl(lab, tmp_path, "listed") as made:
        yield made


@pytest.fixture
def slow_crawl(slow_lab: Lab, tmp_path: Path) -> Iterator[LabCrawl]:
    with lab_crawl(slow_lab, tmp_path, "listed") as made:
        yield made


def start(crawl: LabCrawl, urls: list[str], *settings: str, workers: int = 1) -> None:
    plan = crawl.folder / "plan.json"
    plan.write_text(json.dumps(urls))
    for _ in range(workers):
        crawl.start([OBEY, *settings], arguments={"plan": str(plan)})


def finish(crawl: LabCrawl, urls: list[str], *settings: str, workers: int = 1) -> None:
    start(crawl, urls, *settings, workers=workers)
    wait_for_end(crawl, *crawl.workers)


def flat(crawl: LabCrawl, count: int, host: int = 0) -> list[str]:
    return [f"{crawl.lab.base(host)}/flat/{number}" for number in range(count)]


def robots_hits(crawl: LabCrawl) -> list[int]:
    """What was asked of each host's robots.txt."""
    hits = [hit.host for hit in crawl.lab.times() if hit.path == "/robots.txt"]
    return [hits.count(crawl.lab.spec.address(host)) for host in range(HOSTS)]


def pages_of(crawl: LabCrawl) -> list[float]:
    """When pages were asked for."""
    return [hit.at for hit in crawl.lab.times() if hit.path != "/robots.txt"]


def assert_each_once(crawl: LabCrawl, urls: list[str]) -> None:
    """Every page was fetched once, with nothing counted against it, and the spider was told of no failure."""
    assert crawl.items() == dict.fromkeys(urls, 1), logs(crawl)
    assert {url: count for url, count in crawl.lab.hits().items() if "/robots.txt" not in url} == dict.fromkeys(urls, 1)
    counters = crawl.counters()
    assert (counters["done"], counters.get("retried", 0), counters.get("dead", 0)) == (len(urls), 0, 0)
    assert counters.get("filtered", 0) == 0
    assert not any("the errback got" in crawl.log(number) for number in range(len(crawl.workers)))


@pytest.mark.alone
def test_a_fleet_asks_once_and_keeps_the_crawl_delay_from_the_first_request_on(slow_crawl: LabCrawl) -> None:
    urls = flat(slow_crawl, 12)
    finish(slow_crawl, urls, workers=3)
    assert robots_hits(slow_crawl) == [1, 0, 0]
    assert_each_once(slow_crawl, urls)
    gaps = gaps_of([hit.at for hit in slow_crawl.lab.times()])
    assert min(gaps) > 0.95
    assert sum(gaps) / len(gaps) == pytest.approx(1, rel=0.15)


@pytest.mark.alone
def test_a_crawl_delay_slows_what_a_rule_would_let_through(slow_crawl: LabCrawl) -> None:
    urls = flat(slow_crawl, 6)
    rule = 'CRAWLER_THROTTLE={"*": {"rate": 20, "burst": 10}}'
    finish(slow_crawl, urls, rule, "CRAWLER_ROBOTS_DELAY_MAX_SECONDS=0.6", workers=2)
    assert robots_hits(slow_crawl) == [1, 0, 0]
    assert_each_once(slow_crawl, urls)
    gaps = gaps_of([hit.at for hit in slow_crawl.lab.times()])
    assert min(gaps) > 0.57
    assert sum(gaps) / len(gaps) == pytest.approx(0.6, rel=0.2)


def test_a_later_crawl_still_knows_it(slow_crawl: LabCrawl) -> None:
    finish(slow_crawl, flat(slow_crawl, 1))
    urls = flat(slow_crawl, 2)[1:]
    finish(slow_crawl, urls)
    assert robots_hits(slow_crawl) == [1, 0, 0]


def test_it_is_asked_again_when_its_lifetime_is_over(crawl: LabCrawl) -> None:
    urls = [f"{crawl.lab.base(0)}/slow/0.1?n={number}" for number in range(30)]
    finish(crawl, urls, "CRAWLER_ROBOTS_LIFETIME_SECONDS=1", SINGLE, workers=2)
    assert robots_hits(crawl)[0] in {2, 3, 4}
    assert_each_once(crawl, urls)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_nothing_is_asked_of_a_host_before_its_robots_txt_can_be_had(crawl: LabCrawl, status: int) -> None:
    refusal: RobotsAnswer = {"status": status}
    crawl.lab.plan_robots({0: [refusal, refusal, {}]})
    urls = flat(crawl, 5) + flat(crawl, 20, host=1)
    finish(crawl, urls, workers=2)
    assert robots_hits(crawl) == [3, 1, 0]
    assert_each_once(crawl, urls)
    hits = [hit for hit in crawl.lab.times() if hit.host == crawl.lab.spec.address(0)]
    assert [(hit.path, hit.status) for hit in hits[:3]] == [("/robots.txt", status)] * 2 + [("/robots.txt", 200)]
    asked = [hit.at for hit in hits[:3]]
    assert gaps_of(asked)[0] > 0.99
    assert gaps_of(asked)[1] > 1.99


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_where_there_is_none_all_is_allowed(crawl: LabCrawl, status: int) -> None:
    crawl.lab.plan_robots({0: [{"status": status}]})
    urls = [*flat(crawl, 3), f"{crawl.lab.base(0)}/private/1"]
    finish(crawl, urls)
    assert robots_hits(crawl) == [1, 0, 0]
    assert_each_once(crawl, urls)


def hops(crawl: LabCrawl, count: int) -> dict[int, list[RobotsAnswer]]:
    """Redirects of the first host: so many in a row, the last one to the second host's robots.txt."""
    own: RobotsAnswer = {"location": f"{crawl.lab.base(0)}/robots.txt"}
    return {0: [own] * (count - 1) + [{"location": f"{crawl.lab.base(1)}/robots.txt"}]}


@pytest.mark.parametrize(("count", "hits"), [(1, [1, 1, 0]), (5, [5, 1, 0]), (6, [6, 0, 0])])
def test_five_redirects_are_followed_whatever_pages_may(crawl: LabCrawl, count: int, hits: list[int]) -> None:
    """What is found on another host holds for the one that was asked, and after more all is allowed."""
    crawl.lab.plan_robots(hops(crawl, count))
    allowed, private = flat(crawl, 2), f"{crawl.lab.base(0)}/private/1"
    finish(crawl, [*allowed, private], "REDIRECT_MAX_TIMES=1")
    assert robots_hits(crawl) == hits
    assert set(crawl.items()) == {*allowed, private} if count > 5 else set(allowed)
    assert (private in crawl.lab.hits()) == (count > 5)


def test_only_the_first_500_kib_are_read(crawl: LabCrawl) -> None:
    crawl.lab.plan_robots({0: [{"comment_bytes": 10_000_000}], 1: [{"comment_bytes": 500_000}]})
    urls = [f"{crawl.lab.base(host)}/private/1" for host in (0, 1)]
    finish(crawl, urls, "DOWNLOAD_MAXSIZE=5000000")
    assert set(crawl.items()) == set(urls[:1])


def test_an_older_one_counts_while_a_new_one_cannot_be_had(crawl: LabCrawl) -> None:
    crawl.lab.plan_robots({0: [{}, {"status": 500}]})
    base = crawl.lab.base(0)
    urls = [f"{base}/slow/0.1?n={number}" for number in range(30)]
    finish(crawl, [*urls, f"{base}/private/1"], "CRAWLER_ROBOTS_LIFETIME_SECONDS=1", SINGLE)
    assert robots_hits(crawl)[0] >= 2
    assert crawl.items() == dict.fromkeys(urls, 1)
    assert f"{base}/private/1" not in crawl.lab.hits()


def test_pages_of_a_host_that_nobody_reaches_are_dead_letters_in_the_end(crawl: LabCrawl) -> None:
    urls = [f"http://127.0.0.1:1/{number}" for number in range(20)]
    others = flat(crawl, 10, host=1)
    finish(crawl, urls + others, "CRAWLER_ROBOTS_UNREACHABLE_MAX_SECONDS=2", workers=2)
    with Redis.from_url(crawl.server.url) as client:
        letters = [letter.fields for letter in Crawls(client, crawl.spider).dead_letters()]
    assert {(letter["class"], letter["url"]) for letter in letters} == {("robots_unreachable", url) for url in urls}
    assert all("robots.txt cannot be had (" in letter["reason"] for letter in letters)
    assert crawl.items() == dict.fromkeys(others, 1)
    assert crawl.counters().get("retried", 0) == 0
    told = sum(crawl.log(number).count("the errback got") for number in range(2))
    assert told == len(urls)


def test_a_redirect_to_a_host_that_is_not_to_be_asked_now_waits_there(crawl: LabCrawl) -> None:
    crawl.lab.plan_robots({1: [{"status": 500}, {}]})
    urls = [f"{crawl.lab.base(0)}/redirect/{code}/1" for code in (301, 302)]
    finish(crawl, urls)
    hits = [hit for hit in crawl.lab.times() if hit.host == crawl.lab.spec.address(0) and hit.path != "/robots.txt"]
    assert len(hits) == len(urls)
    assert robots_hits(crawl) == [1, 2, 0]
    assert len(crawl.items()) == len(urls)
    assert "the errback got" not in crawl.log(0)


def test_a_killed_worker_s_fetch_is_taken_over(crawl: LabCrawl) -> None:
    crawl.lab.plan_robots({0: [{"delay_seconds": 15}, {}]})
    urls = flat(crawl, 40)
    settings = ("DOWNLOAD_TIMEOUT=60", "CONCURRENT_REQUESTS=4")
    start(crawl, urls, *settings)
    crawl.wait_for_hits(1)
    held = crawl.counters()["in_flight"]
    start(crawl, urls, *settings)
    wait_with_logs(crawl, lambda: crawl.counters()["in_flight"] >= held + 4, "the second worker's pages", 60)
    # The first one is slow, and not dead: nobody takes its fetch over.
    let_pass(4)
    assert robots_hits(crawl) == [1, 0, 0]
    crawl.workers[0].send_signal(signal.SIGKILL)
    wait_for_end(crawl, crawl.workers[1])
    assert robots_hits(crawl) == [2, 0, 0]
    asked, again = (hit.at for hit in crawl.lab.times() if hit.path == "/robots.txt")
    assert again - asked < 45, "before it times out"
    assert_each_once(crawl, urls)


def test_a_worker_that_is_stopped_while_it_waits_hands_its_pages_back(crawl: LabCrawl) -> None:
    crawl.lab.plan_robots({0: [{"delay_seconds": 8}, {}]})
    urls = flat(crawl, 10)
    start(crawl, urls, "CONCURRENT_REQUESTS=4", workers=2)
    crawl.wait_for_hits(1)
    wait_with_logs(crawl, lambda: crawl.counters()["in_flight"] >= 8, "both workers to hold pages", 60)
    for worker in crawl.workers:
        worker.send_signal(signal.SIGTERM)
    wait_for_end(crawl, *crawl.workers)
    assert "the errback got" not in crawl.log(0) + crawl.log(1)
    assert crawl.counters()["in_flight"] == 0
    start(crawl, urls)
    wait_for_end(crawl, crawl.workers[2])
    assert_each_once(crawl, urls)


def test_what_is_no_page_is_refused_with_the_reason(crawl: LabCrawl) -> None:
    crawl.lab.plan_robots({1: [{"status": 500}]})
    crawl.spider = "inline"
    inner = f"{crawl.lab.base(1)}/leaf/5"
    crawl.start([OBEY], arguments={"base": crawl.lab.base(0), "inner": inner})
    wait_for_end(crawl, *crawl.workers)
    reason = f"{crawl.lab.base(1)}/robots.txt cannot be had (status 500), so that nothing may be asked there now"
    assert reason in crawl.log(0)
    assert robots_hits(crawl) == [1, 1, 0]
    assert inner not in crawl.lab.hits()


def test_scrapy_s_own_counts_are_those_of_who_asked(crawl: LabCrawl) -> None:
    finish(crawl, [*flat(crawl, 2), f"{crawl.lab.base(0)}/private/1"])
    for count in ("request_count", "response_count", "response_status_count/200", "forbidden"):
        assert f"'robotstxt/{count}': 1" in crawl.log(0)
    assert crawl.counters()["filtered"] == 1


SCRAPY_S = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
OURS = "crawler.components.robots.FleetRobotsMiddleware"
OWN = "tests.support.foreign.OwnRobots"


@pytest.mark.parametrize(
    ("given", "active"), [({SCRAPY_S: 120}, OURS), ({SCRAPY_S: None}, ""), ({SCRAPY_S: None, OWN: 100}, OWN)]
)
def test_only_scrapy_s_own_middleware_is_replaced(crawl: LabCrawl, given: dict[str, int | None], active: str) -> None:
    finish(crawl, flat(crawl, 1), f"DOWNLOADER_MIDDLEWARES={json.dumps(given)}")
    enabled = crawl.log(0).split("Enabled downloader middlewares:")[1].split("Enabled spider middlewares:")[0]
    assert [path for path in (OURS, SCRAPY_S, OWN) if path in enabled] == ([active] if active else [])
    assert robots_hits(crawl) == [bool(active), 0, 0]
