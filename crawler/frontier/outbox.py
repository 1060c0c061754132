"""Entries on their way to Redis, and those that it may lose again."""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from crawler.clock import Monotonic
from crawler.frontier.held import Lease
from crawler.frontier.plan import Letter, Plan, Put

BATCH_ENTRIES = 128
SEEDED = "seeded"
BATCH_BYTES = 1_000_000
TAIL_SECONDS = 5.0
"""Writes that Redis may still lose are no older; with ``appendfsync everysec`` it is about two seconds."""


@dataclass(slots=True)
class Outgoing:
    """An entry on its way; ``answered`` is told whether it was new, ``refused`` that it was over a budget."""

    put: Put
    lease: Lease | None
    answered: Callable[[bool], None] | None = None
    refused: Callable[[], None] | None = None


@dataclass(slots=True)
class Parcel:
    """Entries and dead letters of one exchange, so that they can be taken back."""

    outgoing: list[Outgoing] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    tallies: Counter[str] = field(default_factory=Counter)

    def enter(self, plan: Plan) -> None:
        """Enters in the plan what goes out beside entries, and how many of those came from no page."""
        plan.letters.extend(self.letters)
        for name, amount in self.tallies.items():
            plan.tally(name, amount)
        if seeded := sum(outgoing.lease is None for outgoing in self.outgoing):
            plan.tally(SEEDED, seeded)


@dataclass(slots=True)
class Batch:
    """What one exchange carries, so that it can be taken back; ``leases`` are those that it ends."""

    parcel: Parcel = field(default_factory=Parcel)
    plan: Plan = field(default_factory=Plan)
    leases: list[str] = field(default_factory=list)


class Outbox:
    """Keeps entries in order. A lease keeps its own too; those of none are kept for as long as Redis may lose them."""

    def __init__(self, clock: Monotonic) -> None:
        self._clock = clock
        self._waiting: deque[Outgoing] = deque()
        self._recent: deque[tuple[float, Put]] = deque()
        self._letters: list[Letter] = []
        self._tallies: Counter[str] = Counter()
        self.parentless = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._letters) + bool(self._tallies)

    def add(self, outgoing: Outgoing) -> None:
        """Takes an entry."""
        if outgoing.lease is None:
            self.parentless += 1
        else:
            outgoing.lease.links.append(outgoing.put)
            outgoing.lease.unsent += 1
        self._waiting.append(outgoing)

    def bury(self, letter: Letter) -> None:
        """Takes a dead letter of something that never was a lease."""
        self._letters.append(letter)

    def tally(self, name: str) -> None:
        """Counts something that happened to no page, for the crawl's counters."""
        self._tallies[name] += 1

    def take(self) -> Parcel:
        """The next batch, bounded in entries and bytes."""
        parcel = Parcel(letters=self._letters, tallies=self._tallies)
        self._letters, self._tallies = [], Counter()
        size = 0
        while self._waiting and len(parcel.outgoing) < BATCH_ENTRIES and size < BATCH_BYTES:
            outgoing = self._waiting.popleft()
            size += len(outgoing.put.body)
            parcel.outgoing.append(outgoing)
            if outgoing.lease is not None:
                outgoing.lease.batched += 1
        return parcel

    def take_back(self, parcel: Parcel) -> None:
        """Puts a batch that did not go out before all others."""
        for outgoing in reversed(parcel.outgoing):
            self._waiting.appendleft(outgoing)
            if outgoing.lease is not None:
                outgoing.lease.batched -= 1
        self._letters = parcel.letters + self._letters
        self._tallies += parcel.tallies

    def confirm(self, parcel: Parcel, new: bytes) -> None:
        """Takes the answer to a batch: one '1', '0' or '2' an entry."""
        now = self._clock()
        for at, outgoing in enumerate(parcel.outgoing):
            if outgoing.lease is not None:
                outgoing.lease.unsent -= 1
                outgoing.lease.batched -= 1
            else:
                self._recent.append((now, outgoing.put))
                self.parentless -= 1
            if outgoing.answered is not None:
                outgoing.answered(new[at : at + 1] == b"1")
            if outgoing.refused is not None and new[at : at + 1] == b"2":
                outgoing.refused()
        while self._recent and now - self._recent[0][0] > TAIL_SECONDS:
            self._recent.popleft()

    def put_again(self, leases: Iterable[Lease]) -> None:
        """Queues again what Redis may have lost: the links of the leases, and the recent entries of none."""
        known = {id(outgoing.put) for outgoing in self._waiting}
        for lease in leases:
            for put in lease.links:
                if id(put) not in known:
                    self._waiting.append(Outgoing(put, lease))
                    lease.unsent += 1
        recent, self._recent = self._recent, deque()
        for _, put in recent:
            if id(put) not in known:
                self._waiting.append(Outgoing(put, None))
                self.parentless += 1
