"""One worker's ordered stream: each batch runs once, whatever is sent again, and what cannot be mended is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from crawler.errors import StaleSession
from crawler.frontier.store import Plan, SeenSpec, Session
from crawler.frontier.stream import ClaimOrder, FrontierBroken, Stream
from crawler.redisdb.connect import RedisTarget
from tests.support.frontier import IDENTITY, FleetOnServer, Member, bodies, leases, page, unfiltered

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
    assert worker.session.read_claimed(worker.resend(1))[0] == claimed
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
            assert len(first.claimed) == 4
            for at, claimed in enumerate(first.claimed):
                way.lose = at % 3
                plan = Plan(done=[claimed.lease])
                links = [page(f"http://b.test/{at}"), page(f"http://a.test/{at}")]
                answer = await stream.exchange(links, plan, ORDER)
                assert (answer.new, answer.stale, bodies(answer.claimed)) == (b"10", [], [f"http://b.test/{at}"])
            await client.aclose()

    asyncio.run(crawl())
    assert fleet.counters() == {"put": 8, "seen": 8, "done": 4}
    assert fleet.redis.scard(fleet.partition.held("w1")) == 4


ORDER = ClaimOrder(10, 60_000, 100, {})


@both
@pytest.mark.parametrize("key", ["hosts", "counters", "inflight", "lease", "q:a.test:0", "seen:1", "held:w1"])
def test_a_key_of_a_wrong_type_is_told_with_the_name_of_the_crawl(fleet: FleetOnServer, key: str) -> None:
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
