"""The log of what was asked for."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple


class Hit(NamedTuple):
    """One request, logged as it arrived; ``at`` is in seconds of the epoch, ``path`` as sent, with query."""

    at: float
    host: str
    method: str
    path: str
    status: int


class HitLog:
    """Every hit in order, and how often each URL was hit."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hits: list[Hit] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, host: str, method: str, path: str, status: int) -> None:
        """Log one request, at the clock's time."""
        self._hits.append(Hit(self._clock(), host, method, path, status))
        self._counts[host, path] += 1

    def count(self, host: str, path: str) -> int:
        """Hits of one URL so far, by any method."""
        return self._counts[host, path]

    def counts(self, port: int) -> dict[str, int]:
        """Hits of each URL that has any."""
        return {f"http://{host}:{port}{path}": count for (host, path), count in self._counts.items()}

    def hits(self) -> list[Hit]:
        """All of them, oldest first."""
        return self._hits

    def clear(self) -> None:
        """Forget everything; a flaky page fails again."""
        self._hits = []
        self._counts = Counter()

    def rate(self) -> float:
        """Hits a second from the first to the last, 0 for fewer than two."""
        if len(self._hits) < 2:
            return 0.0
        seconds = self._hits[-1].at - self._hits[0].at
        return len(self._hits) / seconds if seconds > 0 else 0.0
