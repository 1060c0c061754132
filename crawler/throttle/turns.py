"""What gives turns of hosts: one contract, kept in Redis for a fleet and in memory for a process of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

LOOK_SECONDS = 1.0
"""Turns of a host that is blocked are asked for again so often, since who lifts the block does not know who waits."""

SLOWED, PAUSED, REFUSED = 1, 2, 3
"""States of a host beside 0: it has a pace that is not its rule's; an operator paused it; an operator refuses it."""

Waits = tuple[float, float, float]
"""The first wait of those that double, the longest of them, and the most that a host may ask for; seconds."""


class Ages(NamedTuple):
    """Seconds since a request was sent, and since the last one was that its host answered well, if there is one."""

    sent: float
    well: float | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """A turn: it comes after ``wait_seconds`` and lasts for ``slack_seconds``, 0 for one without end; below 0 it is to
    be asked for again after the wait. The mark names it, 0 where it has none.
    """

    wait_seconds: float
    slack_seconds: float
    mark: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What holds for a host: seconds until it may be asked, and its state."""

    left_seconds: float = 0.0
    state: int = 0


class Turns(Protocol):
    """Gives turns by the rules of hosts, none before the end of a host's block."""

    async def take(self, asked: Sequence[tuple[str, int]]) -> Sequence[Granted]:
        """Takes a turn of each host, in order; beside it the mark of the turn that was missed, or 0."""

    async def hear(
        self, host: str, wait_seconds: float | None, ages: Ages, waits: Waits, rate: float = 0.0
    ) -> tuple[float, bool]:
        """Blocks a host that asked for patience; seconds until it may be asked, and whether this is a new event.

        Args:
            host: the host.
            wait_seconds: the wait that it named, if any.
            ages: of the request that it answered so.
            waits: the first of a host that names none, the longest of those, and the most that one may name.
            rate: how often this process asked it of late, requests a second.
        """

    async def look(self, hosts: Sequence[str]) -> Sequence[Standing]:
        """What holds for each host; at least one host."""
