"""The throttle as the only part of Trawlnet in a project: what hosts see, in memory and through Redis."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from crawler.redisdb.embedded import EmbeddedServer
from tests.support.commands import Running, UserProject
from tests.support.lab import Lab
from tests.support.pacing import excess_of, gaps_of, times_of
from tests.support.waiting import wait_until

pytest_plugins = ("tests.support.lab_project",)

timed = pytest.mark.alone
"""What hosts see is timed; tests beside these would make the crawl late on its way."""

START_SECONDS = 60.0
HTTPX = "scrapy.core.downloader.handlers._httpx.HttpxDownloadHandler"

Start = Callable[..., Running]


@pytest.fixture(params=["memory", "redis"])
def start(request: pytest.FixtureRequest, project: UserProject) -> Start:
    """Starts a crawl with settings and arguments, with turns in memory or in Redis."""
    return starter(project, shared(project) if request.param == "redis" else {})


def shared(project: UserProject) -> dict[str, object]:
    """Settings under which processes share their turns."""
    return {"REDIS_URL": project.redis_url, "CRAWLER_CRAWL": project.crawl}


def starter(project: UserProject, always: dict[str, object]) -> Start:
    project.module = "tests.support.throttle_settings"

    def start(spider: str, given: dict[str, object], **arguments: str) -> Running:
        words = [word for name, value in arguments.items() for word in ("-a", f"{name}={value}")]
        settings = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in given.items()}
        return project.start("scrapy", "crawl", spider, *words, given={**always, **settings})

    return start


def planned(project: UserProject, lab: Lab, pages: list[int]) -> str:
    """A plan of the spider ``paced``: the first host is asked for the first number of pages, and so on."""
    plan = project.folder / "plan.json"
    plan.write_text(json.dumps({lab.base(host): count for host, count in enumerate(pages)}))
    return str(plan)


def listed(project: UserProject, urls: list[str]) -> str:
    """A plan of the spider ``listed``."""
    plan = project.folder / "plan.json"
    plan.write_text(json.dumps(urls))
    return str(plan)


def finish(*running: Running, code: int = 0) -> str:
    """Waits for the end; the log of the first, which shows nothing that was left undone."""
    ended = [one.end() for one in running]
    assert [one.code for one in ended] == [code] * len(ended), ended[0].log[-6000:]
    for one in ended:
        for sign in ("Traceback", "was destroyed", "never retrieved", "never awaited"):
            assert sign not in one.log, one.log[-6000:]
    return ended[0].log


@timed
def test_a_download_delay_is_a_rule_that_others_replace(start: Start, project: UserProject, lab: Lab) -> None:
    """Scrapy's own delay would hold up the second host too."""
    given: dict[str, object] = {"DOWNLOAD_DELAY": 0.3, "DOWNLOAD_DELAY_JITTER": 0, "RANDOMIZE_DOWNLOAD_DELAY": 0}
    given |= {"CRAWLER_THROTTLE": {"127.0.0.2": 0}}
    finish(start("paced", given, plan=planned(project, lab, [12, 12])))
    times = times_of(lab)
    gaps = gaps_of(times["127.0.0.1"])
    assert len(gaps) == 11
    assert sum(gaps_of(times["127.0.0.2"])) < 1
    assert min(gaps) > 0.27
    assert sum(gaps) / len(gaps) == pytest.approx(0.3 * 1.045, rel=0.1)


@timed
def test_hosts_that_wait_hold_up_no_others(start: Start, project: UserProject, lab: Lab) -> None:
    """Two requests at a time, three slow hosts with many requests, and a fast one behind them."""
    rules = {"*": {"rate": 5, "burst": 2}, "127.0.0.4": 0}
    given = {"CRAWLER_THROTTLE": rules, "CONCURRENT_REQUESTS": 2}
    finish(start("paced", given, plan=planned(project, lab, [15, 15, 15, 60])))
    times = times_of(lab)
    assert [len(times[f"127.0.0.{host}"]) for host in (1, 2, 3, 4)] == [15, 15, 15, 60]
    assert times["127.0.0.4"][-1] - times["127.0.0.4"][0] < 1
    for host in (1, 2, 3):
        assert excess_of(times[f"127.0.0.{host}"], 5, 2) <= 0
        assert times[f"127.0.0.{host}"][-1] - times["127.0.0.4"][-1] > 0.5


