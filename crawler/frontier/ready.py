"""Claimed requests that were not handed over yet: those whose turn has come, and those that wait for it."""

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count

from crawler.clock import Monotonic
from crawler.frontier.held import Lease

Pair = tuple[Lease, Hashable]


class Ready:
    """Leases with their requests, in the order in which they may be started."""

    def __init__(self, clock: Monotonic) -> None:
        self._clock = clock
        self._now: deque[Pair] = deque()
        self._later: list[tuple[float, int, Pair]] = []
        self._number = count()

    def __len__(self) -> int:
        """How many may be started now."""
        self._move()
        return len(self._now)

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._later)

    def next_at(self) -> float | None:
        """When the next turn comes, on the clock; None if none waits."""
        return self._later[0][0] if self._later else None

    def add(self, lease: Lease, request: Hashable) -> None:
        """Takes a claimed request, to be started when its turn has come."""
        if lease.turn_at > self._clock():
            heapq.heappush(self._later, (lease.turn_at, next(self._number), (lease, request)))
        else:
            self._now.append((lease, request))

    def add_first(self, lease: Lease, request: Hashable) -> None:
        """Takes a request that goes before all others."""
        self._now.appendleft((lease, request))

    def pop(self) -> Pair | None:
        """The next request whose turn has come."""
        self._move()
        return self._now.popleft() if self._now else None

    def _move(self) -> None:
        if self._later:
            now = self._clock()
            while self._later and self._later[0][0] <= now:
                self._now.append(heapq.heappop(self._later)[2])

    def keep(self, wanted: Callable[[Lease], bool]) -> list[Pair]:
        """Forgets all but the wanted; returns what it forgot."""
        pairs = [*self._now, *(pair for _, _, pair in self._later)]
        self._now.clear()
        self._later.clear()
        for lease, request in pairs:
            if wanted(lease):
                self.add(lease, request)
        return [pair for pair in pairs if not wanted(pair[0])]
