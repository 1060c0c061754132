"""Projects of scrapy-redis under our scheduler: their spiders, keys and settings, unchanged."""

import json
import re

import pytest

from tests.support.commands import Ended, Settings, UserProject, held, paths
from tests.support.lab import Lab

pytest_plugins = ("tests.support.lab_project",)

CLOSING = {"CRAWLER_CLOSE_ON_FINISH": True}
THEIRS = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "STATS_CLASS": "scrapy_redis.stats.RedisStatsCollector",
}


@pytest.mark.parametrize("spider", ["redis_lab", "said"])
@pytest.mark.parametrize("kind", ["list", "set", "zset"])
def test_spiders_take_start_urls_from_keys_of_every_kind(
    project: UserProject, lab: Lab, spider: str, kind: str
) -> None:
    key, urls = f"{project.crawl}:start_urls", [f"{lab.base(0)}/flat/{number}" for number in range(3)]
    settings: dict[str, object] = {**CLOSING, "CONCURRENT_REQUESTS": 1}
    if kind == "set":
        project.redis.sadd(key, *urls)
        settings["REDIS_START_URLS_AS_SET"] = True
    elif kind == "zset":
        project.redis.zadd(key, {url: number for number, url in enumerate(urls)})
        settings["REDIS_START_URLS_AS_ZSET"] = True
    else:
        project.push(*urls)
    ended = project.finish(spider, settings)
    asked = [hit.path for hit in lab.times()]
    if kind == "list":
        assert asked == ["/flat/0", "/flat/1", "/flat/2"]
    elif kind == "zset":
        assert asked == ["/flat/2", "/flat/1", "/flat/0"]
    assert project.ids() == ["flat/0", "flat/1", "flat/2"]
    assert not project.redis.exists(key)
    assert f"Reading start URLs from redis key '{key}'" in ended.log
    assert sum(int(count) for count in re.findall(f"Read (\\d+) requests from '{key}'", ended.log)) == 3


@pytest.mark.parametrize("spider", ["their_rules", "our_rules"])
def test_crawl_spiders_follow_their_rules_from_a_pushed_url(project: UserProject, lab: Lab, spider: str) -> None:
    project.push(f"{lab.base(0)}/links/3")
    project.finish(spider, CLOSING)
    assert project.ids() == ["leaf/0", "leaf/1", "leaf/2"]
    assert paths(lab) == {"/links/3": 1, "/leaf/0": 1, "/leaf/1": 1, "/leaf/2": 1}


def test_start_urls_of_a_redis_spider_are_fetched_once_by_two_workers(project: UserProject, lab: Lab) -> None:
    with held(lab):
        workers = project.workers(2, "with_start_urls", CLOSING, base=lab.base(0))
        project.push(f"{lab.base(0)}/flat/7")
    assert [worker.end().code for worker in workers] == [0, 0]
    assert paths(lab) == {"/flat/1": 1, "/flat/7": 1}


def test_the_operator_sees_seeds_under_a_key_of_another_name(project: UserProject, lab: Lab) -> None:
    project.push(f"{lab.base(0)}/flat/1", f"{lab.base(0)}/flat/2")
    for spider in ("redis_lab", "not_of_this_project"):
        assert project.trawlnet("status", spider, "--json").json()["unread"] == 2
    project.finish("redis_lab", CLOSING)
    status = project.trawlnet("status", "redis_lab", "--json").json()
    assert (status["unread"], status["done"]) == (0, 2)


def test_an_overridden_make_request_from_data_is_called_for_each_seed(project: UserProject, lab: Lab) -> None:
    project.push("2", "none", "error", "3")
    ended = project.finish("own_seeds", CLOSING, base=lab.base(0))
    assert project.ids() == ["leaf/0", "leaf/1", "leaf/2"]
    assert paths(lab) == {"/leaf/0": 1, "/leaf/1": 1, "/leaf/2": 1}
    (letter,) = project.letters()
    assert (letter["class"], letter["seed"]) == ("bad_seed", "error")
    assert "ValueError: a seed that this spider cannot read" in letter["reason"]
    assert "a seed that this spider cannot read" in ended.log


