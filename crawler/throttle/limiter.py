"""Turns of hosts for requests that do not come through the frontier, and for those that missed theirs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgpack

from crawler.clock import Monotonic, monotonic
from crawler.redisdb.scripts import Call, read_script
from crawler.throttle.rules import RuleSet


class ThrottleScripts:
    """Builds the calls; ``keys`` are the partition's, in the order of redisdb/keys.py."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._limits = read_script("throttle", "limits")
        self._take = read_script("throttle", "take")

    def limits(self, rules: RuleSet) -> Call:
        """Makes these the rules of the whole fleet; answered with 1 if others were there."""
        return Call(self._limits, self._keys, rules.arguments())

    def take(self, hosts: Sequence[str]) -> Call:
        """Takes a turn of each host."""
        return Call(self._take, self._keys, hosts)


class Limiter:
    """Waits for turns, in one call for all that ask at the same time; blocks nothing."""

    def __init__(
        self, scripts: ThrottleScripts, ask: Callable[[Call], Awaitable[Any]], clock: Monotonic = monotonic
    ) -> None:
        self._scripts = scripts
        self._ask = ask
        self._clock = clock
        self._asking: list[tuple[str, asyncio.Future[tuple[float, float]]]] = []
        self._task: asyncio.Task[None] | None = None

    async def turn(self, host: str) -> None:
        """Returns when a request may be sent to the host, at once where it has no limit.

        Raises:
            TrawlnetError: Redis refuses in a way that waiting does not mend.
        """
        while True:
            at, ends = await self._next(host)
            wait = at - self._clock()
            if wait > 0:
                await asyncio.sleep(wait)
            if self._clock() <= ends:
                return

    def _next(self, host: str) -> "asyncio.Future[tuple[float, float]]":
        future: asyncio.Future[tuple[float, float]] = asyncio.get_running_loop().create_future()
        self._asking.append((host, future))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._take())
        return future

    async def _take(self) -> None:
        while self._asking:
            asking, self._asking = self._asking, []
            asked_at = self._clock()
            try:
                reply = msgpack.unpackb(await self._ask(self._scripts.take([host for host, _ in asking])))
            except BaseException as error:
                self._fail(asking, error)
                raise
            now, parts = self._clock(), iter(reply)
            for (_, future), wait_ms, slack_ms in zip(asking, parts, parts, strict=True):
                # The turn was given at some time between the asking and now.
                ends = asked_at + (wait_ms + slack_ms) / 1000 if slack_ms else float("inf")
                if not future.done():
                    future.set_result((now + wait_ms / 1000, ends))
        self._task = None

    def _fail(self, asking: list[tuple[str, "asyncio.Future[tuple[float, float]]"]], error: BaseException) -> None:
        self._task = None
        for _, future in [*asking, *self._asking]:
            if not future.done():
                future.set_exception(error)
        self._asking = []
