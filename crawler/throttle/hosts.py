"""What this worker hears of hosts, told to the fleet: refusals, failures, and what their answers cost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgpack

from crawler.clock import Monotonic, monotonic
from crawler.redisdb.scripts import Call
from crawler.throttle.blocks import KNOWN_HOSTS, Blocks
from crawler.throttle.limiter import Ages, ThrottleScripts

log = logging.getLogger(__name__)

LONGEST_SECONDS = 60.0
LONGEST_OPEN_SECONDS = 300.0
GATHER_SECONDS = 0.05
RATE_SECONDS = 2.0
LOST = 2


@dataclass(frozen=True, slots=True)
class Patience:
    """How long hosts are left alone, and what slows them down.

    Args:
        first_seconds: after a refusal that names no wait; it doubles. 0: such answers are not heard.
        most_seconds: the most that a host may ask for.
        failures: in a row, at which a host's circuit opens; 0: never.
        open_seconds: how long it is open at first; it doubles.
        lost_seconds: how long it may fail until its URLs are given up.
        target: requests that a host should have under way on average, as AUTOTHROTTLE_TARGET_CONCURRENCY has it; 0:
            the time of its answers does not count.
        longest_delay_seconds: the longest interval that follows from that.
        counts_bytes: whether there are byte rates.
    """

    first_seconds: float = 1.0
    most_seconds: float = 86_400.0
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


def retry_after_seconds(value: str, now: datetime) -> float | None:
    """The wait that a Retry-After header asks for; None where it cannot be read, or asks for none.

    Args:
        value: seconds, or a date as RFC 9110 has them.
        now: the time that the host's dates are compared with, in UTC.
    """
    text = value.strip()
    if text.isascii() and text.isdigit():
        # Longer numbers are as absurd, and float() of them overflows.
        seconds = float(text[:12])
    else:
        try:
            date = parsedate_to_datetime(text)
        except (TypeError, ValueError):
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds()
    return seconds if seconds > 0 else None


class Hosts:
    """One worker's reports. Those that decide whether others may ask a host are awaited; costs are gathered."""

    def __init__(
        self,
        scripts: ThrottleScripts,
        ask: Callable[[Call], Awaitable[Any]],
        patience: Patience,
        blocks: Blocks,
        clock: Monotonic = monotonic,
    ) -> None:
        self._scripts = scripts
        self._ask = ask
        self._patience = patience
        self._blocks = blocks
        self._clock = clock
        self._well_at: dict[str, float] = {}
        self._rates: dict[str, tuple[float, int, float]] = {}
        self._costs: dict[str, _Cost] = {}
        self._costly = asyncio.Event()
        # What is learned of one answer must not be overtaken by what was asked before it.
        self._turn = blocks.turn

    def sent(self, host: str) -> None:
        """Counts a request."""
        since, count, rate = self._rates.get(host, (0.0, 0, 0.0))
        now = self._clock()
        if now - since >= RATE_SECONDS:
            if len(self._rates) >= KNOWN_HOSTS:
                self._rates.clear()
            self._rates[host] = now, 1, count / (now - since)
        else:
            self._rates[host] = since, count + 1, rate

    def _rate(self, host: str) -> float:
        since, count, rate = self._rates.get(host, (0.0, 0, 0.0))
        return max(rate, count / max(RATE_SECONDS, self._clock() - since))

    def foresee(self, host: str, wait_seconds: float | None) -> None:
        """Blocks a host that refused here at once, for what would be sent before Redis has answered."""
        patience = self._patience
        wait = patience.first_seconds if wait_seconds is None else wait_seconds
        self._blocks.foresee(host, min(wait, patience.most_seconds))

    async def refused(self, host: str, wait_seconds: float | None, sent_at: float) -> None:
        """Tells the fleet that a host asked for patience.

        Args:
            host: the host.
            wait_seconds: what its Retry-After says; None without one.
            sent_at: when the request was sent that it answered.
        """
        patience = self._patience
        if not patience.first_seconds and wait_seconds is None:
            return
        waits = (patience.first_seconds, LONGEST_SECONDS, patience.most_seconds)
        call = self._scripts.hear(host, wait_seconds, self._ages(host, sent_at), waits, self._rate(host))
        if await self._tell(host, call):
            left = self._blocks.until(host) - self._clock()
            log.info("%s asks for patience: nobody asks it for %.1f s", host, left)

    async def failed(self, host: str, sent_at: float) -> None:
        """Tells the fleet that a host did not work: it cannot be reached, or says that it is broken."""
        patience = self._patience
        if not patience.failures:
            return
        waits = (patience.open_seconds, LONGEST_OPEN_SECONDS, patience.lost_seconds)
        call = self._scripts.fail(host, self._ages(host, sent_at), patience.failures, waits)
        opened = await self._tell(host, call)
        if opened == LOST:
            log.error("%s failed for over %.0f s: its URLs become dead letters", host, patience.lost_seconds)
        elif opened:
            left = self._blocks.until(host) - self._clock()
            log.warning("%s fails again and again: nobody asks it for %.1f s, then one request tries it", host, left)

    async def _tell(self, host: str, call: Call) -> int:
        async with self._turn:
            left_ms, new = msgpack.unpackb(await self._ask(call))
        if left_ms > 0:
            self._blocks.learn(host, left_ms / 1000)
        return int(new)

    def _ages(self, host: str, sent_at: float) -> Ages:
        now, well_at = self._clock(), self._well_at.get(host)
        return Ages(now - sent_at, None if well_at is None else now - well_at)

    async def worked(self, host: str, sent_at: float, *, tried: bool) -> None:
        """Notes that a host has answered as it should; told to the fleet if the request ``tried`` an open circuit."""
        if len(self._well_at) >= KNOWN_HOSTS:
            self._well_at.clear()
        self._well_at[host] = sent_at
        if tried:
            async with self._turn:
                if await self._ask(self._scripts.well(host, self._clock() - sent_at)):
                    log.info("%s works again", host)

    def cost(self, host: str, seconds: float, size: int, *, good: bool) -> None:
        """Notes how long an answer took and how many bytes it has."""
        patience = self._patience
        if patience.target or patience.counts_bytes:
            cost = self._costs.setdefault(host, _Cost())
            cost.seconds += seconds
            cost.count += 1
            cost.size += size
            cost.good = cost.good and good
            self._costly.set()

    async def crawl_delay(self, host: str, seconds: float, lifetime_seconds: float) -> None:
        """Tells the fleet of the delay that a host's robots.txt asks for, and how long that holds; 0: none."""
        async with self._turn:
            await self._ask(self._scripts.delay(host, seconds, lifetime_seconds))

    async def address(self, host: str, found: str) -> str:
        """The address by which the fleet goes for a host, one of which this worker found."""
        async with self._turn:
            answer: bytes = await self._ask(self._scripts.address(host, found))
        return answer.decode()

    async def run(self) -> None:
        """Tells the fleet what answers cost, soon after they came."""
        patience = self._patience
        while True:
            await self._costly.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._costly.clear()
            costs, self._costs = self._costs, {}
            told = [(host, each.seconds / each.count, each.count, each.good, each.size) for host, each in costs.items()]
            async with self._turn:
                await self._ask(self._scripts.report(patience.target, patience.longest_delay_seconds, told))
