"""What a worker of the fleet hears of hosts: failures, what their answers cost, and what robots.txt asks for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgpack

from crawler.clock import Monotonic, monotonic
from crawler.redisdb.scripts import Call
from crawler.throttle.blocks import Blocks
from crawler.throttle.limiter import ThrottleScripts
from crawler.throttle.refusals import Refusals

log = logging.getLogger(__name__)

LONGEST_OPEN_SECONDS = 300.0
GATHER_SECONDS = 0.05
LOST = 2


@dataclass(frozen=True, slots=True)
class Care:
    """When a host counts as broken, and what slows it down.

    Args:
        failures: in a row, at which a host's circuit opens; 0: never.
        open_seconds: how long it is open at first; it doubles.
        lost_seconds: how long it may fail until its URLs are given up.
        target: requests that a host should have under way on average, as AUTOTHROTTLE_TARGET_CONCURRENCY has it; 0:
            the time of its answers does not count.
        longest_delay_seconds: the longest interval that follows from that.
        counts_bytes: whether there are byte rates.
    """

    failures: int = 5
    open_seconds: float = 5.0
    lost_seconds: float = 600.0
    target: float = 0.0
    longest_delay_seconds: float = 60.0
    counts_bytes: bool = False


@dataclass(slots=True)
class _Cost:
    seconds: float = 0.0
    count: int = 0
    good: bool = True
    size: int = 0


class Hosts:
    """One worker's reports. Those that decide whether others may ask a host are awaited; costs are gathered."""

    def __init__(
        self,
        scripts: ThrottleScripts,
        ask: Callable[[Call], Awaitable[Any]],
        care: Care,
        blocks: Blocks,
        refusals: Refusals,
        clock: Monotonic = monotonic,
    ) -> None:
        self._scripts = scripts
        self._ask = ask
        self._care = care
        self._blocks = blocks
        self._clock = clock
        self._costs: dict[str, _Cost] = {}
        self._costly = asyncio.Event()
        self.refusals = refusals

    async def failed(self, host: str, sent_at: float) -> None:
        """Tells the fleet that a host did not work: it cannot be reached, or says that it is broken."""
        care = self._care
        if not care.failures:
            return
        waits = (care.open_seconds, LONGEST_OPEN_SECONDS, care.lost_seconds)
        call = self._scripts.fail(host, self.refusals.ages(host, sent_at), care.failures, waits)
        # What is learned of this answer must not be overtaken by what was asked before it.
        async with self._blocks.turn:
            left_ms, opened = msgpack.unpackb(await self._ask(call))
        if left_ms > 0:
            self._blocks.learn(host, left_ms / 1000)
        if opened == LOST:
            log.error("%s failed for over %.0f s: its URLs become dead letters", host, care.lost_seconds)
        elif opened:
            seconds = left_ms / 1000
            log.warning("%s fails again and again: nobody asks it for %.1f s, then one request tries it", host, seconds)

    async def worked(self, host: str, sent_at: float, *, tried: bool) -> None:
        """Notes that a host has answered as it should; told to the fleet if the request ``tried`` an open circuit."""
        self.refusals.worked(host, sent_at)
        if tried and await self._tell(self._scripts.well(host, self._clock() - sent_at)):
            log.info("%s works again", host)

    def cost(self, host: str, seconds: float, size: int, *, good: bool) -> None:
        """Notes how long an answer took and how many bytes it has."""
        if self._care.target or self._care.counts_bytes:
            cost = self._costs.setdefault(host, _Cost())
            cost.seconds += seconds
            cost.count += 1
            cost.size += size
            cost.good = cost.good and good
            self._costly.set()

    async def crawl_delay(self, host: str, seconds: float, lifetime_seconds: float) -> None:
        """Keeps requests of a host that far apart, for the whole fleet and so long."""
        await self._tell(self._scripts.crawl_delay(host, seconds, lifetime_seconds))

    async def address(self, host: str, found: str) -> str:
        """The address by which the fleet goes for a host, one of which this worker found."""
        answer: bytes = await self._tell(self._scripts.address(host, found))
        return answer.decode()

    async def run(self) -> None:
        """Tells the fleet what answers cost, soon after they came."""
        care = self._care
        while True:
            await self._costly.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._costly.clear()
            costs, self._costs = self._costs, {}
            told = [(host, each.seconds / each.count, each.count, each.good, each.size) for host, each in costs.items()]
            await self._tell(self._scripts.report(care.target, care.longest_delay_seconds, told))

    async def _tell(self, call: Call) -> Any:
        async with self._blocks.turn:
            return await self._ask(call)