@timed
def test_a_host_with_more_requests_than_may_wait_holds_up_no_others(project: UserProject, lab: Lab) -> None:
    """Scrapy's default queue takes of the host that has the fewest under way; those that wait count among them."""
    given = {"CRAWLER_THROTTLE": {"127.0.0.1": 1}, "CONCURRENT_REQUESTS": 2}
    slow, fast = ([f"{lab.base(host)}/slow/0.05?n={number}" for number in range(n)] for host, n in ((0, 3000), (1, 60)))
    plan = listed(project, slow + fast)
    running = starter(project, {})("linked", given, plan=plan, url=f"{lab.base(2)}/leaf/1")
    wait_until(lambda: len(times_of(lab).get("127.0.0.2", [])) == 60, START_SECONDS, "the fast host's pages")
    assert len(times_of(lab)["127.0.0.1"]) < 10
    running.process.send_signal(signal.SIGINT)
    finish(running)


@timed
def test_processes_share_a_host_s_pace_through_redis(project: UserProject, lab: Lab) -> None:
    start = starter(project, shared(project))
    given = {"CRAWLER_THROTTLE": {"*": {"rate": 8, "burst": 3}}}
    plan = planned(project, lab, [12, 12])
    finish(*(start("paced", given, plan=plan) for _ in range(3)))
    times = times_of(lab)
    assert [len(times[host]) for host in ("127.0.0.1", "127.0.0.2")] == [36, 36]
    assert max(excess_of(hits, 8, 3) for hits in times.values()) <= 0
    kept = [key.rpartition("}:")[2] for key in project.keys()]  # noqa: SIM118 - it is no mapping
    assert set(kept) - {"host:127.0.0.1", "host:127.0.0.2"} == {"limits", "state"}


@timed
def test_what_waits_for_a_place_of_its_slot_is_sent_in_its_turn(start: Start, project: UserProject, lab: Lab) -> None:
    """Answers take so long that the two places are full; they are given two at a time."""
    urls = [f"{lab.base(0)}/slow/0.6?n={number}" for number in range(10)]
    given = {"CRAWLER_THROTTLE": {"*": 5}, "CONCURRENT_REQUESTS_PER_DOMAIN": 2}
    finish(start("listed", given, plan=listed(project, urls)))
    times = times_of(lab)["127.0.0.1"]
    assert len(times) == 10
    assert min(gaps_of(times)) > 0.17
    assert times[-1] - times[0] < 9 * 0.6


@timed
def test_all_that_is_downloaded_waits_for_its_turn(start: Start, project: UserProject, lab: Lab) -> None:
    """robots.txt, the files of an item, requests inside a callback; a page keeps its place while it waits for those."""
    rules = {"CRAWLER_THROTTLE": {"*": 5}, "CONCURRENT_REQUESTS": 1}
    files = " ".join(f"{lab.base(0)}/leaf/{number}" for number in range(5))
    pipeline = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}, "FILES_STORE": project.folder / "files"}
    given = {**rules, **pipeline, "ROBOTSTXT_OBEY": True}
    finish(start("files", given, url=f"{lab.base(0)}/leaf/9", files=files))
    assert len(list(Path(project.folder / "files").rglob("full/*"))) == 5
    finish(start("inline", rules, base=lab.base(1), inner="/leaf/3"))
    times = times_of(lab)
    assert [len(times[host]) for host in ("127.0.0.1", "127.0.0.2")] == [7, 3]
    assert min(gaps_of(times["127.0.0.1"]) + gaps_of(times["127.0.0.2"])) > 0.17


@timed
def test_a_redirect_takes_the_turn_of_the_host_that_it_leads_to(start: Start, project: UserProject, lab: Lab) -> None:
    """Scrapy itself counts it for the host that it came from."""
    urls = [f"{lab.base(0)}/redirect/302/1?n={number}" for number in range(8)]
    given = {"CRAWLER_THROTTLE": {"127.0.0.2": 5}, "DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter"}
    finish(start("listed", given, plan=listed(project, urls)))
    times = times_of(lab)
    assert [len(times[host]) for host in ("127.0.0.1", "127.0.0.2")] == [8, 8]
    assert min(gaps_of(times["127.0.0.2"])) > 0.17
    assert times["127.0.0.1"][-1] - times["127.0.0.1"][0] < 0.5


@timed
def test_a_host_that_asks_for_patience_is_left_alone_for_its_time(start: Start, project: UserProject, lab: Lab) -> None:
    first, second = lab.base(0), lab.base(1)
    urls = [f"{base}/slow/0.05?n={number}" for number in range(100) for base in (first, second)]
    urls.insert(100, f"{first}/flaky/1?status=429&retry_after=2")
    finish(start("listed", {"CONCURRENT_REQUESTS_PER_DOMAIN": 2}, plan=listed(project, urls)))
    hits = [hit for hit in lab.times() if hit.host == "127.0.0.1"]
    refused_at = next(hit.at for hit in hits if hit.status == 429)
    assert len(hits) == 102
    assert not any(refused_at + 0.02 < hit.at < refused_at + 2 for hit in hits)
    assert len([at for at in times_of(lab)["127.0.0.2"] if refused_at < at < refused_at + 2]) > 15


