"""Raw seeds on their way from a spider's start URLs key into the frontier: none is lost between the two."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from crawler.frontier.plan import Letter, Put
from crawler.frontier.store import SeenSpec, Session
from crawler.frontier.stream import Stream
from crawler.loop import BackgroundTask
from crawler.redisdb.connect import RedisTarget
from crawler.redisdb.keys import Intake
from crawler.redisdb.scripts import run_now
from crawler.seeds.feed import LEASE_MS, SeedFeed
from crawler.seeds.intake import IntakeScripts, Taken, WrongKeyType
from tests.support.frontier import FleetOnServer, page

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")


class IntakeOnServer:
    """The start URLs of a crawl, and the intake behind them."""

    def __init__(self, fleet: FleetOnServer) -> None:
        self.redis = fleet.redis
        self.keys = Intake(f"{fleet.crawl}:start_urls")
        self.scripts = IntakeScripts(self.keys)

    def take(self, most: int = 100, lease_ms: int = 60_000) -> Taken:
        """Takes seeds."""
        return self.scripts.read(run_now(self.redis, self.scripts.take(most, lease_ms)))

    def taken(self, ids: Sequence[str]) -> int:
        """Says that they are in the frontier."""
        return int(run_now(self.redis, self.scripts.taken(ids)))

    def lapse(self) -> None:
        """Lets the leases of all that was taken run out."""
        for seed_id in self.redis.zrange(self.keys.due, 0, -1):
            self.redis.zadd(self.keys.due, {seed_id: 1})


def _raw(taken: Taken) -> list[bytes]:
    return [raw for _, raw in taken.seeds]


@both
def test_a_list_is_read_from_its_head(fleet: FleetOnServer) -> None:
    intake = IntakeOnServer(fleet)
    intake.redis.rpush(intake.keys.start, *"abcde")
    intake.redis.lpush(intake.keys.start, "first")
    taken = intake.take(4)
    assert _raw(taken) == [b"first", b"a", b"b", b"c"]
    assert (taken.unread, taken.outstanding) == (2, 4)
    assert _raw(intake.take(4)) == [b"d", b"e"]


@both
def test_a_sorted_set_is_read_from_its_highest_score(fleet: FleetOnServer) -> None:
    intake = IntakeOnServer(fleet)
    intake.redis.zadd(intake.keys.start, {"low": -1, "high": 100, "middle": 2.5})
    assert _raw(intake.take(2)) == [b"high", b"middle"]
    taken = intake.take(2)
    assert (_raw(taken), taken.unread) == ([b"low"], 0)


@both
def test_a_set_is_read_whole_in_any_order(fleet: FleetOnServer) -> None:
    intake = IntakeOnServer(fleet)
    intake.redis.sadd(intake.keys.start, *range(50))
    seeds = _raw(intake.take(30)) + _raw(intake.take(30))
    assert sorted(map(int, seeds)) == list(range(50))


@both
def test_seeds_are_any_bytes(fleet: FleetOnServer) -> None:
    intake = IntakeOnServer(fleet)
    seeds = [bytes(range(256)), b"", "https://bücher.test/".encode(), b"x" * 100_000]
    intake.redis.rpush(intake.keys.start, *seeds)
    assert _raw(intake.take()) == seeds


@both
@pytest.mark.parametrize("kind", ["string", "hash", "stream"])
def test_a_key_of_another_type_is_told_and_left_alone(fleet: FleetOnServer, kind: str) -> None:
    intake = IntakeOnServer(fleet)
    make: dict[str, Callable[[], Any]] = {
        "string": lambda: intake.redis.set(intake.keys.start, "http://a.test/"),
        "hash": lambda: intake.redis.hset(intake.keys.start, "http://a.test/", "1"),
        "stream": lambda: intake.redis.xadd(intake.keys.start, {"url": "http://a.test/"}),
    }
    make[kind]()
    before = intake.redis.dump(intake.keys.start)
    with pytest.raises(WrongKeyType) as error:
        intake.take()
    for part in (f"'{intake.keys.start}' is a {kind}", "list, set or sorted set", f"lpush {intake.keys.start} URL"):
        assert part in str(error.value)
    assert intake.redis.dump(intake.keys.start) == before


@both
def test_what_its_taker_did_not_bring_in_is_taken_again_first(fleet: FleetOnServer) -> None:
    intake = IntakeOnServer(fleet)
    intake.redis.rpush(intake.keys.start, *"abcd")
    first = intake.take(3)
    assert intake.taken([first.seeds[1][0]]) == 1
    assert _raw(intake.take(0)) == []
    intake.lapse()
    again = intake.take(3)
    assert sorted(_raw(again)) == [b"a", b"c", b"d"]
    assert set(first.seeds) - set(again.seeds) == {first.seeds[1]}, "ids stay, so that both make the same instances"
    assert intake.take(3).seeds == []
    assert intake.taken([seed_id for seed_id, _ in again.seeds]) == 3
    assert not intake.redis.exists(intake.keys.raw, intake.keys.due)


def test_what_is_under_a_lease_is_nobody_elses_but_counts_as_work(fleet: FleetOnServer) -> None:
    intake = IntakeOnServer(fleet)
    intake.redis.rpush(intake.keys.start, *"ab")
    intake.take()
    other = intake.take()
    assert (other.seeds, other.unread, other.outstanding) == ([], 0, 2)


def test_equal_seeds_are_two(fleet: FleetOnServer) -> None:
    intake = IntakeOnServer(fleet)
    intake.redis.rpush(intake.keys.start, "a", "a")
    (one, _), (other, _) = intake.take().seeds
    assert one != other


# The feed.


@dataclass(slots=True)
class Frontier:
    """Takes what the feed offers, and brings it in when told to."""

    offered: list[tuple[Put, Callable[[bool], None]]] = field(default_factory=list)
    buried: list[Letter] = field(default_factory=list)
    at_once: bool = True

    def offer(self, put: Put, lease: None, answered: Callable[[bool], None] | None = None) -> None:
        assert answered is not None
        self.offered.append((put, answered))
        if self.at_once:
            answered(True)

    def bury(self, letter: Letter) -> None:
        self.buried.append(letter)


def _make(seed_id: str, raw: bytes) -> list[Put | Letter]:
    if b"://" not in raw:
        return [{"kind": "seed", "reason": "no scheme", "seed": raw.decode()}]
    return [page(raw.decode())] * (2 if b"twice" in raw else 1)


def _feed(fleet: FleetOnServer, frontier: Frontier, client: Any, target: RedisTarget, waiting: int = 0) -> SeedFeed:
    stream = Stream(client, target, Session(fleet.partition, "w1", SeenSpec("exact")))
    scripts = IntakeScripts(Intake(f"{fleet.crawl}:start_urls"))
    return SeedFeed(stream, scripts, frontier, _make, lambda: waiting, lambda: 0.02, batch=4)


def _running(feed: SeedFeed) -> BackgroundTask:
    def fail(error: BaseException) -> None:
        raise AssertionError("the feed failed") from error

    task = BackgroundTask("feed", feed.run, fail)
    task.start()
    return task


@both
def test_the_feed_brings_in_all_seeds_and_buries_bad_ones(fleet: FleetOnServer) -> None:
    intake, frontier = IntakeOnServer(fleet), Frontier()
    good = [f"http://a.test/{n}" for n in range(9)]
    intake.redis.rpush(intake.keys.start, *good[:3], "www.example.com/x", *good[3:], "http://a.test/twice")

    async def feed() -> None:
        target = RedisTarget(fleet.url)
        client = target.async_client()
        feed = _feed(fleet, frontier, client, target)
        running = _running(feed)
        async with asyncio.timeout(10):
            while feed.read < 11 or feed.outstanding:
                await asyncio.sleep(0)
        assert feed.unread == 0
        await running.stop()
        await client.aclose()

    asyncio.run(feed())
    assert [put.body.decode() for put, _ in frontier.offered] == [*good, *["http://a.test/twice"] * 2]
    assert [letter["seed"] for letter in frontier.buried] == ["www.example.com/x"]
    assert not intake.redis.exists(intake.keys.start, intake.keys.raw, intake.keys.due)


@both
def test_a_feed_that_dies_before_its_seeds_are_in_leaves_them_for_another(fleet: FleetOnServer) -> None:
    intake, frontier = IntakeOnServer(fleet), Frontier(at_once=False)
    intake.redis.rpush(intake.keys.start, "http://a.test/1", "http://a.test/2")

    async def die() -> None:
        target = RedisTarget(fleet.url)
        client = target.async_client()
        looking = asyncio.create_task(_feed(fleet, frontier, client, target).look())
        async with asyncio.timeout(10):
            while len(frontier.offered) < 2:
                await asyncio.sleep(0)
        frontier.offered[0][1](True)
        await asyncio.sleep(0)
        assert not looking.done(), "the second is not in"
        looking.cancel()
        await asyncio.wait([looking])
        await client.aclose()

    asyncio.run(die())
    assert intake.take().seeds == []
    assert LEASE_MS <= 15_000
    intake.lapse()
    assert sorted(_raw(intake.take())) == [b"http://a.test/1", b"http://a.test/2"]


def test_a_feed_stops_wherever_it_is(fleet: FleetOnServer) -> None:
    async def stop(turns: int) -> None:
        target = RedisTarget(fleet.url)
        client = target.async_client()
        feed = _feed(fleet, Frontier(), client, target)
        feed.wake()
        running = _running(feed)
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await running.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await client.aclose()

    for turns in range(30):
        asyncio.run(stop(turns))


def test_a_feed_takes_nothing_while_enough_waits_or_while_it_may_not(fleet: FleetOnServer) -> None:
    intake, frontier = IntakeOnServer(fleet), Frontier()
    intake.redis.rpush(intake.keys.start, "http://a.test/")

    async def feed() -> None:
        target = RedisTarget(fleet.url)
        client = target.async_client()
        full, closed = _feed(fleet, frontier, client, target, waiting=1000), _feed(fleet, frontier, client, target)
        closed.taking = False
        for feed in (full, closed):
            feed.wake()
            running = _running(feed)
            for _ in range(20):
                await asyncio.sleep(0)
            await running.stop()
            assert feed.looked_at == 0.0
        await client.aclose()

    asyncio.run(feed())
    assert intake.redis.llen(intake.keys.start) == 1


def test_a_feed_goes_on_after_a_key_of_a_wrong_type(fleet: FleetOnServer, caplog: pytest.LogCaptureFixture) -> None:
    intake, frontier = IntakeOnServer(fleet), Frontier()
    intake.redis.set(intake.keys.start, "http://a.test/")

    async def feed() -> None:
        target = RedisTarget(fleet.url)
        client = target.async_client()
        feed = _feed(fleet, frontier, client, target)
        await feed.look()
        assert "is a string" in caplog.text
        intake.redis.delete(intake.keys.start)
        intake.redis.rpush(intake.keys.start, "http://a.test/")
        await feed.look()
        await client.aclose()

    asyncio.run(feed())
    assert len(frontier.offered) == 1
