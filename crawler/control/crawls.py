"""Reads and changes a crawl's keys for the operator: status, dead letters, purge. Blocking; never part of a worker."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgpack
from redis import Redis

from crawler.control.hosts import HostDesk
from crawler.control.migrate import Migration
from crawler.errors import ClashError
from crawler.frontier.account import Audit, audit_call, read_audit
from crawler.frontier.scripts import Scripts
from crawler.frontier.seen import false_positive_rate
from crawler.frontier.store import SeenSpec
from crawler.redisdb.keys import FEEDER_PREFIX, Intake, Partition
from crawler.redisdb.scripts import Call, run_now

SCAN_BATCH = 500
MASTER = FEEDER_PREFIX.encode()


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One member of the roster; ``alive_seconds`` is what its last heartbeat still gives it."""

    name: str
    alive_seconds: float
    held: int
    pages: int
    items: int
    suspect: bool


@dataclass(frozen=True, slots=True)
class CrawlStatus:
    """Counts of one generation; ``state`` is absent, open (work may be left) or finished."""

    crawl: str
    state: str
    generation: int = 0
    waiting: int = 0
    delayed: int = 0
    in_flight: int = 0
    done: int = 0
    dead: int = 0
    filtered: int = 0
    duplicate: int = 0
    seen: int = 0
    unread: int = 0
    retried: int = 0
    returned: int = 0
    over_budget: int = 0
    trapped: int = 0
    seen_filter: str = ""
    false_positive_rate: float = 0.0
    workers: list[WorkerStatus] = field(default_factory=list)
    masters: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The status as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter: its id in the stream, and its fields without the entry's bytes."""

    id: str
    fields: dict[str, str]
    replayable: bool


@dataclass(frozen=True, slots=True)
class WaitingRetry:
    """An entry that waits for its new try number ``attempt``, which may be claimed after ``due_seconds``."""

    url: str
    host: str
    attempt: int
    cause: str
    detail: str
    due_seconds: float


