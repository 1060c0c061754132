"""Hosts that nobody asks just now, as this worker knows of them."""

import asyncio
import contextlib
from collections.abc import Callable, Collection

from crawler.clock import Monotonic, monotonic
from crawler.throttle.turns import LOOK_SECONDS, PAUSED, REFUSED, SLOWED, Turns

GATHER_SECONDS = 0.05
CLAIM_SECONDS = 2.0
"""A claim is answered in far less; so long after a change, and after the start, each claim is followed by a look."""

PAUSED_SECONDS = 3600.0
"""A paused host counts as blocked for so long, until the next look says otherwise."""

FORESEEN_SECONDS = 60.0
"""For so long at most what was foreseen counts although Redis has not heard of it."""

KNOWN_HOSTS = 10_000


class Blocks:
    """Until when hosts may not be asked, by this worker's clock. ``blocked`` is called with each host that is."""

    def __init__(
        self,
        turns: Turns,
        hosts: Callable[[], Collection[str]],
        clock: Monotonic = monotonic,
    ) -> None:
        self._turns = turns
        self._hosts = hosts
        self._clock = clock
        self._until: dict[str, float] = {}
        self._foreseen: dict[str, float] = {}
        self._states: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._changed_at = clock()
        self.turn = asyncio.Lock()
        self.blocked: Callable[[str], None] = lambda host: None

    def until(self, host: str) -> float:
        """The time of the clock at which the host may be asked again; past if it may be now."""
        return self._until.get(host, 0.0)

    def is_slowed(self, host: str) -> bool:
        """Whether the host has a pace that is not its rule's."""
        return host in self._states

    def is_refused(self, host: str) -> bool:
        """Whether an operator refuses the host."""
        return self._states.get(host) == REFUSED

    def change(self) -> None:
        """Says that Redis told of a change."""
        self._changed_at = self._clock()
        self._changed.set()

    def claimed(self) -> None:
        """Says that a claim was answered: a change that came meanwhile was not looked at for the claim's hosts."""
        if self._clock() - self._changed_at < CLAIM_SECONDS:
            self._changed.set()

    def foresee(self, host: str, wait_seconds: float) -> None:
        """Blocks a host here at once, for what would be sent before Redis has answered; until ``told`` no look at
        Redis lifts that.
        """
        now = self._clock()
        self._until[host] = max(self.until(host), now + wait_seconds)
        self._foreseen[host] = now + FORESEEN_SECONDS

    def told(self, host: str) -> None:
        """Says that Redis has heard of what was foreseen."""
        self._foreseen.pop(host, None)

    def _unheard(self, host: str) -> float:
        now = self._clock()
        return self.until(host) - now if self._foreseen.get(host, 0.0) > now else 0.0

    async def run(self) -> None:
        """Learns what holds, whenever it has changed, for the hosts that this worker has to do with.

        It looks now and then even where Redis tells of no change; a worker that holds nothing asks nothing.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()
                    await asyncio.sleep(GATHER_SECONDS)
            self._changed.clear()
            hosts = sorted(self._hosts())
            if hosts:
                async with self.turn:
                    standings = await self._turns.look(hosts)
                for host, standing in zip(hosts, standings, strict=True):
                    self.learn(host, max(standing.left_seconds, self._unheard(host)), standing.state)

    def learn(self, host: str, left_seconds: float, state: int = SLOWED) -> None:
        """Takes what Redis says of a host: for how long it is blocked, and what else holds for it."""
        if len(self._until) >= KNOWN_HOSTS or len(self._states) >= KNOWN_HOSTS:
            self._forget()
        if state:
            self._states[host] = state
        else:
            self._states.pop(host, None)
        now = self._clock()
        if state >= PAUSED:
            left_seconds = PAUSED_SECONDS
        if left_seconds > 0:
            self._until[host] = now + left_seconds
            self.blocked(host)
        elif host in self._until:
            self._until[host] = min(self._until[host], now)

    def _forget(self) -> None:
        now = self._clock()
        self._until = {host: until for host, until in self._until.items() if until > now}
        self._foreseen = {host: until for host, until in self._foreseen.items() if until > now}
        self._states = {host: state for host, state in self._states.items() if host in self._until}
