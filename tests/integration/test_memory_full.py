"""A server that is full takes what frees memory or keeps workers alive, and refuses the rest whole."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from crawler.frontier.plan import Plan
from crawler.frontier.store import ClaimOrder, Claims
from crawler.frontier.stream import MemoryFull, Stream
from crawler.redisdb.connect import RedisTarget
from crawler.redisdb.keys import Intake
from crawler.redisdb.scripts import run_now
from crawler.seeds.intake import IntakeScripts
from tests.support.frontier import (
    LAPSE_SECONDS,
    TICK_SECONDS,
    FleetOnServer,
    Member,
    bodies,
    leases,
    page,
    redirect,
    retry,
    unfiltered,
)
from tests.support.servers import KINDS, own_server

ORDER = ClaimOrder(10, 60_000, 0, 100, {})


@pytest.fixture(scope="module", params=KINDS)
def own_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that nothing else uses, since full it is of no use to others."""
    kind: str = request.param
    with own_server(tmp_path_factory.mktemp("full"), kind=kind, appendonly=False) as server:
        yield server.url


@pytest.fixture
def fleet(own_url: str) -> Iterator[FleetOnServer]:
    with Redis.from_url(own_url) as redis:
        redis.flushall()
        yield FleetOnServer(redis, "full", own_url)
        redis.config_set("maxmemory", 0)


@contextmanager
def _full(fleet: FleetOnServer) -> Iterator[None]:
    fleet.redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        fleet.redis.config_set("maxmemory", 0)


def _busy_worker(fleet: FleetOnServer) -> tuple[Member, list[str]]:
    worker = fleet.worker()
    worker.put(*(page(f"http://a.test/{n}") for n in range(8)))
    return worker, leases(worker.claim(4))


NEW = page("http://new.test/")

REFUSED: dict[str, Callable[[Member, list[str]], object]] = {
    "put": lambda worker, _: worker.put(NEW),
    "put of known and new": lambda worker, _: worker.put(page("http://a.test/0"), NEW),
    "put of an unfiltered request": lambda worker, _: worker.put(unfiltered("http://a.test/0")),
    "put of a redirect": lambda worker, _: worker.put(redirect("http://new.test/", b"page")),
    "claim": lambda worker, _: worker.claim(),
    "settle with entries": lambda worker, held: worker.settle(NEW, done=held),
    "settle with letters": lambda worker, held: worker.settle_plan([], Plan(done=held, letters=[{"kind": "seed"}])),
    "start": lambda worker, _: worker.start("take"),
    "open": lambda worker, _: worker.open(),
}


@pytest.mark.parametrize("act", REFUSED)
def test_refused_whole(fleet: FleetOnServer, act: str) -> None:
    worker, held = _busy_worker(fleet)
    before, sequence = fleet.picture(), worker.session.sequence
    with _full(fleet), pytest.raises(ResponseError, match=r"(?i)oom|used memory"):
        REFUSED[act](worker, held)
    assert fleet.picture() == before
    if act != "open":
        # The batch goes out again under its number once there is room.
        worker.session.sequence = sequence
        REFUSED[act](worker, held)


def test_pages_that_are_through_settle_all_the_same(fleet: FleetOnServer) -> None:
    worker, (done, tried, dead, back) = _busy_worker(fleet)
    [again] = (claimed for claimed in worker.claim(1))
    with _full(fleet):
        plan = Plan(done=[done], dead=[(dead, {"kind": "page", "reason": "status 404"})], back=[back])
        plan.retries.append(retry(again, 5_000))
        assert worker.settle_plan([], plan).stale == []
        assert worker.settle(page("http://a.test/0"), done=[tried]).new == "0", "nothing new in it"
    assert fleet.redis.hlen(fleet.key("inflight")) == 0
    assert fleet.counters()["done"] == 2
    assert len(fleet.letters()) == 1
    assert bodies(worker.claim(1)) == ["http://a.test/3"]


def test_workers_stay_alive_and_keep_their_leases(fleet: FleetOnServer) -> None:
    worker, held = _busy_worker(fleet)
    with _full(fleet):
        expiry = fleet.redis.zscore(fleet.key("lease"), held[0])
        assert worker.beat([*held, "17"], lease_seconds=600) == ["17"]
        assert fleet.redis.zscore(fleet.key("lease"), held[0]) > expiry


def test_dead_workers_are_reaped(fleet: FleetOnServer) -> None:
    _, held = _busy_worker(fleet)
    other = fleet.worker("other")
    fleet.reap()
    for _ in range(int(LAPSE_SECONDS / TICK_SECONDS) + 1):
        fleet.advance(TICK_SECONDS)
        with _full(fleet):
            other.beat()
            returned, _ = fleet.reap()
    assert returned == len(held)
    with _full(fleet):
        assert fleet.redis.llen(fleet.key("suspects")) == len(held)
    assert fleet.counters()["waiting"] == 4


def test_leaving_gives_back_all_the_same(fleet: FleetOnServer) -> None:
    worker, held = _busy_worker(fleet)
    with _full(fleet):
        assert worker.leave() == len(held)
    assert len(fleet.worker("other").claim()) == 8


def test_a_feeder_says_all_the_same_that_it_is_through(fleet: FleetOnServer) -> None:
    feeder = fleet.member("feeder")
    feeder.open(feeder="feeder")
    with _full(fleet):
        assert feeder.run(feeder.session.fed("feeder")) == 1


@pytest.mark.parametrize("kind", ["list", "set", "zset"])
def test_seeds_stay_where_they_are(fleet: FleetOnServer, kind: str) -> None:
    scripts = IntakeScripts(Intake("full:start_urls"))
    if kind == "list":
        fleet.redis.rpush("full:start_urls", "a", "b")
    elif kind == "set":
        fleet.redis.sadd("full:start_urls", "a", "b")
    else:
        fleet.redis.zadd("full:start_urls", {"a": 1, "b": 2})
    before = fleet.redis.dump("full:start_urls")
    with _full(fleet), pytest.raises(ResponseError):
        run_now(fleet.redis, scripts.take(10, 1000))
    assert fleet.redis.dump("full:start_urls") == before
    assert len(scripts.read(run_now(fleet.redis, scripts.take(10, 1000))).seeds) == 2


def test_the_stream_tells_what_did_not_run_and_goes_on_afterwards(fleet: FleetOnServer) -> None:
    worker, held = _busy_worker(fleet)

    async def exchange() -> None:
        target = RedisTarget(fleet.url)
        client = target.async_client()
        stream = Stream(client, target, worker.session, lambda low, high: 0.0)
        with _full(fleet):
            with pytest.raises(MemoryFull):
                await stream.exchange([NEW], Plan(done=held[:1]), ORDER)
            with pytest.raises(MemoryFull):
                await stream.exchange([], Plan(), ORDER)
            # The settle ran, the claim did not; nothing of either is told wrongly.
            answer = await stream.exchange([], Plan(done=held[:1]), ORDER)
            assert (answer.stale, answer.claims) == ([], Claims())
        answer = await stream.exchange([NEW], Plan(done=held[1:]), ORDER)
        assert (answer.new, answer.stale, len(answer.claims.claimed)) == (b"1", [], 5)
        await client.aclose()

    asyncio.run(exchange())
    assert fleet.counters()["done"] == 4