class Crawls:
    """One crawl as seen through a blocking client."""

    def __init__(self, client: Redis, crawl: str, start_key: str = "") -> None:
        self._client: Any = client
        self._crawl = crawl
        self._partition = Partition(crawl)
        self._intake = Intake(start_key or f"{crawl}:start_urls")

    def _key(self, name: str) -> str:
        return self._partition.key(name)

    def status(self) -> CrawlStatus:
        """The crawl's counts, in one round trip and then one for each worker."""
        pipe = self._client.pipeline(transaction=False)
        pipe.hgetall(self._key("state"))
        pipe.hgetall(self._key("counters"))
        pipe.zcard(self._key("delayed"))
        pipe.hlen(self._key("inflight"))
        pipe.llen(self._key("suspects"))
        pipe.zrange(self._key("workers"), 0, -1, withscores=True)
        pipe.time()
        pipe.hlen(self._intake.raw)
        pipe.xlen(self._key("dead"))
        state, counters, delayed, in_flight, suspects, roster, clock, between, letters = pipe.execute()
        if not state:
            return CrawlStatus(self._crawl, "absent", unread=self._unread())
        now = clock[0] + clock[1] / 1e6
        count = {name.decode(): int(value) for name, value in counters.items()}
        identity = msgpack.unpackb(state[b"identity"], raw=False)
        return CrawlStatus(
            crawl=self._crawl,
            state=state[b"phase"].decode(),
            generation=int(state[b"generation"]),
            waiting=count.get("waiting", 0) + suspects,
            delayed=delayed,
            in_flight=in_flight,
            done=count.get("done", 0),
            dead=letters,
            filtered=count.get("filtered", 0),
            duplicate=count.get("duplicate", 0),
            seen=count.get("seen", 0),
            unread=self._unread() + between,
            retried=count.get("retried", 0),
            returned=count.get("returned", 0),
            over_budget=count.get("over_budget", 0),
            trapped=count.get("trapped", 0),
            seen_filter=identity["filter"],
            false_positive_rate=self._wrong(identity["filter"], int(state[b"seen_generation"])),
            workers=[
                self._worker(name.decode(), at / 1000 - now) for name, at in roster if not name.startswith(MASTER)
            ],
            masters=sum(name.startswith(MASTER) and at / 1000 > now for name, at in roster),
        )

    def _unread(self) -> int:
        kind = self._client.type(self._intake.start)
        counts = {b"list": "llen", b"set": "scard", b"zset": "zcard"}
        return int(getattr(self._client, counts[kind])(self._intake.start)) if kind in counts else 0

    def _wrong(self, kind: str, generation: int) -> float:
        if kind != "bloom":
            return 0.0
        packed = self._client.get(self._partition.seen(generation))
        return false_positive_rate(msgpack.unpackb(packed)) if packed else 0.0

    def _worker(self, name: str, alive_seconds: float) -> WorkerStatus:
        packed, suspect = self._client.hmget(self._partition.session(name), "report", "suspect")
        report = msgpack.unpackb(packed) if packed else {}
        held = self._client.scard(self._partition.held(name))
        return WorkerStatus(
            name,
            round(alive_seconds, 2),
            held,
            report.get("pages", 0),
            report.get("items", 0),
            suspect is not None,
        )

    def dead_letters(self, most: int = 100) -> Iterator[DeadLetter]:
        """The newest dead letters, newest first."""
        for letter_id, raw in self._client.xrevrange(self._key("dead"), count=most):
            fields = {
                name.decode(): value.decode(errors="replace") for name, value in raw.items() if name != b"element"
            }
            yield DeadLetter(letter_id.decode(), fields, b"element" in raw)

    def retries(self, most: int = 100) -> list[WaitingRetry]:
        """New tries that wait for their time, the next ones first."""
        pipe = self._client.pipeline(transaction=False)
        pipe.zrange(self._key("delayed"), 0, most - 1, withscores=True)
        pipe.time()
        waiting, (seconds, microseconds) = pipe.execute()
        now = seconds + microseconds / 1e6
        return [_retry(packed, at / 1000 - now) for packed, at in waiting]

    def audit(self) -> Audit:
        """Where all URLs are, as counted and as found in one step."""
        return read_audit(run_now(self._client, audit_call(self._partition)))

    def replay(self, ids: Sequence[str] | None = None) -> int:
        """Puts dead letters back into their queues (all that are entries, without ids); returns how many."""
        replayed = 0
        scripts = Scripts("exact")
        keys = self._partition.script_keys("-")
        chosen = (
            list(ids)
            if ids is not None
            else [letter.id for letter in self.dead_letters(1_000_000) if letter.replayable]
        )
        for at in range(0, len(chosen), 64):
            replayed += int(run_now(self._client, Call(scripts.replay, keys, chosen[at : at + 64])))
        return replayed

    def hosts(self) -> HostDesk:
        """What holds for the crawl's hosts."""
        return HostDesk(self._client, self._crawl)

    def migration(self, spec: SeenSpec, identity: dict[str, str]) -> Migration:
        """A migration of scrapy-redis's filter into this crawl's, for workers of that identity."""
        return Migration(self._client, self._crawl, spec, identity)

    def own_keys(self) -> Iterator[bytes]:
        """Every key of the crawl, intake included and start URLs not."""
        for pattern in (
            _literal(self._partition.prefix) + "*",
            _literal(f"trawlnet:{{{self._intake.start}}}:") + "*",
        ):
            yield from self._client.scan_iter(match=pattern, count=SCAN_BATCH)

    def purge(self, *, force: bool = False) -> int:
        """Removes every key of the crawl; returns how many.

        Raises:
            ClashError: workers are at it, and ``force`` is not given.
        """
        alive = [worker.name for worker in self.status().workers if worker.alive_seconds > 0]
        if alive and not force:
            raise ClashError(
                f"{len(alive)} workers are at the crawl {self._crawl!r} ({', '.join(alive[:3])}); stop "
                "them first, or purge with --force"
            )
        removed = 0
        batch: list[bytes] = []
        for key in self.own_keys():
            batch.append(key)
            if len(batch) == SCAN_BATCH:
                removed += self._client.unlink(*batch)
                batch = []
        return removed + (self._client.unlink(*batch) if batch else 0)


def _retry(packed: bytes, due_seconds: float) -> WaitingRetry:
    host, _, _, *reason = msgpack.unpackb(packed, raw=True)
    url, attempt, cause, detail = reason[0] if reason else (b"", 0, b"", b"")
    names = (part.decode(errors="replace") for part in (url, host, cause, detail))
    url, host, cause, detail = names
    return WaitingRetry(url, host, attempt, cause, detail, round(max(0.0, due_seconds), 3))


def _literal(text: str) -> str:
    return "".join("\\" + char if char in "*?[]\\^" else char for char in text)
