"""Seeds on their way through a running worker: what becomes of good ones and of bad ones."""

import json
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider

from crawler.components.codec import RequestCodec
from crawler.frontier.identity import digest
from crawler.frontier.plan import Put
from tests.support.commands import UserProject, paths
from tests.support.frontier import FleetOnServer, page
from tests.support.lab import Lab
from tests.support.waiting import wait_until

pytest_plugins = ("tests.support.lab_project", "tests.support.fleet")

CLOSING = {"CRAWLER_CLOSE_ON_FINISH": True}


class TouchesWhenLoaded:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (self._file,))  # type: ignore[return-value]


class EarlierSpider(Spider):
    """The spider as it was deployed before."""

    name = "lab"

    def parse(self, response: Any) -> None:
        raise NotImplementedError

    def parse_gone(self, response: Any) -> None:
        raise NotImplementedError


@pytest.fixture
def trap(tmp_path: Path) -> tuple[bytes, Path]:
    """A pickle that makes a file, and the file."""
    file = tmp_path / "made-by-a-pickle"
    return pickle.dumps(TouchesWhenLoaded(file)), file


def seed(url: str, **more: object) -> str:
    return json.dumps({"url": url, **more})


def test_bad_seeds_become_dead_letters_and_the_rest_go_on(project: UserProject, lab: Lab) -> None:
    base = lab.base(0)
    good = [f"{base}/flat/{number}" for number in range(10)]
    bad = [
        "www.example.com/x",
        "{not json",
        seed(f"{base}/flat/20", priority="high"),
        seed(f"{base}/flat/21", callback="parse_gone"),
        json.dumps({"method": "GET"}),
        "",
    ]
    project.push(*good[:5], *bad, b"\xff\xfe", *good[5:])
    ended = project.finish("said", CLOSING)
    assert paths(lab) == {f"/flat/{number}": 1 for number in range(10)}
    letters = project.letters()
    assert [letter["class"] for letter in letters] == ["bad_seed"] * 7
    assert [letter["seed"] for letter in letters][:6] == bad
    assert "www.example.com/x" in letters[0]["reason"]
    assert "priority" in letters[2]["reason"]
    assert "parse_gone" in letters[3]["reason"]
    assert "Traceback" not in ended.log


def test_numbers_nulls_and_flags_in_json_seeds_are_taken(project: UserProject, lab: Lab) -> None:
    base = lab.base(0)
    project.push(*(f"{base}/flat/{number}" for number in range(5)))
    project.push(seed(f"{base}/echo?typed", priority=5, meta=None, cookies=None, dont_filter=True))
    project.push(*(f"{base}/flat/{number}" for number in range(5, 10)))
    project.finish("said", CLOSING)
    assert len(lab.hits()) == 11
    (said,) = [item for item in project.items() if "said" in item]
    assert said["priority"] == 5
    assert project.letters() == []


def test_unknown_keys_of_a_json_seed_stay_out_of_its_url(project: UserProject, lab: Lab) -> None:
    project.push(seed(f"{lab.base(0)}/echo", original_author="x"))
    ended = project.finish("said", CLOSING)
    (item,) = project.items()
    assert (item["said"]["method"], item["said"]["path"], item["said"]["body"]) == ("GET", "/echo", "")
    assert item["meta"] == {"original_author": "x"}
    assert "Seeds have unknown keys: original_author" in ended.log


def test_unknown_keys_are_form_data_again_where_the_setting_says_so(project: UserProject, lab: Lab) -> None:
    project.push(seed(f"{lab.base(0)}/echo", original_author="x"))
    project.finish("said", {**CLOSING, "CRAWLER_SEEDS_FORM": True})
    (item,) = project.items()
    assert item["said"]["path"] == "/echo?original_author=x"


def test_cookies_headers_and_body_of_a_json_seed_reach_the_server(project: UserProject, lab: Lab) -> None:
    url = f"{lab.base(0)}/echo"
    project.push(seed(url, cookies={"a": "b"}, headers={"X-A": "1"}))
    project.push(seed(f"{url}?form", form={"x": 1, "y": ["2", "3"]}), seed(f"{url}?json", json={"z": None}))
    project.finish("said", CLOSING)
    said = {item["id"]: item["said"] for item in project.items()}
    assert (said["/echo"]["cookies"], said["/echo"]["headers"]["x-a"]) == ({"a": "b"}, "1")
    assert (said["/echo?form"]["method"], said["/echo?form"]["body"]) == ("POST", "x=1&y=2&y=3")
    assert (said["/echo?json"]["method"], said["/echo?json"]["body"]) == ("POST", '{"z": null}')


def test_a_seed_is_fetched_again_when_it_is_pushed_again_and_once_when_it_is_linked(
    project: UserProject, lab: Lab
) -> None:
    base = lab.base(0)
    project.push(f"{base}/leaf/0", f"{base}/links/2", f"{base}/leaf/0")
    project.finish("their_rules", CLOSING)
    assert paths(lab) == {"/leaf/0": 2, "/links/2": 1, "/leaf/1": 1}


