"""One worker's ordered stream: each batch runs once, whatever is sent again, and what cannot be mended is told."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgpack
import pytest
from redis import Redis

from crawler.control.crawls import Crawls
from crawler.errors import StaleSession
from crawler.frontier.plan import Plan
from crawler.frontier.store import ClaimOrder, SeenSpec, Session
from crawler.frontier.stream import FrontierBroken, Stream
from crawler.redisdb.connect import RedisTarget
from tests.support.dispatching import Worker, crawl
from tests.support.frontier import IDENTITY, FleetOnServer, Member, bodies, leases, page, unfiltered
from tests.support.servers import KINDS, own_server

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")

BATCHES: dict[str, Callable[[Member, list[str]], object]] = {
    "put": lambda worker, _: worker.put(page("http://b.test/"), unfiltered("http://b.test/")),
    "claim": lambda worker, _: worker.claim(1),
    "settle": lambda worker, held: worker.settle(page("http://c.test/"), done=held[:1], back=held[1:]),
    "settle of letters": lambda worker, _: worker.settle_plan([], Plan(letters=[{"kind": "seed"}])),
}


def _busy_worker(fleet: FleetOnServer) -> tuple[Member, list[str]]:
    worker = fleet.worker()
    worker.put(*(page(f"http://a.test/{n}") for n in range(4)))
    return worker, leases(worker.claim(2))


@both
@pytest.mark.parametrize("batch", BATCHES)
def test_a_batch_that_is_sent_again_is_answered_as_before_and_changes_nothing(fleet: FleetOnServer, batch: str) -> None:
    worker, held = _busy_worker(fleet)
    BATCHES[batch](worker, held)
    before = fleet.picture()
    answer = worker.resend()
    assert fleet.picture() == before
    assert worker.resend() == answer
    assert worker.session.read(answer)
    assert worker.put(page("http://d.test/")) == "1", "the stream goes on"


@both
def test_two_batches_of_one_round_trip_may_both_be_sent_again(fleet: FleetOnServer) -> None:
    worker, held = _busy_worker(fleet)
    settled = worker.settle(page("http://b.test/"), done=held)
    claimed = worker.claim()
    before = fleet.picture()
    assert worker.session.read(worker.resend(2)) == [settled.new.encode(), []]
    assert worker.session.read_claimed(worker.resend(1)).claimed == claimed
    assert fleet.picture() == before


@both
@pytest.mark.parametrize("batch", BATCHES)
def test_a_batch_after_a_lost_one_is_refused(fleet: FleetOnServer, batch: str) -> None:
    worker, held = _busy_worker(fleet)
    worker.session.put([page("http://lost.test/")])
    before = fleet.picture()
    with pytest.raises(StaleSession, match=r"worker w1 .*batches are missing"):
        BATCHES[batch](worker, held)
    assert fleet.picture() == before


def test_a_batch_from_long_ago_is_refused(fleet: FleetOnServer) -> None:
    worker, _ = _busy_worker(fleet)
    worker.claim(0)
    worker.claim(0)
    with pytest.raises(StaleSession):
        worker.session.read(worker.resend(3))


@both
@pytest.mark.parametrize("batch", BATCHES)
def test_a_batch_of_a_session_that_is_gone_is_refused(fleet: FleetOnServer, batch: str) -> None:
    worker, held = _busy_worker(fleet)
    fleet.redis.delete(fleet.partition.session("w1"))
    before = fleet.picture()
    with pytest.raises(StaleSession, match="unknown session"):
        BATCHES[batch](worker, held)
    assert fleet.picture() == before


def test_joining_again_ends_the_earlier_session_of_the_same_worker(fleet: FleetOnServer) -> None:
    worker, held = _busy_worker(fleet)
    again = fleet.worker()
    with pytest.raises(StaleSession):
        worker.settle(done=held)
    with pytest.raises(StaleSession):
        worker.beat()
    assert again.settle(done=held).stale == [], "its leases are still its own"


def test_a_batch_sent_before_joining_again_is_not_taken_for_one_after_it(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(page("http://a.test/1"))
    worker.open()
    with pytest.raises(StaleSession):
        worker.session.read(worker.resend(2))
    assert worker.put(page("http://a.test/2")) == "1"


class LossOfReplies:
    """A way to the server on which answers get lost when told so: the batch ran, and nobody knows."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.lose = 0
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["LossOfReplies"]:
        """Accepts connections."""
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, questions = await asyncio.open_connection("127.0.0.1", self._port)

        async def ask() -> None:
            while data := await reader.read(65536):
                questions.write(data)
            questions.close()

        async def answer() -> None:
            while data := await answers.read(65536):
                if self.lose:
                    self.lose -= 1
                    break
                writer.write(data)
            writer.close()

        await asyncio.gather(ask(), answer())


@both
def test_an_exchange_whose_answer_is_lost_is_made_once(fleet: FleetOnServer) -> None:
    async def crawl() -> None:
        way = LossOfReplies(int(fleet.url.rsplit(":", 1)[1].split("/")[0]))
        async with way.listening():
            target = RedisTarget(way.url)
            client = target.async_client()
            stream = Stream(client, target, Session(fleet.partition, "w1", SeenSpec("exact")), lambda low, high: 0.0)
            await stream.open(IDENTITY, 10_000)
            first = await stream.exchange([page(f"http://a.test/{n}") for n in range(4)], Plan(), ORDER)
            assert len(first.claims.claimed) == 4
            for at, claimed in enumerate(first.claims.claimed):
                way.lose = at % 3
                plan = Plan(done=[claimed.lease])
                links = [page(f"http://b.test/{at}"), page(f"http://a.test/{at}")]
                answer = await stream.exchange(links, plan, ORDER)
                assert (answer.new, answer.stale, bodies(answer.claims.claimed)) == (b"10", [], [f"http://b.test/{at}"])
            await client.aclose()

    asyncio.run(crawl())
    assert fleet.counters() == {"put": 8, "seen": 8, "done": 4, "duplicate": 4}
    assert fleet.redis.scard(fleet.partition.held("w1")) == 4


ORDER = ClaimOrder(10, 60_000, 0, 100, {})


@both
@pytest.mark.parametrize("key", ["hosts", "counters", "inflight", "lease", "q:a.test:0", "seen:1", "held:w1"])
def test_a_key_of_a_wrong_type_is_told_with_the_name_of_the_crawl(fleet: FleetOnServer, key: str) -> None:
    fleet.tampered = True
    worker = fleet.worker()
    worker.put(page("http://a.test/"))
    content = fleet.redis.dump(fleet.key(key))
    fleet.redis.delete(fleet.key(key))
    fleet.redis.setrange(fleet.key(key), 0, "x") if key != "seen:1" else fleet.redis.rpush(fleet.key(key), "x")

    async def exchange() -> None:
        target = RedisTarget(fleet.url)
        client = target.async_client()
        try:
            await Stream(client, target, worker.session).exchange([page("http://a.test/2")], Plan(), ORDER)
        finally:
            await client.aclose()

    with pytest.raises(FrontierBroken, match=rf"crawl '{fleet.crawl}'.*WRONGTYPE.*trawlnet purge"):
        asyncio.run(exchange())
    # The entry is there as soon as the foreign key is gone.
    fleet.redis.delete(fleet.key(key))
    if content is not None:
        fleet.redis.restore(fleet.key(key), 0, content)
    worker.open()
    assert "http://a.test/" in bodies(worker.claim())


# A worker that Redis has forgotten.

HOME, ONE, TWO = (f"http://a.test/{name}" for name in ("", "1", "2"))


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
