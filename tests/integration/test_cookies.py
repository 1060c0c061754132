"""Cookies of a fleet: what one worker keeps another has with its next claim, and nobody asks Redis without a reason."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from crawler.download.cookies import COOKIES_MOST, Cookies, CookieScripts, CookieStore, SharedCookie
from crawler.redisdb.scripts import Call, run_now
from tests.support.frontier import FleetOnServer

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")

DOMAINS = ["a.test", ".a.test"]


class Store(CookieStore):
    """A worker's cookies; what it hears of with a claim is the test's to say."""

    def __init__(self, fleet: FleetOnServer, lifetime: float = 100.0) -> None:
        self.asked = self.newest = 0

        async def ask(call: Call) -> Any:
            self.asked += 1
            return run_now(fleet.redis, call)

        scripts = CookieScripts(fleet.partition.script_keys("w1"), lifetime)
        super().__init__(scripts, ask, lambda: self.newest)
        self._fleet = fleet

    def hear(self) -> None:
        """What the reply of a claim tells."""
        self.newest = int(self._fleet.redis.hget(self._fleet.key("state"), "cookies") or 0)


def cookie(name: str, value: str | None = "1", path: str = "/", expires: int = 0) -> SharedCookie:
    return SharedCookie(name, value, path, expires, secure=False, domain_specified=True, path_specified=True, version=0)


def names(cookies: Cookies) -> dict[str, list[str]]:
    return {domain: [f"{each.name}={each.value}" for each in given] for domain, given in cookies.items() if given}


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


@both
def test_another_worker_has_what_one_keeps(fleet: FleetOnServer) -> None:
    async def story() -> None:
        fleet.worker()
        one, two = Store(fleet), Store(fleet)
        assert two.is_current("", DOMAINS)
        await one.keep("", {".a.test": [cookie("sid", "é\udcff")], "a.test": [cookie("n")]})
        assert two.is_current("", DOMAINS), "it has not heard of it"
        two.hear()
        assert not two.is_current("", DOMAINS)
        assert names(await two.load("", DOMAINS)) == {".a.test": ["sid=é\udcff"], "a.test": ["n=1"]}
        assert two.is_current("", DOMAINS)
        await one.keep("", {"a.test": [cookie("n", "2")], "b.test": [cookie("x")]})
        two.hear()
        assert not two.is_current("", DOMAINS)
        assert names(await two.load("", DOMAINS)) == {"a.test": ["n=2"]}, "only what changed"
        assert two.is_current("", DOMAINS)
        await one.keep("", {"b.test": [cookie("x", "2")]})
        two.hear()
        assert names(await two.load("", DOMAINS)) == {}
        one.hear()
        assert one.is_current("", ["b.test"]), "its own changes need no load"

    run(story)


def test_cookies_are_replaced_by_path_and_name_removed_and_end(fleet: FleetOnServer) -> None:
    async def story() -> None:
        fleet.worker()
        store = Store(fleet)
        soon = fleet.now_ms() // 1000 + 50
        await store.keep("", {"a.test": [cookie("a"), cookie("a", "2", "/x"), cookie("b", expires=soon), cookie("c")]})
        await store.keep("", {"a.test": [cookie("a", "3"), cookie("c", None)]})
        other = Store(fleet)
        other.hear()
        assert names(await other.load("", ["a.test"])) == {"a.test": ["a=2", "b=1", "a=3"]}
        fleet.advance(60)
        await store.keep("", {"a.test": [cookie("d")]})
        other.hear()
        assert names(await other.load("", ["a.test"])) == {"a.test": ["a=2", "a=3", "d=1"]}
        await store.keep("", {"a.test": [cookie("a", None), cookie("a", None, "/x"), cookie("d", None)]})
        assert not any(name.startswith("cookies:") for name in fleet.names())

    run(story)


def test_jars_are_apart(fleet: FleetOnServer) -> None:
    async def story() -> None:
        fleet.worker()
        store, other = Store(fleet), Store(fleet)
        await store.keep("int:1", {"a.test": [cookie("a")]})
        other.hear()
        assert names(await other.load("int:2", ["a.test"])) == {}
        assert names(await other.load("int:1", ["a.test"])) == {"a.test": ["a=1"]}

    run(story)


def test_a_domain_keeps_a_bounded_number(fleet: FleetOnServer) -> None:
    async def story() -> None:
        fleet.worker()
        store, other = Store(fleet), Store(fleet)
        await store.keep("", {"a.test": [cookie(f"n{number}") for number in range(COOKIES_MOST + 5)]})
        other.hear()
        [kept] = (await other.load("", ["a.test"])).values()
        assert [kept[0].name, kept[-1].name, len(kept)] == ["n5", f"n{COOKIES_MOST + 4}", COOKIES_MOST]

    run(story)


def test_who_missed_many_changes_loads_anew(fleet: FleetOnServer) -> None:
    async def story() -> None:
        fleet.worker()
        store, other = Store(fleet), Store(fleet)
        await store.keep("", {"a.test": [cookie("a")]})
        other.hear()
        await other.load("", ["a.test"])
        for number in range(501):
            await store.keep("", {f"h{number}.test": [cookie("x")]})
        await store.keep("", {"a.test": [cookie("a", "2")]})
        other.hear()
        assert names(await other.load("", ["a.test"])) == {"a.test": ["a=2"]}

    run(story)


def test_the_same_cookie_again_is_no_change(fleet: FleetOnServer) -> None:
    async def story() -> None:
        fleet.worker()
        store = Store(fleet)
        for _ in range(3):
            await store.keep("", {"a.test": [cookie("a")]})
        store.hear()
        assert store.newest == 1
        assert 0 < fleet.redis.pttl(fleet.key("cookies:1:")) <= 100_000

    run(story)


def test_a_new_run_begins_without_cookies(fleet: FleetOnServer) -> None:
    async def story() -> None:
        worker = fleet.worker()
        await Store(fleet).keep("", {"a.test": [cookie("a")]})
        worker.start("take")
        worker.start("done")
        assert worker.finish() == "finished"
        worker.leave()
        fleet.worker("again")
        other = Store(fleet)
        other.hear()
        assert names(await other.load("", ["a.test"])) == {}

    run(story)
