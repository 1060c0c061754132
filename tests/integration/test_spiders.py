"""Spiders of every kind on the shared frontier: how they start, what their requests hold, and when they are idle."""

import ast
from collections import Counter
from datetime import date

import pytest
import scrapy

from tests.support.commands import UserProject, held, paths
from tests.support.lab import Lab

pytest_plugins = ("tests.support.lab_project",)

calls_old_start = scrapy.version_info[:2] < (2, 16)


# Starting.


@pytest.mark.skipif(calls_old_start, reason="this Scrapy calls start_requests()")
def test_own_start_requests_that_scrapy_no_longer_calls_is_an_error(project: UserProject, lab: Lab) -> None:
    ended = project.run("old_start", base=lab.base(0))
    assert ended.code == 2
    assert "spider 'old_start' overrides start_requests(), which Scrapy" in ended.log
    assert "rename it to 'async def start(self)'" in ended.log
    assert "Traceback" not in ended.log
    assert lab.hits() == {}
    assert project.keys() == []


@pytest.mark.skipif(not calls_old_start, reason="this Scrapy does not call start_requests()")
def test_own_start_requests_work_where_scrapy_calls_them(project: UserProject, lab: Lab) -> None:
    project.finish("old_start", base=lab.base(0))
    assert project.ids() == ["leaf/1"]


def test_a_spider_with_both_kinds_of_start_begins_the_new_way(project: UserProject, lab: Lab) -> None:
    project.finish("both_starts", base=lab.base(0))
    assert paths(lab) == {"/leaf/1": 1}


def test_start_urls_are_fetched_once_by_two_workers(project: UserProject, lab: Lab) -> None:
    with held(lab):
        workers = project.workers(2, "two_start_urls", base=lab.base(0))
    assert [worker.end().code for worker in workers] == [0, 0]
    # The first links to the second, which is no new page then.
    assert paths(lab) == {"/links/2": 1, "/leaf/0": 1, "/leaf/1": 1}
    assert project.ids() == ["leaf/0", "leaf/1"]


def test_start_runs_on_one_of_two_workers_and_its_items_are_stored_once(project: UserProject, lab: Lab) -> None:
    with held(lab):
        workers = project.workers(2, "start_items", base=lab.base(0))
    ended = [worker.end() for worker in workers]
    assert [one.code for one in ended] == [0, 0]
    assert sum(one.log.count("start() runs") for one in ended) == 1
    assert project.ids() == ["leaf/1", "start-0", "start-1"]
    assert paths(lab) == {"/leaf/1": 1}


def test_a_handler_of_spider_idle_may_add_requests(project: UserProject, lab: Lab) -> None:
    project.finish("idle", base=lab.base(0))
    assert paths(lab) == {"/leaf/0": 1, "/leaf/1": 1}
    assert project.ids() == ["leaf/0", "leaf/1"]


# Requests.


def test_every_field_of_a_request_is_the_same_after_the_queue(project: UserProject, lab: Lab) -> None:
    project.finish("every_field", base=lab.base(0))
    items = {item["id"]: item for item in project.items()}
    assert set(items) == {"every_field", "JsonRequest", "FormRequest", "error", "leaf/9"}
    said = items["every_field"]["said"]
    assert (said["method"], said["path"], said["body_base64"]) == ("POST", "/echo?q=%C3%A9", "/wA=")
    assert said["cookies"] == {"a": "b"}
    assert said["headers"]["accept-language"] == "de"
    *kept, callback, errback = eval_of(items["every_field"]["kept"])
    assert kept == [
        *("POST", b"\xff\x00", [b"1", b"2"], {"a": "b"}),
        *((1, 2), date(2026, 12, 1), {"é"}, 7),
        *(["f"], "wörd", b"\xfe", True),
    ]
    assert (callback, errback) == ("parse_echo", "on_error")
    assert items["JsonRequest"]["said"]["body"] == '{"a": [1]}'
    assert items["JsonRequest"]["said"]["headers"]["content-type"] == "application/json"
    assert items["FormRequest"]["said"]["body"] == "a=%C3%A4"
    assert items["error"] == {
        "id": "error",
        "url": f"{lab.base(0)}/status/404",
        "word": "lost",
        "type": "HttpError",
    }


def eval_of(text: str) -> list[object]:
    """A list of literals and dates as repr() wrote it."""
    found: list[object] = ast.literal_eval(text.replace("datetime.date(2026, 12, 1)", "'the day'"))
    return [date(2026, 12, 1) if value == "the day" else value for value in found]


def test_higher_priorities_are_fetched_first(project: UserProject, lab: Lab) -> None:
    project.finish("priority", {"CONCURRENT_REQUESTS": 1}, base=lab.base(0))
    asked = [hit.path for hit in lab.times()]
    assert asked == ["/links/1", "/flat/3", "/flat/1", "/flat/4", "/flat/0", "/flat/2"]


