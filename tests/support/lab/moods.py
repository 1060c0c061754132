"""Hosts that are told to be like something while the lab runs: POST /_lab/mood?host=0&rate=5, or &status=500."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.lab.message import Answer
from tests.support.lab.visit import plain


@dataclass(slots=True)
class Mood:
    """A host that takes ``rate`` requests a second, a second's worth at once (0: any), or answers ``status`` to all."""

    rate: float = 0.0
    status: int = 0
    left: float = 0.0
    seen_at: float = 0.0

    def refusal(self, now: float) -> Answer | None:
        """The answer that is given instead of the page; None where the page is."""
        if self.status:
            return plain(self.status, f"This host answers {self.status}.")
        if not self.rate:
            return None
        self.left = min(max(1.0, self.rate), self.left + (now - self.seen_at) * self.rate)
        self.seen_at = now
        if self.left < 1:
            return plain(429, "Too many requests.")
        self.left -= 1
        return None


class Moods:
    """The moods of all hosts."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._moods: dict[int, Mood] = {}

    def set(self, query: dict[str, str]) -> None:
        """Takes what is asked of a host; raises ValueError or KeyError where it makes no sense."""
        self._moods[int(query["host"])] = Mood(float(query.get("rate", 0)), int(query.get("status", 0)))

    def clear(self) -> None:
        """All hosts are as they were."""
        self._moods.clear()

    def refusal(self, host: int) -> Answer | None:
        """The answer that a host gives instead of any page, if it does."""
        mood = self._moods.get(host)
        return mood.refusal(self._clock()) if mood else None
