"""Turns of one download slot, as requests come, go and are given up."""

import asyncio

from crawler.components.door import Door


def test_those_in_front_are_let_in_and_others_follow_when_they_leave() -> None:
    async def check() -> None:
        door = Door(places=2, ahead=2)
        first, second, third = door.enter(), door.enter(), door.enter()
        assert [may.done() for may in (first, second, third)] == [True, True, False]
        door.leave(first)
        door.admit()
        assert third.done()

    asyncio.run(check())


def test_one_that_gave_up_takes_nobody_s_turn() -> None:
    async def check() -> None:
        door = Door()
        first, gone, last = door.enter(), door.enter(), door.enter()
        gone.cancel()
        door.leave(first)
        # The turn comes between the cancelling and the leaving, as when a spider closes.
        door.admit()
        door.leave(gone)
        door.admit()
        assert last.done()
        assert not last.cancelled()
        door.leave(last)
        assert (door.waiting, len(door.queue)) == (0, 0)

    asyncio.run(check())


def test_one_that_gives_up_in_the_queue_leaves_it() -> None:
    async def check() -> None:
        door = Door()
        first, gone = door.enter(), door.enter()
        gone.cancel()
        door.leave(gone)
        assert not door.queue
        door.leave(first)
        assert door.enter().done()

    asyncio.run(check())
