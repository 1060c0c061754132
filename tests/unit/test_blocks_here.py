"""What a worker knows of blocks: what it foresees holds until Redis has heard of it."""

import asyncio
from collections.abc import Sequence

from crawler.throttle.blocks import Blocks
from crawler.throttle.turns import Ages, Granted, Standing, Waits

HOST = "a.test"


class SlowTurns:
    """Turns whose looks are answered when a test says so, with what held when they were asked."""

    def __init__(self) -> None:
        self.looking = asyncio.Event()
        self.answered = asyncio.Event()

    async def take(self, asked: Sequence[tuple[str, int]]) -> list[Granted]:
        """Not used here."""
        raise NotImplementedError

    async def hear(
        self, host: str, wait_seconds: float | None, ages: Ages, waits: Waits, rate: float = 0.0
    ) -> tuple[float, bool]:
        """Not used here."""
        raise NotImplementedError

    async def look(self, hosts: Sequence[str]) -> list[Standing]:
        """Nothing holds."""
        self.looking.set()
        await self.answered.wait()
        self.answered.clear()
        return [Standing() for _ in hosts]


def test_a_look_that_was_under_way_lifts_no_block_that_was_foreseen_since() -> None:
    asyncio.run(_foresee_while_looking())


async def _foresee_while_looking() -> None:
    now, turns = 100.0, SlowTurns()
    blocks = Blocks(turns, lambda: [HOST], lambda: now)
    looking = asyncio.create_task(blocks.run())
    blocks.change()
    await turns.looking.wait()
    blocks.foresee(HOST, 2.0)
    turns.looking.clear()
    turns.answered.set()
    blocks.change()
    await turns.looking.wait()
    assert blocks.until(HOST) == 102.0
    blocks.told(HOST)
    turns.answered.set()
    async with asyncio.timeout(5):
        while blocks.until(HOST) > now:
            await asyncio.sleep(0)
    looking.cancel()
