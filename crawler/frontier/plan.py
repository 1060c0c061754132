"""What one settle call of a worker puts and ends, as settle.lua reads it."""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgpack

Letter = dict[str, str]
"""A dead letter: kind, reason, class, url and whatever else helps to find the cause; all text."""


class Budget(NamedTuple):
    """URLs that a crawl takes of a place: ``most``, and those after the first ``soft`` at a lower priority."""

    name: str
    most: int
    soft: int


@dataclass(frozen=True, slots=True)
class Put:
    """One entry to put. ``seen`` is the key that the filter tests; with an ``instance`` it is only recorded
    (lib/put.lua). ``low_band`` is the band in which it waits where a budget is past its soft part.
    """

    host: str
    band: int
    seen: bytes
    instance: bytes
    body: bytes
    budgets: tuple[Budget, ...] = ()
    low_band: int = 0


class Reason(NamedTuple):
    """Why an entry waits for a new try, for who looks: its URL, the number of that try, and its cause, as CRAWLER_RETRY
    names it, with what was seen.
    """

    url: str = ""
    attempt: int = 0
    cause: str = ""
    detail: str = ""


NO_REASON = Reason()


@dataclass(frozen=True, slots=True)
class Retry:
    """A lease that ends as a new try, with the request as it is now; ``delay_ms`` 0 means at once."""

    lease: str
    host: str
    band: int
    delay_ms: int
    body: bytes
    reason: Reason = NO_REASON


@dataclass(slots=True)
class Plan:
    """What one settle call ends; the lists hold lease ids, or (lease id, letter) for the dead and (lease id, rule) for
    pages that a rule kept from being fetched.
    """

    done: list[str] = field(default_factory=list)
    retries: list[Retry] = field(default_factory=list)
    dead: list[tuple[str, Letter]] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    tallies: dict[str, int] = field(default_factory=dict)
    filtered: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        ends = self.done or self.retries or self.dead or self.back or self.filtered
        return bool(ends or self.letters or self.tallies)

    def tally(self, name: str, amount: int = 1) -> None:
        """Counts something for the crawl's counters."""
        self.tallies[name] = self.tallies.get(name, 0) + amount

    def pack(self) -> bytes:
        """The plan as settle.lua reads it."""
        packed: bytes = msgpack.packb(
            [
                self.done,
                [[r.lease, r.host, str(r.band), r.delay_ms, r.body, r.reason] for r in self.retries],
                [[lease, flat(letter)] for lease, letter in self.dead],
                self.back,
                [flat(letter) for letter in self.letters],
                list(self.tallies.items()),
                self.filtered,
            ],
            # The server's decoder knows no separate type for bytes.
            use_bin_type=False,
            unicode_errors="surrogatepass",
        )
        return packed


def flat(letter: Letter) -> list[str]:
    """Fields and values in turn, as a stream entry takes them."""
    return [part for pair in letter.items() for part in pair]
