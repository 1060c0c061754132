"""Turns of hosts for requests that do not come through the frontier, and for those that missed theirs."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crawler.clock import Monotonic, monotonic
from crawler.loop import CANCEL_SECONDS
from crawler.redisdb.scripts import Call, read_script
from crawler.throttle.rules import SINGLE_MARGIN, RuleSet
from crawler.throttle.turns import Ages, Turns, Waits


class ThrottleScripts:
    """Builds the calls; ``keys`` are the partition's, in the order of redisdb/keys.py."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._limits = read_script("throttle", "limits")
        self._take = read_script("throttle", "take")
        self._hear = read_script("throttle", "hear")
        self._blocks = read_script("throttle", "blocks")
        self._fail = read_script("throttle", "fail")
        self._well = read_script("throttle", "well")
        self._report = read_script("throttle", "report")
        self._delay = read_script("throttle", "delay")
        self._address = read_script("throttle", "address")

    def limits(self, rules: RuleSet) -> Call:
        """Makes these the rules of the whole fleet; answered with 1 if others were there."""
        return Call(self._limits, self._keys, rules.arguments())

    def take(self, asked: Sequence[tuple[str, int]]) -> Call:
        """Takes a turn of each host; beside it the mark of the turn that was missed, or 0."""
        return Call(self._take, self._keys, [part for host, missed in asked for part in (host, missed or "")])

    def hear(self, host: str, asked_seconds: float | None, ages: Ages, waits: Waits, rate: float = 0.0) -> Call:
        """Notes that a host asked for patience.

        Args:
            host: the host.
            asked_seconds: the wait that it named, if any.
            ages: of the request that it answered so.
            waits: the first of a host that names none, the longest of those, and the most that a host may name.
            rate: how often this worker asked it of late, requests a second.
        """
        args: list[bytes | str | int] = [host, _ms(asked_seconds), _ms(ages.sent)]
        args += (*map(_ms, waits), _ms(ages.well), round(rate * 1000))
        return Call(self._hear, self._keys, args)

    def fail(self, host: str, ages: Ages, failures: int, waits: Waits) -> Call:
        """Notes that a host does not work; at so many ``failures`` its circuit opens for the first of the waits, and
        it is lost when it failed for as long as the last.
        """
        args: list[bytes | str | int] = [host, _ms(ages.sent), _ms(ages.well), failures, *map(_ms, waits)]
        return Call(self._fail, self._keys, args)

    def well(self, host: str, sent_seconds: float) -> Call:
        """Notes that a host works, since it answered a request of that age."""
        return Call(self._well, self._keys, [host, _ms(sent_seconds)])

    def report(self, target: float, longest_seconds: float, costs: Iterable[tuple[str, float, int, bool, int]]) -> Call:
        """Notes what answers cost: for each host their mean time (s), how many, if all were good, and bytes."""
        args: list[bytes | str | int] = [repr(target), round(longest_seconds * 1e6)]
        for host, seconds, count, good, size in costs:
            args += (host, round(seconds * 1e6), count, int(good), size)
        return Call(self._report, self._keys, args)

    def crawl_delay(self, host: str, seconds: float, lifetime_seconds: float) -> Call:
        """Keeps requests of a host that far apart, and for so long."""
        apart = round(seconds * (1 + SINGLE_MARGIN) * 1e6)
        return Call(self._delay, self._keys, [host, apart, _ms(lifetime_seconds)])

    def address(self, host: str, address: str) -> Call:
        """Makes an address that of a host, unless it has one; answered with what it has."""
        return Call(self._address, self._keys, [host, address])

    def blocks(self, hosts: Sequence[str]) -> Call:
        """How long hosts are blocked, in milliseconds, and what else holds for each (blocks.lua)."""
        return Call(self._blocks, self._keys, hosts)


def _ms(seconds: float | None) -> int:
    return -1 if seconds is None else round(seconds * 1000)


@dataclass(frozen=True, slots=True)
class Turn:
    """The time, on the clock, from which and until which a request may be sent; the mark names the turn."""

    at: float
    ends: float
    mark: int = 0


NO_TURN = Turn(0.0, 0.0)
"""In place of a turn for who has none."""


class Limiter:
    """Waits for turns, in one call for all that ask at the same time; blocks nothing."""

    def __init__(self, turns: Turns, clock: Monotonic = monotonic) -> None:
        self._turns = turns
        self._clock = clock
        self._asking: list[tuple[str, int, asyncio.Future[Turn]]] = []
        self._task: asyncio.Task[None] | None = None

    async def turn(self, host: str, missed: Turn = NO_TURN) -> Turn:
        """Returns when a request may be sent to the host, at once where it has no limit.

        Args:
            host: the host.
            missed: a turn that was not used; if it was the last one given, it is not lost.

        Raises:
            TrawlnetError: Redis refuses in a way that waiting does not mend.
        """
        turn = missed
        while True:
            turn = await self._next(host, turn.mark)
            wait = turn.at - self._clock()
            if wait > 0:
                await asyncio.sleep(wait)
            if self._clock() <= turn.ends:
                return turn

    def _next(self, host: str, missed: int) -> "asyncio.Future[Turn]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Turn] = loop.create_future()
        self._asking.append((host, missed, future))
        if self._task is None:
            self._task = loop.create_task(self._take())
        return future

    async def _take(self) -> None:
        while self._asking:
            asking, self._asking = self._asking, []
            asked_at = self._clock()
            try:
                granted = await self._turns.take([(host, missed) for host, missed, _ in asking])
            except BaseException as error:
                self._fail([*asking, *self._asking], error)
                raise
            now = self._clock()
            for (*_, future), turn in zip(asking, granted, strict=True):
                # The turn was given at some time between the asking and now.
                ends = asked_at + turn.wait_seconds + turn.slack_seconds if turn.slack_seconds else float("inf")
                if not future.done():
                    future.set_result(Turn(now + turn.wait_seconds, ends, turn.mark))
        self._task = None

    async def close(self) -> None:
        """Gives up what is being asked; nobody may wait for a turn any more."""
        while self._task is not None:
            # Again, until it is heard, as in loop.py.
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CANCEL_SECONDS)

    def _fail(self, asking: Sequence[tuple[str, int, "asyncio.Future[Turn]"]], error: BaseException) -> None:
        self._task, self._asking = None, []
        for *_, future in asking:
            if not future.done():
                future.set_exception(error)
