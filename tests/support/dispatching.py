"""A worker's dispatcher, fed by an engine whose downloads end when the test says so."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from typing import Any

from crawler.clock import Monotonic
from crawler.dispatch import Dispatcher
from crawler.frontier.held import Decoded, Lease
from crawler.frontier.options import Options, Slots
from crawler.frontier.store import Claimed, SeenSpec, Session
from crawler.frontier.stream import Stream
from crawler.redisdb.connect import RedisTarget
from tests.support.frontier import IDENTITY, LAPSE_SECONDS, FleetOnServer, page


class Engine:
    """A crawler whose downloads and callbacks end when the test says so."""

    def __init__(self) -> None:
        self.running: set[Hashable] = set()
        self.downloading: set[Hashable] = set()
        self.refused: dict[str, Exception] = {}
        self.woken = 0
        self.given_up: list[Hashable] = []

    def decode(self, claimed: Claimed) -> Decoded:
        url = claimed.body.decode()
        if url in self.refused:
            raise self.refused[url]
        return Decoded(url, url, claimed.body[:8])

    def has(self, request: Hashable) -> bool:
        return request in self.running

    def is_downloading(self, request: Hashable) -> bool:
        return request in self.downloading

    def give_up(self, request: Hashable) -> None:
        self.given_up.append(request)

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