@pytest.mark.parametrize("waits", ["for its turn", "for a place"])
def test_what_waits_when_the_spider_closes_stays_in_the_scheduler(
    start: Start, project: UserProject, lab: Lab, waits: str
) -> None:
    urls, page = [f"{lab.base(0)}/leaf/{number}" for number in range(30)], f"{lab.base(1)}/leaf/1"
    plan, jobs = listed(project, urls), {"JOBDIR": project.folder / "jobs"}
    slow = {"CRAWLER_THROTTLE": {"*": {"rate": 0.2, "burst": 4}}}
    places = {"CONCURRENT_REQUESTS_PER_DOMAIN": 50 if waits == "for its turn" else 1}
    running = start("linked", {**jobs, **slow, **places}, plan=plan, url=page)
    wait_until(lambda: lab.stats()["hits"] == 4, START_SECONDS, "the burst")
    running.process.send_signal(signal.SIGINT)
    log = finish(running)
    assert "Closing spider (shutdown)" in log
    finish(start("linked", {**jobs, "CRAWLER_THROTTLE": {"*": {"rate": 100, "burst": 100}}}, plan=plan, url=page))
    assert lab.hits() == dict.fromkeys([page, *urls], 1)


def test_a_spider_closes_while_redis_is_away(project: UserProject, lab: Lab, tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "away") as server:
        start = starter(project, {"REDIS_URL": server.url, "CRAWLER_CRAWL": project.crawl})
        running = start("paced", {"CRAWLER_THROTTLE": {"*": 2}}, plan=planned(project, lab, [50, 50]))
        wait_until(lambda: lab.stats()["hits"] > 2, START_SECONDS, "some hits")
        server.kill()
        wait_until(lambda: "does not take batches" in running.log(), START_SECONDS, "the failure")
        running.process.send_signal(signal.SIGINT)
        assert "Spider closed (shutdown)" in finish(running)


def test_files_of_a_page_under_way_are_still_fetched_when_the_spider_closes(
    start: Start, project: UserProject, lab: Lab
) -> None:
    files = " ".join(f"{lab.base(0)}/leaf/{number}" for number in range(4))
    given = {
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "FILES_STORE": project.folder / "files",
        "CRAWLER_THROTTLE": {"*": 2},
    }
    running = start("files", given, url=f"{lab.base(0)}/leaf/9", files=files)
    wait_until(lambda: lab.stats()["hits"] == 2, START_SECONDS, "the first file")
    running.process.send_signal(signal.SIGINT)
    finish(running)
    assert len(list(Path(project.folder / "files").rglob("full/*"))) == 4


def test_it_works_without_a_reactor(start: Start, project: UserProject, lab: Lab) -> None:
    pytest.importorskip(HTTPX.rpartition(".")[0], reason="this Scrapy cannot run without a reactor")
    handlers = {"http": HTTPX, "https": HTTPX}
    given = {"TWISTED_REACTOR_ENABLED": False, "DOWNLOAD_HANDLERS": handlers, "CRAWLER_THROTTLE": {"*": 10}}
    finish(start("paced", given, plan=planned(project, lab, [5, 5])))
    assert {host: len(times) for host, times in times_of(lab).items()} == {"127.0.0.1": 5, "127.0.0.2": 5}


def test_in_a_fleet_it_does_nothing_and_says_so(project: UserProject, lab: Lab) -> None:
    given = {"DOWNLOADER_MIDDLEWARES": '{"crawler.components.throttle.ThrottleMiddleware": 950}'}
    ended = project.finish("inline", given, base=lab.base(0), inner="/leaf/3")
    assert "the frontier keeps the pace of all hosts; remove it from DOWNLOADER_MIDDLEWARES" in ended.log


def test_a_wrong_rule_and_a_missing_redis_end_the_start_with_one_line(project: UserProject, lab: Lab) -> None:
    start, plan = starter(project, {}), planned(project, lab, [1])
    log = finish(start("paced", {"CRAWLER_THROTTLE": {"a.com": "quick"}}, plan=plan), code=2)
    assert "CRAWLER_THROTTLE['a.com'] has the rate 'quick'; it must be a number" in log
    away = {"REDIS_URL": "redis://127.0.0.1:1/0", "CRAWLER_REDIS_WAIT_SECONDS": 0}
    log = finish(start("paced", away, plan=plan), code=3)
    assert "Redis at 127.0.0.1:1/0 cannot be used after 0 s" in log
    assert lab.hits() == {}
