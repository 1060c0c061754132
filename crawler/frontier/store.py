"""The frontier as Redis keeps it: what a worker's ordered stream of batches looks like on the wire."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack

from crawler.config import Config
from crawler.errors import ClashError, StaleSession
from crawler.frontier.plan import Plan, Put
from crawler.frontier.scripts import Scripts
from crawler.redisdb.keys import SCHEMA, Partition
from crawler.redisdb.scripts import Call

REAPED_AT_ONCE = 256
PROBES, REFUSED, LOST = 1, 2, 3  # states of a turn, as claim.lua has them


@dataclass(frozen=True, slots=True)
class Turn:
    """When a request may be sent to its host: after ``wait_seconds``, for ``slack_seconds``; the mark names it.

    With ``probes`` its answer tells whether the host works again. ``refused``: an operator lets nobody ask it;
    ``lost``: it failed for too long.
    """

    wait_seconds: float
    slack_seconds: float
    mark: int
    probes: bool = False
    refused: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Claimed:
    """A leased entry; ``deliveries`` counts the times that it was handed out before. Without a turn its host has no
    limit.
    """

    lease: str
    host: str
    deliveries: int
    deaths: int
    body: bytes
    turn: Turn | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is left anywhere, as of the last claim; ages in seconds. A host's next turn can be taken after
    ``turn_seconds``; None where no host waits for its turn. ``cookies`` is the version of their last change.
    """

    waiting: int = 0
    delayed: int = 0
    in_flight: int = 0
    suspects: int = 0
    start: str = ""
    phase: str = "open"
    idle_seconds: float = 0.0
    due_seconds: float = 0.0
    feeding: int = 0
    feeders: int = 0
    turn_seconds: float | None = None
    cookies: int = 0

    @property
    def quiet(self) -> bool:
        """Nothing waits, is delayed or leased, and no feeder is at work."""
        return not (self.waiting or self.delayed or self.in_flight or self.suspects or self.feeding)


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """What a claim asks for.

    Args:
        want: entries, at most.
        lease_ms: how long they are held without renewal.
        ahead_us: how far ahead their turns may be.
        room: how many of one host.
        rooms: the same of hosts on which the caller is busy.
        report: of hosts with a cap, the permits that the caller keeps, and its requests at hand.
    """

    want: int
    lease_ms: int
    ahead_us: int
    room: int
    rooms: Mapping[str, int] = field(default_factory=dict)
    report: Sequence[tuple[str, int, int]] = ()


@dataclass(frozen=True, slots=True)
class Claims:
    """Answer to a claim; ``permits`` are those that the caller has now of hosts with a cap, -1 where there is none."""

    claimed: Sequence[Claimed] = ()
    fleet: Fleet | None = None
    permits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opened:
    """A joined crawl: its generation, that of the seen filter, who runs the start requests, and if this call
    opened it.
    """

    generation: int
    seen_generation: int
    start: str
    fresh: bool


@dataclass(frozen=True, slots=True)
class SeenSpec:
    """Which filter a crawl has; ``capacity`` 0 grows from small."""

    kind: str = "bloom"
    error_rate: float = 1e-4
    capacity: int = 0

    @classmethod
    def of(cls, config: Config) -> "SeenSpec":
        """The filter that the settings ask for."""
        return cls(config["CRAWLER_SEEN"], config["CRAWLER_SEEN_ERROR_RATE"], config["CRAWLER_SEEN_CAPACITY"])

    def key(self, digest: bytes) -> bytes:
        """The form in which the filter takes a 16-byte digest."""
        return digest if self.kind == "bloom" else exact_key(digest)


def exact_key(digest: bytes) -> bytes:
    """The decimal text of 63 bits, which Redis keeps as an integer."""
    return b"%d" % (int.from_bytes(digest[:8], "big") >> 1)