def test_a_link_that_cannot_be_queued_costs_neither_its_siblings_nor_its_page(project: UserProject, lab: Lab) -> None:
    ended = project.finish("selector", base=lab.base(0))
    assert project.ids() == ["leaf/0", "leaf/1", "leaf/3", "leaf/4"]
    assert "'scheduler/unserializable': 1" in ended.log
    letters = {letter["kind"]: letter for letter in project.letters()}
    assert {kind: (letter["class"], letter["url"]) for kind, letter in letters.items()} == {
        "link": ("unserialisable", f"{lab.base(0)}/leaf/2"),
        "page": ("unserialisable", f"{lab.base(0)}/links/5"),
    }
    assert "meta['link']" in letters["link"]["reason"]
    assert "Selector" in letters["link"]["reason"]
    assert project.status()["done"] == 4
    assert project.status()["seen"] == 5  # the page and four leaves: what was refused is not seen


def test_a_link_that_was_refused_is_new_when_it_can_be_queued(project: UserProject, lab: Lab) -> None:
    project.finish("selector", base=lab.base(0))
    assert project.trawlnet("seed", "selector", f"{lab.base(0)}/leaf/2", "--json").json()["new"] == 1


def test_a_pinned_request_runs_where_it_was_made(project: UserProject, lab: Lab) -> None:
    project.finish("selector", {"CRAWLER_FRONTIER_PINNED": True}, base=lab.base(0))
    assert project.ids() == [f"leaf/{number}" for number in range(5)]
    assert [item["link"] for item in project.items() if item["link"]] == [
        f'<a href="{lab.base(0)}/leaf/2">{lab.base(0)}/leaf/2</a>'
    ]
    assert project.letters() == []
    assert project.status()["done"] == 5  # the pinned one settles with its page


def test_a_form_is_filled_in_and_what_is_behind_it_is_crawled(project: UserProject, lab: Lab) -> None:
    project.finish("login", base=lab.base(0))
    assert project.ids() == sorted(["member", *(f"member/{number}" for number in range(10))])
    assert Counter(hit.method for hit in lab.times() if hit.path == "/login") == {"GET": 1, "POST": 1}


def test_a_crawl_spider_follows_its_rules(project: UserProject, lab: Lab) -> None:
    project.finish("rules", base=lab.base(0))
    assert project.ids() == ["leaf/0", "leaf/1", "leaf/2"]


@pytest.mark.parametrize(("inner", "status", "hits"), [("/leaf/5", 200, 1), ("/status/500", 500, 3)])
def test_what_a_callback_fetches_by_itself_is_not_the_page_s(
    project: UserProject, lab: Lab, inner: str, status: int, hits: int
) -> None:
    project.finish("inline", base=lab.base(0), inner=inner)
    assert paths(lab) == {"/leaf/1": 1, inner: hits, "/leaf/2": 1}
    assert [(item["id"], item.get("inner")) for item in project.items()] == [("leaf/1", status), ("leaf/2", None)]
    assert (project.status()["done"], project.letters()) == (2, [])


# Scrapy's own limits.


def test_depth_is_counted_through_the_queue(project: UserProject, lab: Lab) -> None:
    project.finish("lab", {"DEPTH_LIMIT": 1}, url=lab.url)
    assert len(lab.hits()) == 1 + lab.spec.links
    assert set(lab.hits().values()) == {1}


def test_a_page_that_robots_txt_forbids_is_filtered_and_not_fetched(project: UserProject, lab: Lab) -> None:
    project.finish("redirects", {"ROBOTSTXT_OBEY": True}, base=lab.base(0), paths="/private/1 /leaf/1")
    assert paths(lab) == {"/robots.txt": 1, "/leaf/1": 1}
    assert {item["id"] for item in project.items()} == {"error", "leaf/1"}
    assert (project.status()["done"], project.letters()) == (1, [])


def test_a_crawl_that_was_closed_early_goes_on_where_it_was(project: UserProject, lab: Lab) -> None:
    closed = project.finish("lab", {"CLOSESPIDER_PAGECOUNT": 5, "CONCURRENT_REQUESTS": 2}, url=lab.url)
    assert "closespider_pagecount" in closed.log
    assert len(lab.hits()) < lab.spec.pages
    assert project.status()["state"] == "open"
    resumed = project.finish("lab", url=lab.url)
    assert "Resuming crawl (" in resumed.log
    assert lab.hits() == dict.fromkeys(lab.truth()["pages"], 1)
    assert len(project.ids()) == lab.spec.pages
    assert project.status()["state"] == "finished"


# Failing.


