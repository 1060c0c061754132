"""Turns that a process keeps to itself: the strategies of lua/lib/host.lua and the blocks of lua/hear.lua in memory."""

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from crawler.clock import Monotonic, monotonic
from crawler.throttle.rules import Rule, RuleSet
from crawler.throttle.turns import LOOK_SECONDS, Ages, Granted, Standing, Waits

Uniform = Callable[[float, float], float]

AGAIN = -0.001
BACKOFF_JITTER = 0.1
MOST_DOUBLINGS = 60
SWEEP_HOSTS = 1000
"""Records that tell nothing any more go when there are so many, or twice as many as the last sweep left."""


class _Record(Protocol):
    """The turns of one host; times in microseconds."""

    slack_seconds: float
    mark: int
    ends: int

    def take(self, start: int, missed: int) -> int:
        """Takes the first turn from ``start`` on."""


class _TokenBucket:
    """The generic cell rate algorithm (ITU-T I.371) as a virtual schedule; a turn's mark is the arrival time after."""

    def __init__(self, rule: Rule, uniform: Uniform) -> None:
        _, self._interval, self._burst, self._jitter, slack_ms, *_ = rule.packed()
        self.slack_seconds: float = slack_ms / 1000
        self._uniform = uniform
        self.mark = self.ends = 0

    def take(self, start: int, missed: int) -> int:
        """Takes a turn; who missed the last one that was given gets it again from ``start`` on."""
        arrival = min(self.mark, start) if missed and missed == self.mark else self.mark
        at: int = max(start, arrival - (self._burst - 1) * self._interval)
        interval = self._interval * (1 + self._uniform(-self._jitter, self._jitter))
        self.mark = self.ends = math.floor(max(arrival, at) + interval)
        return at


class _SlidingWindow:
    """Each turn is a window after the one that came the burst before."""

    mark = 0

    def __init__(self, rule: Rule, uniform: Uniform) -> None:
        self._window: int
        _, self._window, burst, _, slack_ms, *_ = rule.packed()
        self.slack_seconds: float = slack_ms / 1000
        self._turns: deque[int] = deque(maxlen=burst)
        self.ends = 0

    def take(self, start: int, missed: int) -> int:
        """Takes a turn."""
        turns = self._turns
        at = max(start, turns[-1] if turns else 0)
        if len(turns) == turns.maxlen:
            at = max(at, turns[0] + self._window)
        turns.append(at)
        self.ends = at + self._window
        return at


class _FixedWindow:
    """Windows begin at multiples of their length on the clock."""

    mark = 0

    def __init__(self, rule: Rule, uniform: Uniform) -> None:
        self._length: int
        _, self._length, self._burst, _, slack_ms, *_ = rule.packed()
        self.slack_seconds: float = slack_ms / 1000
        self._window = self._count = 0
        self.ends = 0

    def take(self, start: int, missed: int) -> int:
        """Takes a turn."""
        current = start // self._length
        if current > self._window:
            self._window, self._count = current, 0
        if self._count == self._burst:
            self._window, self._count = self._window + 1, 0
        self._count += 1
        self.ends = (self._window + 1) * self._length
        return max(start, self._window * self._length)


_STRATEGIES: dict[str, Callable[[Rule, Uniform], _Record]] = {
    "token_bucket": _TokenBucket,
    "sliding_window": _SlidingWindow,
    "fixed_window": _FixedWindow,
}


@dataclass(slots=True)
class _Heard:
    """Events of a host that asked for patience: the last one, how many in a row, when those are forgotten, and until
    when it is blocked; seconds of the clock.
    """

    ends: float = -math.inf
    count: int = 0
    forgotten_at: float = -math.inf
    until: float = -math.inf


class MemoryTurns:
    """Gives turns by rules that do not change, on a clock of this process."""

    def __init__(self, rules: RuleSet, clock: Monotonic = monotonic, uniform: Uniform = random.uniform) -> None:
        self._rules = rules
        self._clock = clock
        self._uniform = uniform
        self._records: dict[str, _Record] = {}
        self._heard: dict[str, _Heard] = {}
        self._sweep_at = SWEEP_HOSTS

    @property
    def records(self) -> int:
        """How many records of hosts are kept."""
        return len(self._records) + len(self._heard)

    async def take(self, asked: Sequence[tuple[str, int]]) -> list[Granted]:
        """Takes a turn of each host."""
        now = self._clock()
        self._sweep(now)
        return [self._take(host, missed, now) for host, missed in asked]

    def _take(self, host: str, missed: int, now: float) -> Granted:
        heard = self._heard.get(host)
        if heard and heard.until > now:
            return Granted(min(LOOK_SECONDS, heard.until - now), AGAIN)
        record = self._records.get(host)
        if record is None:
            rule = self._rules.of(host)
            if not rule.rate:
                return Granted(0.0, 0.0)
            record = self._records[host] = _STRATEGIES[rule.strategy](rule, self._uniform)
        at = record.take(_us(now), missed)
        return Granted(max(0.0, at / 1e6 - now), record.slack_seconds, record.mark)

    async def hear(
        self, host: str, wait_seconds: float | None, ages: Ages, waits: Waits, rate: float = 0.0
    ) -> tuple[float, bool]:
        """Blocks a host that asked for patience; a block only grows. Its pace after that is its rule's."""
        now = self._clock()
        self._sweep(now)
        first, longest, most = waits
        heard = self._heard.setdefault(host, _Heard())
        if heard.forgotten_at <= now:
            heard.ends, heard.count = -math.inf, 0
        new = now - ages.sent >= heard.ends
        if new:
            well = ages.well is not None and now - ages.well >= heard.ends
            heard.count = 1 if well else heard.count + 1
        wait = 0.0
        if wait_seconds is not None:
            wait = min(wait_seconds, most)
        elif new:
            wait = min(first * 2 ** min(heard.count - 1, MOST_DOUBLINGS), longest)
            wait *= 1 + self._uniform(0, BACKOFF_JITTER)
        if new:
            heard.ends, heard.forgotten_at = now + wait, now + 3 * max(wait, first)
        heard.until = max(heard.until, now + wait)
        return max(0.0, heard.until - now), new

    async def look(self, hosts: Sequence[str]) -> list[Standing]:
        """What holds for each host."""
        now = self._clock()
        return [
            Standing(max(0.0, self._heard[host].until - now)) if host in self._heard else Standing() for host in hosts
        ]

    def _sweep(self, now: float) -> None:
        if self.records < self._sweep_at:
            return
        us = _us(now)
        self._records = {host: record for host, record in self._records.items() if record.ends > us}
        self._heard = {host: heard for host, heard in self._heard.items() if max(heard.forgotten_at, heard.until) > now}
        self._sweep_at = max(SWEEP_HOSTS, 2 * self.records)


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
