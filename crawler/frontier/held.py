"""A lease as the worker that holds it sees it: what is still open before its page may settle."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol

from crawler.frontier.plan import NO_REASON, Letter, Plan, Put, Reason, Retry
from crawler.frontier.store import Claimed


@dataclass(frozen=True, slots=True)
class NewTry:
    """The request as it should be tried again, and after how many milliseconds (0 = at once)."""

    host: str
    band: int
    delay_ms: int
    body: bytes
    reason: Reason = NO_REASON


@dataclass(frozen=True, slots=True)
class Decoded:
    """A request made of an entry, and the identity that its children's instance ids derive from."""

    request: Hashable
    page: str
    identity: bytes


class Engine(Protocol):
    """What a worker asks of the engine that it feeds."""

    def decode(self, claimed: Claimed) -> Decoded:
        """Makes the request of an entry; raises UnknownCallback or WireError."""

    def has(self, request: Hashable) -> bool:
        """Whether the request is still being downloaded or scraped."""

    def is_downloading(self, request: Hashable) -> bool:
        """Whether the request waits for, or takes, a download slot."""

    def give_up(self, request: Hashable) -> None:
        """Says that a request's lease is over though its page is not: it must not keep the engine from ending."""

    def wake(self) -> None:
        """Asks for the next requests soon."""


@dataclass(slots=True, eq=False)
class Lease:
    """One claimed entry. It ends when Scrapy has none of its requests, its records are durable and its links are in.

    ``through``: Scrapy has nothing of it any more; ``ended``: it may settle. ``requests`` holds the request
    that was claimed and those that redirects made of it. ``turn_at`` and ``turn_ends`` bound the time in which it may
    be sent, where its host has a limit (else 0); after it, a turn has to be taken anew. ``probes``: its answer tells
    whether its host works again. ``trouble`` is why its last download failed, as CRAWLER_RETRY names it, and what was
    seen; or both empty. ``filtered`` names the rule that kept it from being
    fetched. ``links`` are kept until the lease is settled, to be put again should Redis lose its last writes.
    """

    id: str
    host: str
    deliveries: int
    claimed_at: float
    body: bytes = b""
    suspect: bool = False
    turn_at: float = 0.0
    turn_ends: float = 0.0
    turn_mark: int = 0
    probes: bool = False
    requests: list[Hashable] = field(default_factory=list)
    page: str = ""
    identity: bytes = b""
    links: list[Put] = field(default_factory=list)
    unsent: int = 0
    batched: int = 0
    testing: int = 0
    records: int = 0
    positions: int = 0
    occurrences: dict[bytes, int] = field(default_factory=dict)
    started: bool = False
    through: bool = False
    ended: bool = False
    fault: Letter | None = None
    retry: NewTry | None = None
    trouble: tuple[str, str] = ("", "")
    returned: bool = False
    filtered: str = ""
    tallies: dict[str, int] = field(default_factory=dict)

    def occurrence(self, fingerprint: bytes) -> int:
        """Counts how often this page has yielded the fingerprint, from 1."""
        count = self.occurrences.get(fingerprint, 0) + 1
        self.occurrences[fingerprint] = count
        return count

    def tally(self, name: str) -> None:
        """Counts something that happened to the page, for the crawl's counters."""
        self.tallies[name] = self.tallies.get(name, 0) + 1

    def fail(self, kind: str, reason: str, **more: str) -> None:
        """Makes the page a dead letter when it ends; the first reason stays."""
        if self.fault is None:
            self.fault = {"kind": "page", "class": kind, "reason": reason, **more}

    def enter(self, plan: Plan, worker: str) -> None:
        """Enters in the plan how the lease ends: dead, given back with nothing counted, to be tried again, or done."""
        if self.fault is not None:
            plan.dead.append((self.id, {**self.fault, "worker": worker}))
        elif self.returned:
            plan.back.append(self.id)
        elif self.retry is not None:
            new = self.retry
            plan.retries.append(Retry(self.id, new.host, new.band, new.delay_ms, new.body, new.reason))
        elif self.filtered:
            plan.filtered.append((self.id, self.filtered))
        else:
            plan.done.append(self.id)
        for name, amount in self.tallies.items():
            plan.tally(name, amount)

    @property
    def open(self) -> bool:
        """Whether records, answers about redirects, or redirects that go on are still awaited."""
        return bool(self.records or self.testing)