def test_a_page_that_always_fails_is_a_dead_letter_that_can_be_replayed(project: UserProject, lab: Lab) -> None:
    settings = {"RETRY_TIMES": 1}
    project.finish("redirects", settings, base=lab.base(0), paths="/flaky/2")
    url = f"{lab.base(0)}/flaky/2"
    (letter,) = project.trawlnet("dead", "list", "redirects", "--json").json()
    assert (letter["class"], letter["url"], letter["reason"]) == ("status", url, "status 500 after 2 tries")
    assert (letter["status"], letter["attempts"], letter["replayable"]) == ("500", "2", True)
    assert lab.hits() == {url: 2}
    assert project.trawlnet("dead", "replay", "redirects", "--json").json() == {"replayed": 1}
    project.finish("redirects", settings, base=lab.base(0))
    assert lab.hits() == {url: 3}
    assert "flaky/2" in project.ids()
    assert project.letters() == []


def test_a_page_that_fails_at_first_is_tried_again_until_it_comes(project: UserProject, lab: Lab) -> None:
    project.finish("redirects", base=lab.base(0), paths="/flaky/2 /flaky/1?status=503")
    assert paths(lab) == {"/flaky/2": 3, "/flaky/1?status=503": 2}
    assert project.ids() == ["flaky/1", "flaky/2"]
    assert (project.status()["done"], project.status()["retried"], project.letters()) == (2, 3, [])


def test_a_callback_that_asks_for_its_page_again_gets_it(project: UserProject, lab: Lab) -> None:
    project.finish("own_retry", {"RETRY_ENABLED": False}, base=lab.base(0))
    assert paths(lab) == {"/flaky/2": 3}
    assert project.ids() == ["flaky/2"]
    assert (project.status()["done"], project.status()["retried"], project.letters()) == (1, 2, [])


def test_a_host_that_refuses_connections_leaves_a_dead_letter(project: UserProject) -> None:
    project.finish("redirects", {"RETRY_TIMES": 1}, base="http://127.0.0.1:1", paths="/x")
    (letter,) = project.letters()
    assert (letter["class"], letter["url"], letter["attempts"]) == ("download", "http://127.0.0.1:1/x", "2")
    assert "after 2 tries" in letter["reason"]
    # The errback was called all the same.
    assert [item["id"] for item in project.items()] == ["error"]


def test_a_callback_that_raises_keeps_what_it_gave_and_its_page_is_done(project: UserProject, lab: Lab) -> None:
    ended = project.finish("unruly", base=lab.base(0))
    assert project.ids() == ["leaf/2", "leaf/3"]
    assert "this callback is broken" in ended.log
    assert project.status()["done"] == 2
    assert project.redis.hget(f"trawlnet:{{{project.crawl}:0}}:counters", "callback_errors") == b"1"
    # The start request with a lambda.
    (letter,) = project.letters()
    assert (letter["class"], letter["url"]) == ("unserialisable", f"{lab.base(0)}/leaf/1")
    assert "lambda" in letter["reason"]


def test_a_status_that_is_not_retried_reaches_the_errback_and_the_page_is_done(project: UserProject, lab: Lab) -> None:
    project.finish("redirects", base=lab.base(0), paths="/status/404")
    assert project.items() == [{"id": "error", "asked": "/status/404", "type": "HttpError"}]
    assert (project.status()["done"], project.letters()) == (1, [])


def test_a_private_target_is_refused_unless_allowed(project: UserProject, lab: Lab) -> None:
    project.finish("redirects", {"CRAWLER_TARGETS_PRIVATE_ALLOWED": False}, base=lab.base(0), paths="/leaf/1")
    (letter,) = project.letters()
    assert (letter["class"], letter["url"]) == ("private_target", f"{lab.base(0)}/leaf/1")
    assert "127.0.0.1 is at the private address 127.0.0.1; set CRAWLER_TARGETS_PRIVATE_ALLOWED" in letter["reason"]
    assert lab.hits() == {}


# Without a reactor.


@pytest.mark.skipif(scrapy.version_info[:2] < (2, 15), reason="this Scrapy always has a reactor")
def test_a_whole_crawl_without_a_reactor(project: UserProject, lab: Lab) -> None:
    handler = "scrapy.core.downloader.handlers._httpx.HttpxDownloadHandler"
    settings = {
        "TWISTED_REACTOR_ENABLED": False,
        "DOWNLOAD_HANDLERS": f'{{"http": "{handler}", "https": "{handler}"}}',
    }
    ended = project.finish("where", settings, url=lab.url)
    truth = lab.truth()["pages"]
    assert "reactor installed: False" in ended.log
    assert lab.hits() == dict.fromkeys(truth, 1)
    assert project.ids() == sorted(item["id"] for item in truth.values())
