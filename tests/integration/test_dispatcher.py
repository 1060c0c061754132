"""One worker's side of the frontier: what it claims, when a page settles, and what it does when Redis forgets."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
from redis import Redis

from crawler.clock import Monotonic, monotonic
from crawler.control.crawls import Crawls
from crawler.dispatch import Dispatcher, Options
from crawler.errors import UnknownCallback
from crawler.frontier.held import Decoded, Lease, NewTry
from crawler.frontier.pace import Slots
from crawler.frontier.store import Claimed, SeenSpec, Session
from crawler.frontier.stream import FrontierBroken, Stream
from crawler.frontier.wire import NewerWire
from crawler.loop import BackgroundTask
from crawler.redisdb.connect import RedisTarget
from tests.support.frontier import IDENTITY, LAPSE_SECONDS, FleetOnServer, bodies, leases, page, unfiltered
from tests.support.servers import KINDS, own_server

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")


class Engine:
    """A crawler whose downloads and callbacks end when the test says so."""

    def __init__(self) -> None:
        self.running: set[Hashable] = set()
        self.downloading: set[Hashable] = set()
        self.refused: dict[str, Exception] = {}
        self.woken = 0

    def decode(self, claimed: Claimed) -> Decoded:
        url = claimed.body.decode()
        if url in self.refused:
            raise self.refused[url]
        return Decoded(url, url, claimed.body[:8])

    def has(self, request: Hashable) -> bool:
        return request in self.running

    def is_downloading(self, request: Hashable) -> bool:
        return request in self.downloading

    def wake(self) -> None:
        self.woken += 1


class Worker:
    """A dispatcher with its engine, and a clock that the test moves."""

    def __init__(self, fleet: FleetOnServer, slots: Slots, clock: Monotonic | None) -> None:
        self.fleet = fleet
        self.engine = Engine()
        self.now = 1000.0
        target = RedisTarget(fleet.url)
        self.client = target.async_client()
        session = Session(fleet.partition, "w1", SeenSpec("exact"))
        self.stream = Stream(self.client, target, session, lambda low, high: 0.0)
        options = Options(IDENTITY, slots, lease_max_seconds=3600, lapse_seconds=LAPSE_SECONDS, worker="w1")
        self.dispatcher = Dispatcher(self.stream, self.engine, options, clock or (lambda: self.now))
        self.resets = 0
        self.dispatcher.reset = self._count_reset

    def _count_reset(self) -> None:
        self.resets += 1

    def start(self) -> dict[str, Lease]:
        """Starts all requests that are ready; their leases by URL."""
        started = {}
        while pair := self.dispatcher.next():
            lease, request = pair
            started[str(request)] = lease
            self.engine.running.add(request)
            self.engine.downloading.add(request)
        return started

    def end(self, *urls: str) -> None:
        """Ends downloads and callbacks."""
        self.engine.running.difference_update(urls)
        self.engine.downloading.difference_update(urls)

    async def tick(self, seconds: float = 1.0) -> None:
        """Time passes, and there is an exchange."""
        self.now += seconds
        await self.dispatcher.tick()

    async def seed(self, *urls: str) -> dict[str, Lease]:
        """Puts URLs and starts what is claimed of them; their leases by URL."""
        for url in urls:
            self.dispatcher.offer(page(url), None)
        await self.tick()
        return self.start()


@asynccontextmanager
async def _worker(fleet: FleetOnServer, slots: Slots, clock: Monotonic | None) -> AsyncIterator[Worker]:
    worker = Worker(fleet, slots, clock)
    await worker.stream.open(IDENTITY, int(LAPSE_SECONDS * 1000))
    try:
        yield worker
    finally:
        await worker.client.aclose()


def crawl(
    fleet: FleetOnServer,
    story: Callable[[Worker], Coroutine[Any, Any, None]],
    slots: Slots | None = None,
    clock: Monotonic | None = None,
) -> None:
    """Runs a story of one worker, in which time passes as it says, or by a clock."""

    async def run() -> None:
        async with _worker(fleet, slots or Slots(), clock) as worker:
            await story(worker)

    asyncio.run(run())


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
    assert fleet.counters() == {"put": 3, "seen": 3, "done": 1}
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
    assert fleet.counters() == {"put": 1, "seen": 1, "done": 1}


@both
def test_failures_new_tries_and_counts_of_pages_go_out_with_them(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        started = await worker.seed(HOME, ONE, TWO)
        started[HOME].fail("status", "status 404")
        started[HOME].fail("later", "the first reason stays")
        started[ONE].retry = NewTry("a.test", 0, fleet.now_ms() + 60_000, b"http://a.test/1?try=2")
        started[TWO].tally("filtered")
        worker.dispatcher.bury({"kind": "link", "reason": "holds a function"})
        worker.end(HOME, ONE, TWO)
        await worker.tick()

    crawl(fleet, story)
    assert fleet.counters() == {"put": 3, "seen": 3, "done": 1, "dead": 2, "retried": 1, "filtered": 1}
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


# Leases that are lost.


@both
def test_lost_leases_are_not_started_and_started_ones_settle_in_vain(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        other = fleet.worker("other")
        await worker.seed(HOME)
        for url in (ONE, TWO):
            other.put(page(url))
        worker.dispatcher.wake()
        await worker.tick()
        assert worker.dispatcher.queued == 2
        fleet.pass_time(60, alive=[(other, [])])
        worker.dispatcher.lost(worker.dispatcher.renewable())
        assert worker.start() == {}
        assert len(worker.dispatcher.renewable()) == 1
        [taken] = other.claim()
        other.settle(done=[taken.lease])
        worker.end(HOME)
        await worker.tick()
        assert worker.resets == 1, "its session was reaped too"
        await worker.tick()

    crawl(fleet, story)
    assert fleet.counters()["done"] == 1
    assert fleet.counters()["stale"] == 1


@both
def test_after_its_session_is_gone_a_worker_joins_again_and_puts_what_it_holds(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        home = (await worker.seed(HOME))[HOME]
        worker.dispatcher.offer(page(ONE), home)
        await worker.tick()
        worker.dispatcher.offer(page(TWO), home)
        worker.dispatcher.offer(unfiltered("http://b.test/"), None)
        # Redis lost the session and what was put of late.
        lost = [f"session:{worker.stream.session.worker}", "q:a.test:0", "hosts"]
        lost += [name for name in fleet.names() if name.startswith("seen:")]
        fleet.redis.delete(*map(fleet.key, lost))
        await worker.tick()
        assert worker.resets == 1
        await worker.tick()
        worker.end(HOME)
        await worker.tick()
        assert not worker.dispatcher.parentless

    crawl(fleet, story)
    claimed = set(bodies(fleet.worker("other").claim()))
    held = {element[2:].decode() for element in _held(fleet)}
    assert claimed | held == {HOME, ONE, TWO, "http://b.test/#0"}


def _held(fleet: FleetOnServer) -> list[bytes]:
    return [msgpack.unpackb(packed, raw=True)[3] for packed in fleet.redis.hvals(fleet.key("inflight"))]


def test_doubt_is_cleared_up_by_asking_for_nothing(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        home = (await worker.seed(HOME))[HOME]
        worker.dispatcher.claiming = False
        worker.dispatcher.doubt()
        await worker.tick()
        assert (worker.resets, worker.dispatcher.renewable()) == (0, [home.id])
        fleet.redis.delete(fleet.partition.session("w1"))
        worker.dispatcher.doubt()
        await worker.tick()
        assert worker.resets == 1

    crawl(fleet, story)


def test_after_a_purge_a_worker_goes_on_with_what_it_holds(fleet: FleetOnServer) -> None:
    async def story(worker: Worker) -> None:
        home = (await worker.seed(HOME))[HOME]
        worker.dispatcher.offer(page(ONE), home)
        await worker.tick()
        Crawls(fleet.redis, fleet.crawl).purge(force=True)
        worker.end(HOME)
        for _ in range(3):
            await worker.tick()
        assert not {HOME, ONE} - {*worker.start(), *map(str, worker.engine.running)}

    crawl(fleet, story)


def _log_size(data: Path) -> tuple[Path, int]:
    """The append-only file of a server, and its size: all that it has answered so far is in it."""
    log = max(data.rglob("*.aof"))
    return log, log.stat().st_size


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_restart_that_lost_the_tail_nothing_is_missing(tmp_path: Path, kind: str) -> None:
    """What a lease stands for, and what was put of late, is there again; the rest is done or queued."""
    with own_server(tmp_path, kind=kind) as server, Redis.from_url(server.url) as redis:
        fleet = FleetOnServer(redis, "cut", server.url)

        async def story(worker: Worker) -> None:
            started = await worker.seed(HOME, ONE)
            log, kept = _log_size(tmp_path)
            # All from here on is lost: the links of a page that is done, of one that is not, and a late seed.
            worker.dispatcher.offer(page("http://b.test/of-home"), started[HOME])
            worker.dispatcher.offer(page("http://b.test/of-one"), started[ONE])
            worker.end(HOME)
            await worker.tick()
            worker.dispatcher.offer(page("http://c.test/late"), None)
            await worker.tick(0.01)
            server.kill()
            os.truncate(log, kept)
            server.start()
            worker.end(ONE)
            for _ in range(3):
                await worker.tick(0.01)
            assert worker.resets == 1

        crawl(fleet, story)
        queued = set(fleet.queued()) | {element[2:].decode() for element in _held(fleet)}
        # The done page is leased in Redis: nobody renews it, so it is fetched again and yields its link again.
        assert queued == {HOME, "http://b.test/of-one", "http://c.test/late"}
        assert fleet.counters()["done"] == 1


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
    assert fleet.counters() == {"put": 3, "seen": 3, "done": 2, "dead": 1}


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
