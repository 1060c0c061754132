"""Permits of hosts with a cap: how many of their requests this worker may have under way at a time."""

from collections import Counter
from collections.abc import Callable, Mapping


class Permits:
    """What the fleet granted (throttle/lua/lib/cap.lua). ``changed`` is called with each host of which that changes."""

    def __init__(self) -> None:
        self._have: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._aside: Counter[str] = Counter()
        self.short = False
        self.changed: Callable[[str], None] = lambda host: None

    def of(self, host: str) -> int | None:
        """How many requests of the host may be under way here; None: any number."""
        return self._have.get(host)

    def add(self, host: str) -> None:
        """Counts a request of a host with a cap that does not come through the frontier; permits are asked for."""
        self._aside[host] += 1
        self._have.setdefault(host, 0)
        self.short = True

    def remove(self, host: str) -> None:
        """Says that such a request is over."""
        self._aside[host] -= 1

    def report(self, at_hand: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Gives up what is not needed; the permits that it keeps of each host, and the requests that it has at hand.

        ``short`` tells afterwards whether the fleet should know soon.
        """
        self.short, report = False, []
        for host, have in list(self._have.items()):
            need = at_hand.get(host, 0) + self._aside[host]
            kept, told = min(have, need), self._told.get(host, 0)
            if not need and not told:
                del self._have[host], self._aside[host]
                continue
            self._set(host, kept)
            self.short = self.short or kept != told or need > 2 * kept
            report.append((host, kept, need))
        return report

    def grant(self, permits: Mapping[str, int]) -> None:
        """Takes what the fleet granted; -1 where the host has no cap."""
        for host, count in permits.items():
            self._told[host] = max(0, count)
            if count >= 0:
                self._set(host, count)
            elif self._have.pop(host, None) is not None:
                self.changed(host)

    def forget(self) -> None:
        """Says that the fleet does not know any more what it granted."""
        self._told.clear()

    def _set(self, host: str, count: int) -> None:
        if self._have.get(host) != count:
            self._have[host] = count
            self.changed(host)
