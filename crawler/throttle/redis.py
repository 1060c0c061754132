"""Turns that all processes of a crawl share through Redis, on Redis's clock."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgpack

from crawler.redisdb.scripts import Call
from crawler.throttle.limiter import ThrottleScripts
from crawler.throttle.turns import Ages, Granted, Standing, Waits


class RedisTurns:
    """Runs the scripts; ``ask`` sends one call and is used by one coroutine at a time."""

    def __init__(self, scripts: ThrottleScripts, ask: Callable[[Call], Awaitable[Any]]) -> None:
        self._scripts = scripts
        self._ask = ask

    async def take(self, asked: Sequence[tuple[str, int]]) -> list[Granted]:
        """Takes a turn of each host."""
        parts = iter(msgpack.unpackb(await self._ask(self._scripts.take(asked))))
        return [
            Granted(wait_ms / 1000, slack_ms / 1000, int(mark))
            for wait_ms, slack_ms, mark in zip(parts, parts, parts, strict=True)
        ]

    async def hear(
        self, host: str, wait_seconds: float | None, ages: Ages, waits: Waits, rate: float = 0.0
    ) -> tuple[float, bool]:
        """Blocks a host that asked for patience."""
        left_ms, new = msgpack.unpackb(await self._ask(self._scripts.hear(host, wait_seconds, ages, waits, rate)))
        return left_ms / 1000, bool(new)

    async def look(self, hosts: Sequence[str]) -> list[Standing]:
        """What holds for each host."""
        parts = iter(msgpack.unpackb(await self._ask(self._scripts.blocks(hosts))))
        return [Standing(left_ms / 1000, state) for left_ms, state in zip(parts, parts, strict=True)]