class Session:
    """Builds the calls of one worker and reads their replies; sends nothing itself.

    Batches are numbered. A call whose reply was lost is built again by ``resend`` with its old number, and the script
    answers with the reply that it kept.
    """

    def __init__(self, partition: Partition, worker: str, seen: SeenSpec) -> None:
        self.partition = partition
        self.worker = worker
        self.seen = seen
        self.scripts = Scripts(seen.kind)
        self.keys = partition.script_keys(worker)
        self.token = ""
        self.sequence = 0
        self.opened = Opened(0, 0, "", False)

    def open(
        self,
        identity: dict[str, str],
        lapse_ms: int,
        *,
        keep_seen: bool = False,
        feeder: str = "",
        held: Sequence[str] = (),
    ) -> Call:
        """Joins the crawl under a new token; earlier batches of this worker are refused from then on.

        Joining again never starts a finished crawl over: only a worker that is new to it does. It gives back the
        leases that Redis takes for this worker's but for those that it says it has ``held``.
        """
        self.token = secrets.token_hex(8)
        self.sequence = 0
        packed = msgpack.packb({**identity, "filter": self.seen.kind}, use_bin_type=False)
        again = "1" if self.opened.generation else "0"
        args = [self.worker, self.token, lapse_ms, SCHEMA, packed, "1" if keep_seen else "0", feeder, again, *held]
        return Call(self.scripts.open, self.keys, args)

    def read_opened(self, reply: bytes) -> Opened:
        """Reads the reply of ``open``.

        Raises:
            ClashError: the crawl belongs to another project, spider, fingerprinter, filter or schema.
        """
        status, *rest = msgpack.unpackb(reply, raw=True)
        if status == b"clash":
            name, theirs, mine = (part.decode(errors="replace") for part in rest)
            raise ClashError(
                f"the crawl {self.partition.crawl!r} in Redis has {name} {theirs!r}, this process has "
                f"{mine!r}; set CRAWLER_CRAWL to "
                f"another name, or remove the old crawl with: trawlnet purge {self.partition.crawl}"
            )
        generation, seen, start, fresh = rest
        self.opened = Opened(generation, seen, start.decode(), bool(fresh))
        return self.opened

    def _stream(self) -> list[bytes | str | int]:
        self.sequence += 1
        return [self.worker, self.token, self.sequence]

    def _filter(self) -> list[bytes | str | int]:
        seen, once = self.opened.seen_generation, self.opened.generation
        spec = self.seen
        return [self.partition.seen(seen), self.partition.once(once), repr(spec.error_rate), spec.capacity]

    def put(self, entries: Sequence[Put]) -> Call:
        """Puts entries that no lease waits for."""
        return Call(self.scripts.put, self.keys, [*self._stream(), *self._filter(), self._pack(entries)])

    def settle(self, entries: Sequence[Put], plan: Plan) -> Call:
        """Puts links and then ends the leases of the plan."""
        args = [*self._stream(), *self._filter(), self._pack(entries) if entries else b"", plan.pack()]
        return Call(self.scripts.settle, self.keys, args)

    def claim(self, order: ClaimOrder) -> Call:
        """Claims entries."""
        report = msgpack.packb([part for each in order.report for part in each], use_bin_type=False)
        args: list[bytes | str | int] = [*self._stream(), order.want, order.lease_ms, order.ahead_us, order.room]
        args.append(report if order.report else b"")
        for host, left in order.rooms.items():
            args += (host, left)
        return Call(self.scripts.claim, self.keys, args)

    def _pack(self, entries: Sequence[Put]) -> bytes:
        """The entries as lib/put.lua reads them; an element is a body with its two header bytes."""
        fields: list[bytes | str] = []
        key = self.seen.key
        for entry in entries:
            seen = key(entry.seen) if entry.seen else b""
            instance = exact_key(entry.instance) if entry.instance else b""
            fields += (entry.host, str(entry.band), seen, instance, b"\0\0" + entry.body if entry.body else b"")
        budgets = [
            part
            for number, entry in enumerate(entries, 1)
            for name, most, soft in entry.budgets
            for part in (number, name, most, soft, str(entry.low_band))
        ]
        packed: bytes = msgpack.packb([*fields, budgets] if budgets else fields, use_bin_type=False)
        return packed

    def read(self, reply: bytes) -> list[Any]:
        """The reply of a numbered batch after its 'ok'.

        Raises:
            StaleSession: Redis does not know the session, or lost batches before this one.
        """
        status, *rest = msgpack.unpackb(reply, raw=True)
        if status != b"ok":
            raise StaleSession(f"the session of worker {self.worker} is not valid any more: {rest[0].decode()}")
        return list(rest)

    def read_claimed(self, reply: bytes) -> Claims:
        """Reads the reply of ``claim``."""
        taken, fleet, paced, turn_ms, granted = self.read(reply)
        parts, turns, permits = iter(taken), iter(paced), iter(granted)
        of = {
            number - 1: Turn(wait / 1000, slack / 1000, int(mark), state == PROBES, state == REFUSED, state == LOST)
            for number, wait, slack, mark, state in zip(turns, turns, turns, turns, turns, strict=True)
        }
        claimed = [
            Claimed(lease.decode(), host.decode(), element[0], element[1], element[2:], of.get(number))
            for number, (lease, host, element) in enumerate(zip(parts, parts, parts, strict=True))
        ]
        permitted = {host.decode(): count for host, count in zip(permits, permits, strict=True)}
        return Claims(claimed, read_fleet(fleet, turn_ms), permitted)

    def beat(self, lapse_ms: int, lease_ms: int, report: dict[str, Any], leases: Sequence[str]) -> Call:
        """Keeps the worker and its leases alive."""
        args = [self.worker, self.token, lapse_ms, lease_ms, msgpack.packb(report), *leases]
        return Call(self.scripts.beat, self.keys, args)

    def reap(self, tick_ms: int, lapse_ms: int, deaths_max: int) -> Call:
        """Gives back what dead workers hold."""
        return Call(self.scripts.reap, self.keys, [tick_ms, lapse_ms, REAPED_AT_ONCE, deaths_max])

    def sweep(self) -> Call:
        """Removes some keys of generations that are over."""
        return Call(self.scripts.sweep, self.keys, [])

    def start(self, act: str) -> Call:
        """Takes ('take') or ends ('done') the lease on the start requests."""
        return Call(self.scripts.start, self.keys, [self.worker, act])

    def finish(self) -> Call:
        """Marks the crawl finished if nothing is left."""
        return Call(self.scripts.finish, self.keys, [])

    def fed(self, feeder: str) -> Call:
        """Takes a feeder that is through with its source off the list; it stays in the roster."""
        return Call(self.scripts.fed, self.keys, [feeder])

    def leave(self, feeder: str = "") -> Call:
        """Gives everything back and leaves the roster."""
        return Call(self.scripts.leave, self.keys, [self.worker, feeder])


def read_fleet(parts: Sequence[Any], turn_ms: int = -1) -> Fleet:
    """Reads what lib/lease.lua's ``fleet`` returns."""
    waiting, delayed, in_flight, suspects, start, phase, idle_ms, due_ms, feeding, feeders, cookies = parts
    return Fleet(
        waiting,
        delayed,
        in_flight,
        suspects,
        start.decode(),
        phase.decode(),
        idle_ms / 1000,
        max(0, due_ms) / 1000,
        feeding,
        feeders,
        turn_ms / 1000 if turn_ms >= 0 else None,
        cookies,
    )