def test_a_waiting_worker_fetches_a_pushed_url_within_half_a_second(project: UserProject, lab: Lab) -> None:
    worker = project.worker("said", {"CRAWLER_STORAGE": ""})
    wait_until(lambda: project.status()["workers"], 60, "the worker in the roster")
    late = []
    for number in range(5):
        url = f"{lab.base(0)}/flat/{number}"
        pushed = time.time()
        project.push(url)
        wait_until(lambda url=url: url in lab.hits(), 30, f"a hit of {url}")  # type: ignore[misc]
        late.append(next(hit.at for hit in lab.times() if hit.path == f"/flat/{number}") - pushed)
    assert sorted(late)[2] < 0.5, late
    worker.process.terminate()
    assert worker.end().code == 0


def test_a_pickle_among_the_seeds_is_a_dead_letter_and_runs_nothing(
    project: UserProject, lab: Lab, trap: tuple[bytes, Path]
) -> None:
    code, made = trap
    project.push(code, f"{lab.base(0)}/flat/1")
    project.finish("said", CLOSING)
    assert project.ids() == ["flat/1"]
    (letter,) = project.letters()
    assert letter["class"] == "bad_seed"
    assert not made.exists()


def test_a_pickle_in_a_queue_is_a_dead_letter_and_runs_nothing(
    project: UserProject, fleet: FleetOnServer, lab: Lab, trap: tuple[bytes, Path]
) -> None:
    code, made = trap
    project.push(f"{lab.base(0)}/flat/1")
    worker = fleet.member("other")
    worker.open(identity={})
    entry = page(f"{lab.base(0)}/flat/2")
    worker.put(type(entry)(entry.host, entry.band, entry.seen, b"", code))
    worker.leave()
    project.finish("said", {**CLOSING, "CRAWLER_SEEN": "exact"})
    assert project.ids() == ["flat/1"]
    (letter,) = project.letters()
    assert letter["class"] == "wire"
    assert not made.exists()


def test_a_pickle_in_the_queue_of_scrapy_redis_stops_the_start_and_runs_nothing(
    project: UserProject, lab: Lab, declared_keys: set[str], trap: tuple[bytes, Path]
) -> None:
    code, made = trap
    declared_keys.add("said:requests")
    project.redis.zadd("said:requests", {code: 0})
    project.push(f"{lab.base(0)}/flat/1")
    ended = project.run("said", CLOSING)
    assert ended.code == 2
    assert "'said:requests' (zset) is a request queue of scrapy-redis, whose pickles are never read here" in ended.log
    assert project.redis.zrange("said:requests", 0, -1) == [code]
    assert not made.exists()
    assert lab.hits() == {}


def test_a_list_in_the_queue_of_scrapy_redis_stops_the_start_and_stays(
    project: UserProject, lab: Lab, declared_keys: set[str]
) -> None:
    declared_keys.add("said:requests")
    project.redis.rpush("said:requests", "one", "two")
    project.push(f"{lab.base(0)}/flat/1")
    ended = project.run("said", CLOSING)
    assert ended.code == 2
    assert "'said:requests' (list) is a request queue of scrapy-redis" in ended.log
    assert "Traceback" not in ended.log
    assert project.redis.lrange("said:requests", 0, -1) == [b"one", b"two"]
    assert project.redis.llen(f"{project.crawl}:start_urls") == 1
    assert lab.hits() == {}


def test_entries_of_a_callback_that_is_gone_are_dead_letters_and_stall_nobody(
    project: UserProject, fleet: FleetOnServer, lab: Lab
) -> None:
    earlier = EarlierSpider()
    codec = RequestCodec(earlier)
    host = "127.0.0.1"
    worker = fleet.member("other")
    worker.open(identity={})
    for number in range(5):
        gone, good = f"{lab.base(0)}/flat/{number}", f"{lab.base(0)}/leaf/{number}"
        for url, callback in ((gone, earlier.parse_gone), (good, earlier.parse)):
            request = Request(url, callback=callback)
            worker.put(Put(host, 0, digest(url.encode()), b"", codec.encode(request)))
    worker.leave()
    project.finish("lab", {"CRAWLER_SEEN": "exact"})
    assert project.ids() == [f"leaf/{number}" for number in range(5)]
    assert [letter["class"] for letter in project.letters()] == ["unknown_callback"] * 5
    assert {letter["url"] for letter in project.letters()} == {f"{lab.base(0)}/flat/{number}" for number in range(5)}
    assert all("'parse_gone'" in letter["reason"] for letter in project.letters())
    hits = [hit.at for hit in lab.times()]
    assert max(hits) - min(hits) < 1
