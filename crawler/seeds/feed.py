"""Feeds start URLs from Redis into the frontier as they come, with back-pressure; nothing is taken out before it
is in.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from crawler.clock import Monotonic, monotonic
from crawler.frontier.plan import Letter, Put
from crawler.frontier.stream import Stream
from crawler.seeds.intake import IntakeScripts, WrongKeyType

log = logging.getLogger(__name__)

LEASE_MS = 15_000
ENOUGH_WAITING = 1000
BUSY_LOOK_SECONDS = 0.2


class Frontier(Protocol):
    """Where seeds go."""

    def offer(self, put: Put, lease: None, answered: Callable[[bool], None] | None = None) -> None:
        """Takes an entry; ``answered`` is called when it is in."""

    def bury(self, letter: Letter) -> None:
        """Takes a dead letter."""


class SeedFeed:
    """Reads one start URLs key. ``unread`` and ``outstanding`` are what the last look saw."""

    def __init__(  # noqa: PLR0913 - each is one seam of the feed, joined in assembly only
        self,
        stream: Stream,
        scripts: IntakeScripts,
        frontier: Frontier,
        make: Callable[[str, bytes], Sequence[Put | Letter]],
        waiting: Callable[[], int],
        look_seconds: Callable[[], float],
        batch: int,
        clock: Monotonic = monotonic,
    ) -> None:
        self._stream = stream
        self._scripts = scripts
        self._frontier = frontier
        self._make = make
        self._waiting = waiting
        self._look_seconds = look_seconds
        self._batch = batch
        self._clock = clock
        self._changed = asyncio.Event()
        self.unread = 0
        self.outstanding = 0
        self.looked_at = 0.0
        self.read = 0
        self.taking = True

    def wake(self) -> None:
        """Says that the key changed."""
        self._changed.set()

    async def run(self) -> None:
        """Looks whenever the key changes, soon again while there is more, else now and then; until cancelled."""
        while True:
            wait = BUSY_LOOK_SECONDS if self.unread else self._look_seconds()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            self._changed.clear()
            if self.taking and self._waiting() < ENOUGH_WAITING:
                await self.look()
                if self.unread and self._waiting() + self._batch < ENOUGH_WAITING:
                    self._changed.set()

    async def look(self) -> None:
        """Takes one batch of seeds and waits until they are in the frontier."""
        try:
            taken = self._scripts.read(await self._stream.ask(self._scripts.take(self._batch, LEASE_MS)))
        except WrongKeyType as error:
            log.error("%s", error)
            self.looked_at = self._clock()
            return
        self.unread, self.outstanding = taken.unread, taken.outstanding
        self.looked_at = self._clock()
        if taken.seeds:
            await self._feed(taken.seeds)
            log.info("Read %d requests from %r", len(taken.seeds), self._scripts.keys.start)

    async def _feed(self, seeds: Sequence[tuple[str, bytes]]) -> None:
        loop = asyncio.get_running_loop()
        into: list[asyncio.Future[None]] = []
        for seed_id, raw in seeds:
            for made in self._make(seed_id, raw):
                if not isinstance(made, Put):
                    self._frontier.bury(made)
                    continue
                future: asyncio.Future[None] = loop.create_future()
                into.append(future)
                self._frontier.offer(made, None, partial(_arrived, future))
        if into:
            await asyncio.wait(into)
        self.read += len(seeds)
        await self._stream.ask(self._scripts.taken([seed_id for seed_id, _ in seeds]))
        self.outstanding = max(0, self.outstanding - len(seeds))


def _arrived(future: "asyncio.Future[None]", new: bool) -> None:
    if not future.done():
        future.set_result(None)
