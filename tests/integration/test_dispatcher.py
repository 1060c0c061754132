"""One worker's side of the frontier: what it claims, when a page settles, and how it stops."""

import asyncio

import pytest

from crawler.clock import monotonic
from crawler.errors import UnknownCallback
from crawler.frontier.held import Lease, NewTry
from crawler.frontier.options import Slots
from crawler.frontier.stream import FrontierBroken
from crawler.frontier.wire import NewerWire
from crawler.loop import BackgroundTask
from tests.support.dispatching import Worker, crawl
from tests.support.frontier import FleetOnServer, bodies, leases, page

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")


HOME, ONE, TWO = (f"http://a.test/{name}" for name in ("", "1", "2"))


# From a claim to its settle.


@both
def test_links_settles_and_claims_share_a_round_trip(fleet: FleetOnServer) -> None:
    answers: list[bool] = []

    async def story(worker: Worker) -> None:
        home = (await worker.seed(HOME))[HOME]
        for url in (ONE, TWO, HOME):
            worker.dispatcher.offer(page(url), home, answers.append)
        worker.end(HOME)
        before = worker.stream.round_trips
        await worker.tick()
        assert worker.stream.round_trips == before + 1
        assert answers == [True, True, False]
        assert set(worker.start()) == {ONE, TWO}
        assert worker.engine.woken

    crawl(fleet, story)
    assert fleet.counters() == {"put": 3, "seen": 3, "done": 1, "duplicate": 1, "seeded": 1}
    assert fleet.redis.hlen(fleet.key("inflight")) == 2


