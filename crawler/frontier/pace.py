"""How much a worker claims: what it can start soon, and no more, so that none sits on the work of others."""

from collections.abc import Callable, Hashable, Iterable

from crawler.clock import Monotonic
from crawler.frontier.held import Lease
from crawler.frontier.options import Slots
from crawler.frontier.permits import Permits
from crawler.frontier.store import ClaimOrder

RATE_SECONDS = 0.5
AHEAD_SECONDS = 0.3
"""Work claimed ahead lasts about so long at the pace of the last seconds, and turns of hosts are taken so long before;
far more than a round trip.
"""
MOST_AT_ONCE = 256
HELD_FOR_EACH_SLOT = 8
"""Leases held for each concurrent request, at most: when storage is slow, claims stop and not memory."""


class Pace:
    """Counts starts, and makes the order of a claim."""

    def __init__(self, slots: Slots, clock: Monotonic) -> None:
        self._slots = slots
        self._clock = clock
        self._rate = 0.0
        self._started = 0
        self._rated_at = clock()
        self.permits = Permits()

    def started(self) -> None:
        """Counts a request that was handed over."""
        self._started += 1

    def order(self, held: Iterable[Lease], ready: int, is_downloading: Callable[[Hashable], bool]) -> ClaimOrder | None:
        """What to claim now; None while enough is at hand. One that wants nothing only reports permits.

        Args:
            held: all leases held.
            ready: how many requests wait to be handed over.
            is_downloading: whether a request that was handed over still takes a download slot.
        """
        self._measure()
        slots = self._slots
        ahead = max(1, min(slots.concurrency, round(self._rate * AHEAD_SECONDS)))
        limit = slots.per_host + ahead
        rooms: dict[str, int] = {}
        total = downloading = 0
        for lease in held:
            total += 1
            if lease.started and not any(map(is_downloading, lease.requests)):
                continue
            downloading += lease.started
            rooms[lease.host] = rooms.get(lease.host, limit) - 1
        want = slots.concurrency + ahead - downloading - ready
        want = min(want, HELD_FOR_EACH_SLOT * slots.concurrency - total, MOST_AT_ONCE)
        report = self.permits.report({host: limit - room for host, room in rooms.items()})
        if want <= 0 or (ready and want < max(1, slots.concurrency // 2)):
            if not self.permits.short:
                return None
            want = 0
        return ClaimOrder(want, int(slots.lease_seconds * 1000), int(AHEAD_SECONDS * 1e6), limit, rooms, report)

    def _measure(self) -> None:
        now = self._clock()
        if now - self._rated_at >= RATE_SECONDS:
            rate = self._started / (now - self._rated_at)
            self._rate += (rate - self._rate) / 2
            self._started, self._rated_at = 0, now
