"""Hosts that asked for patience: what this worker knows of them, and what it hears of the fleet."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgpack

from crawler.clock import Monotonic, monotonic
from crawler.redisdb.scripts import Call
from crawler.throttle.limiter import ThrottleScripts

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.05
LOOK_SECONDS = 1.0
"""Looked so often even where Redis tells of no change; a worker that holds nothing asks nothing."""
CLAIM_SECONDS = 2.0
"""A claim is answered in far less; so long after a change, and after the start, each claim is followed by a look."""

LONGEST_SECONDS = 60.0
KNOWN_HOSTS = 10_000


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits: the first where a host names none (0: such answers are not heard), and the longest that it may name."""

    first_seconds: float = 1.0
    most_seconds: float = 86_400.0


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


class Blocks:
    """Until when hosts may not be asked, by this worker's clock. ``blocked`` is called with each host that is."""

    def __init__(
        self,
        scripts: ThrottleScripts,
        ask: Callable[[Call], Awaitable[Any]],
        patience: Patience,
        hosts: Callable[[], Collection[str]],
        clock: Monotonic = monotonic,
    ) -> None:
        self._scripts = scripts
        self._ask = ask
        self._patience = patience
        self._hosts = hosts
        self._clock = clock
        self._until: dict[str, float] = {}
        self._well_at: dict[str, float] = {}
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._changed_at = clock()
        self.blocked: Callable[[str], None] = lambda host: None

    def until(self, host: str) -> float:
        """The time of the clock at which the host may be asked again; past if it may be now."""
        return self._until.get(host, 0.0)

    def change(self) -> None:
        """Says that Redis told of a change."""
        self._changed_at = self._clock()
        self._changed.set()

    def claimed(self) -> None:
        """Says that a claim was answered: a change that came meanwhile was not looked at for the claim's hosts."""
        if self._clock() - self._changed_at < CLAIM_SECONDS:
            self._changed.set()

    def answered_well(self, host: str, sent_at: float) -> None:
        """Notes that a host that was blocked before has answered a request as it should."""
        if host in self._until:
            self._well_at[host] = sent_at

    def foresee(self, host: str, wait_seconds: float | None) -> None:
        """Blocks a host here at once, for what would be sent before Redis has answered to ``hear``."""
        wait = self._patience.first_seconds if wait_seconds is None else wait_seconds
        self._until[host] = max(self.until(host), self._clock() + min(wait, self._patience.most_seconds))

    async def hear(self, host: str, wait_seconds: float | None, sent_at: float) -> None:
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
        now, well_at = self._clock(), self._well_at.get(host)
        well_seconds = None if well_at is None else now - well_at
        call = self._scripts.hear(host, wait_seconds, now - sent_at, waits, well_seconds)
        async with self._turn:
            left_ms, new = msgpack.unpackb(await self._ask(call))
        if new:
            log.info("%s asks for patience: nobody asks it for %.1f s", host, left_ms / 1000)
        self._learn(host, left_ms)

    async def run(self) -> None:
        """Learns what others heard, whenever it has changed, of the hosts that this worker has to do with."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()
                    await asyncio.sleep(GATHER_SECONDS)
            self._changed.clear()
            hosts = sorted(self._hosts())
            if hosts:
                async with self._turn:
                    left = msgpack.unpackb(await self._ask(self._scripts.blocks(hosts)))
                for host, left_ms in zip(hosts, left, strict=True):
                    self._learn(host, left_ms)

    def _learn(self, host: str, left_ms: float) -> None:
        now = self._clock()
        if left_ms <= 0:
            # It was blocked, and may be again: kept to see whether it answers well in between.
            if host in self._until:
                self._until[host] = min(self._until[host], now)
            return
        if len(self._until) >= KNOWN_HOSTS:
            self._until = {each: until for each, until in self._until.items() if until > now}
            self._well_at.clear()
        self._until[host] = now + left_ms / 1000
        self.blocked(host)