def test_a_spider_that_waits_closes_when_the_fleet_was_idle_for_its_limit(project: UserProject, lab: Lab) -> None:
    project.push(f"{lab.base(0)}/slow/4")
    ended = project.finish("said", {"MAX_IDLE_TIME_BEFORE_CLOSE": 2})
    # Counted from the end of the page, which alone took longer than the limit.
    assert project.ids() == ["slow/4"]
    seconds = float(ended.log.split("'elapsed_time_seconds': ")[1].split(",")[0])
    assert 6 <= seconds < 30
    assert project.status()["state"] == "finished"


def test_a_connection_that_decodes_is_the_spiders_own(project: UserProject, lab: Lab) -> None:
    project.push(lab.url)
    settings = {**CLOSING, "REDIS_DECODE_RESPONSES": True, "REDIS_PARAMS": '{"decode_responses": true}'}
    project.finish("redis_lab", settings)
    truth = lab.truth()["pages"]
    assert lab.hits() == dict.fromkeys(truth, 1)
    assert project.ids() == sorted(item["id"] for item in truth.values())


def test_their_scheduler_filter_and_stats_are_replaced_and_their_pipeline_stays(
    project: UserProject, lab: Lab, declared_keys: set[str]
) -> None:
    declared_keys.add("redis_lab:items")
    project.push(lab.url)
    pipelines = '{"scrapy_redis.pipelines.RedisPipeline": 300}'
    ended = project.finish("redis_lab", {**CLOSING, **THEIRS, "ITEM_PIPELINES": pipelines})
    said = [line for line in ended.log.splitlines() if "Trawlnet stands in for scrapy-redis" in line]
    assert len(said) == 1
    assert all(f"{name} = {path}" in said[0] for name, path in THEIRS.items())
    truth = lab.truth()["pages"]
    wanted = sorted(item["id"] for item in truth.values())
    assert sorted(json.loads(item)["id"] for item in project.redis.lrange("redis_lab:items", 0, -1)) == wanted
    assert project.ids() == wanted
    assert {"redis_lab:dupefilter", "redis_lab:requests", "redis_lab:stats"}.isdisjoint(
        key.decode() for key in project.redis.scan_iter()
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"SCHEDULER": "tests.support.foreign.OwnScheduler"}, "SCHEDULER is tests.support.foreign.OwnScheduler, but"),
        (
            {"CRAWLER_SEEN_KEPT": True},
            "CRAWLER_SEEN_KEPT is not a setting of Trawlnet; did you mean CRAWLER_SEEN_KEEP?",
        ),
        ({"CRAWLER_SEEN": "cuckoo"}, "CRAWLER_SEEN must be 'bloom' or 'exact', got 'cuckoo'"),
        ({"CRAWLER_FRONTIER_LEASE_SECONDS": "soon"}, "CRAWLER_FRONTIER_LEASE_SECONDS must be a number, got 'soon'"),
        ({"CRAWLER_STORAGE": "mongo:items"}, "CRAWLER_STORAGE is 'mongo:…', which names no backend"),
        ({"REDIS_URL": "http://localhost"}, "REDIS_URL must begin with redis://, rediss:// or unix://"),
        ({"REDIS_PARAMS": "socket_timeout=3"}, "REDIS_PARAMS must be a dict"),
        ({"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"}, "the frontier needs asyncio"),
    ],
)
def test_settings_that_cannot_work_stop_the_start_with_one_line(
    project: UserProject, lab: Lab, settings: Settings, words: str
) -> None:
    ended = project.run("lab", settings, url=lab.url)
    assert ended.code == 2
    assert one_complaint(ended, words)
    assert lab.hits() == {}
    assert project.keys() == []


def test_a_spider_s_own_reactor_stops_the_start_with_one_line(project: UserProject, lab: Lab) -> None:
    ended = project.run("select_reactor", url=lab.url)
    assert ended.code == 2
    assert one_complaint(ended, "and the frontier needs asyncio")
    assert project.keys() == []


def test_own_next_requests_is_an_error_and_takes_nothing(project: UserProject, lab: Lab) -> None:
    project.push(f"{lab.base(0)}/flat/1")
    ended = project.run("own_next", CLOSING)
    assert ended.code == 2
    assert one_complaint(ended, "spider 'own_next' overrides next_requests(), which is not called here")
    assert project.keys() == [f"{project.crawl}:start_urls"]
    assert lab.hits() == {}


def one_complaint(ended: Ended, words: str) -> bool:
    """Whether one line has the words, and nothing else complains."""
    lines = ended.log.splitlines()
    found = [line for line in lines if words in line and not line.startswith((" '", "{'"))]
    return len(found) == 1 and "Traceback" not in ended.log