def test_a_page_settles_when_nothing_of_it_is_open(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        home = (await worker.seed(HOME))[HOME]
        through: list[Lease] = []
        worker.dispatcher.through = through.append
        await worker.tick()
        assert fleet.counters().get("done") is None, "Scrapy has it"
        home.records += 1
        worker.end(HOME)
        await worker.tick()
        assert fleet.counters().get("done") is None, "an item is not durable"
        home.records -= 1
        await worker.tick()
        assert fleet.counters()["done"] == 1
        assert through == [home]
        assert not worker.dispatcher.busy

    crawl(fleet, story)


def test_a_redirect_goes_on_under_its_lease(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        home = (await worker.seed(HOME))[HOME]
        worker.dispatcher.offer_again(home, ONE)
        worker.end(HOME)
        await worker.tick()
        assert worker.start() == {ONE: home}
        await worker.tick()
        assert worker.dispatcher.renewable() == [home.id]
        worker.end(ONE)
        await worker.tick()
        assert worker.dispatcher.renewable() == []

    crawl(fleet, story)
    assert fleet.counters() == {"put": 1, "seen": 1, "done": 1, "seeded": 1}


@both
def test_failures_new_tries_and_counts_of_pages_go_out_with_them(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        started = await worker.seed(HOME, ONE, TWO)
        started[HOME].fail("status", "status 404")
        started[HOME].fail("later", "the first reason stays")
        started[ONE].retry = NewTry("a.test", 0, fleet.now_ms() + 60_000, b"http://a.test/1?try=2")
        started[TWO].filtered = "robots"
        worker.dispatcher.bury({"kind": "link", "reason": "holds a function"})
        worker.end(HOME, ONE, TWO)
        await worker.tick()

    crawl(fleet, story)
    assert fleet.counters() == {
        **{"seeded": 3, "put": 3, "seen": 3, "dead": 2, "letters": 1, "retried": 1},
        **{"filtered": 1, "filtered:robots": 1},
    }
    by_reason = {letter["reason"]: letter for letter in fleet.letters()}
    assert by_reason[b"status 404"]["worker"] == b"w1"
    assert set(by_reason) == {b"status 404", b"holds a function"}


@both
def test_entries_that_cannot_be_read_do_not_stop_the_others(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        worker.engine.refused = {
            ONE: UnknownCallback("spider 'books' has no method 'parse_old'"),
            TWO: NewerWire("version 2"),
        }
        assert set(await worker.seed(HOME, ONE, TWO)) == {HOME}
        await worker.tick()

    crawl(fleet, story)
    [letter] = fleet.letters()
    assert (letter["class"], letter["element"][2:]) == (b"unknown_callback", ONE.encode())
    assert b"parse_old" in letter["reason"]
    assert fleet.redis.zcard(fleet.key("delayed")) == 1, "a newer worker may have it"


def test_a_page_that_never_ends_is_a_dead_letter(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        await worker.seed(HOME)
        await worker.tick(3500)
        assert fleet.letters() == []
        await worker.tick(200)
        assert [letter["class"] for letter in fleet.letters()] == [b"lease_age"]

    crawl(fleet, story)


# How much is claimed.


@both
def test_no_more_is_claimed_than_can_be_started_soon(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        urls = [f"http://{host}.test/{n}" for host in "abcdef" for n in range(10)]
        started = await worker.seed(*urls)
        assert 4 <= len(started) <= 5
        await worker.tick(0.01)
        assert worker.start() == {}, "all slots are taken"
        worker.engine.downloading.clear()
        await worker.tick(0.01)
        assert 4 <= len(worker.start()) <= 8, "callbacks take no slot"
        for _ in range(40):
            worker.engine.downloading.clear()
            await worker.tick(0.01)
            worker.start()
        assert len(worker.dispatcher.renewable()) <= 8 * 4, "slow storage stops the claims"

    crawl(fleet, story, Slots(concurrency=4))


def test_a_host_gets_no_more_than_its_slots(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        started = await worker.seed(*(f"http://a.test/{n}" for n in range(20)), "http://b.test/")
        hosts = [lease.host for lease in started.values()]
        assert 2 <= hosts.count("a.test") <= 3
        assert hosts.count("b.test") == 1

    crawl(fleet, story, Slots(concurrency=8, per_host=2))


def test_an_idle_worker_asks_when_it_is_told_or_when_it_is_time(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        other = fleet.worker("other")
        worker.dispatcher.look_seconds = lambda: 30.0
        await worker.tick()
        idle = worker.stream.round_trips
        await worker.tick(1)
        worker.dispatcher.next()
        assert not worker.dispatcher.wanted.is_set()
        assert worker.stream.round_trips == idle
        other.put(page(ONE))
        worker.dispatcher.wake()
        await worker.tick(0.01)
        assert set(worker.start()) == {ONE}
        await worker.tick(31)
        assert worker.stream.round_trips == idle + 2

    crawl(fleet, story)


# A full server.


@both
def test_a_full_server_loses_nothing(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        started = await worker.seed(HOME, ONE)
        fleet.redis.config_set("maxmemory", 1)
        try:
            worker.dispatcher.offer(page(TWO), started[HOME])
            worker.dispatcher.bury({"kind": "link", "reason": "holds a function"})
            worker.end(HOME, ONE)
            for _ in range(3):
                await worker.tick()
            assert fleet.counters()["done"] == 1, "the page without links frees memory"
            assert worker.dispatcher.renewable() == [started[HOME].id]
        finally:
            fleet.redis.config_set("maxmemory", 0)
        await worker.tick()
        await worker.tick()
        assert set(worker.start()) == {TWO}

    crawl(fleet, story)
    assert fleet.counters() == {"seeded": 2, "put": 3, "seen": 3, "done": 2, "dead": 1, "letters": 1}


# Stopping.


@both
def test_a_stopping_worker_settles_what_ended_and_gives_back_the_rest_in_order(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        fleet.worker("other").put(*(page(f"http://a.test/{n}") for n in range(6)))
        await worker.tick()
        dispatcher = worker.dispatcher
        pair = dispatcher.next()
        assert pair is not None
        worker.engine.running.add(pair[1])
        dispatcher.claiming = False
        unstarted = dispatcher.release_unstarted()
        assert len(unstarted) == 5
        assert dispatcher.next() is None
        await dispatcher.give_back(unstarted)
        assert dispatcher.unended() == [pair[0].id]
        dispatcher.offer(page("http://b.test/"), pair[0])
        worker.end(str(pair[1]))
        while dispatcher.closing_tick_needed():
            await worker.tick(0.01)
        assert not dispatcher.busy

    crawl(fleet, story)
    assert fleet.counters() == {"put": 7, "seen": 7, "waiting": 6, "done": 1, "returned": 5}
    claimed = fleet.worker("next").claim()
    assert bodies(claimed)[:5] == [f"http://a.test/{n}" for n in range(1, 6)]
    assert len(leases(claimed)) == 6


@both
def test_what_is_given_back_after_the_end_is_left_to_the_leaving(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        fleet.worker("other").put(page("http://a.test/"))
        await worker.tick()
        worker.dispatcher.stopped = True
        asked = worker.stream.round_trips
        await worker.dispatcher.give_back(worker.dispatcher.release_unstarted())
        assert worker.stream.round_trips == asked

    crawl(fleet, story)


# The background task.


@both
def test_the_background_task_brings_in_and_hands_over_without_being_asked(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        task = BackgroundTask("exchange", worker.dispatcher.run, lambda error: None)
        task.start()
        arrived = asyncio.Event()
        worker.dispatcher.offer(page(HOME), None, lambda new: arrived.set())
        async with asyncio.timeout(5):
            await arrived.wait()
            while not (started := worker.start()):
                await asyncio.sleep(0)
            worker.end(*started)
            while worker.dispatcher.busy:
                await asyncio.sleep(0)
        await task.stop()

    crawl(fleet, story, clock=monotonic)
    assert fleet.counters()["done"] == 1


def test_what_waiting_does_not_mend_ends_the_background_task(fleet: FleetOnServer) -> None:
    failures: list[BaseException] = []

    async def story(worker: Worker) -> None:
        fleet.tampered = True
        fleet.redis.set(fleet.key("hosts"), "not ours")
        ended = asyncio.Event()

        def fail(error: BaseException) -> None:
            failures.append(error)
            ended.set()

        task = BackgroundTask("exchange", worker.dispatcher.run, fail)
        task.start()
        worker.dispatcher.offer(page(HOME), None)
        async with asyncio.timeout(5):
            await ended.wait()
        await task.stop()

    crawl(fleet, story)
    assert [type(failure) for failure in failures] == [FrontierBroken]
