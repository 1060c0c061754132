"""A fleet for tests of the frontier: workers without a process, on a real server, whose clock the test moves."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgpack
from redis import Redis

from crawler.errors import StaleSession
from crawler.frontier.identity import digest, instance_id
from crawler.frontier.plan import Letter, Plan, Put, Retry
from crawler.frontier.store import Claimed, ClaimOrder, Fleet, Opened, SeenSpec, Session, Turn
from crawler.redisdb.keys import Partition
from crawler.redisdb.scripts import Call, read_script, run_now
from crawler.throttle.limiter import ThrottleScripts
from crawler.throttle.rules import RuleSet

IDENTITY = {"project": "shop", "spider": "books"}
LEASE_SECONDS = 60.0
LAPSE_SECONDS = 11.0
TICK_SECONDS = 2.5
DEATHS_MAX = 3
FILTER_BATCH = 1000


def page(url: str, band: int = 0) -> Put:
    """A request that the seen filter tests; its body is its URL."""
    return Put(_host(url), band, digest(url.encode()), b"", url.encode())


def unfiltered(url: str, occurrence: int = 0, parent: bytes = b"start", band: int = 0) -> Put:
    """A request with ``dont_filter``: the ``occurrence``-th of its parent."""
    instance = instance_id(parent, url.encode(), occurrence)
    return Put(_host(url), band, digest(url.encode()), instance, url.encode() + b"#%d" % occurrence)


def redirect(url: str, parent: bytes) -> Put:
    """A redirect's target, which is fetched under the lease of its page."""
    return Put(_host(url), 0, digest(url.encode()), instance_id(parent, url.encode(), 0), b"")


def retry(claimed: Claimed, delay_ms: int = 0, body: bytes | None = None) -> Retry:
    """A new try of a claimed entry."""
    return Retry(claimed.lease, claimed.host, 0, delay_ms, claimed.body if body is None else body)


def leases(claimed: Sequence[Claimed]) -> list[str]:
    """Their lease ids."""
    return [one.lease for one in claimed]


def bodies(claimed: Sequence[Claimed]) -> list[str]:
    """Their bodies, which are the URLs that ``page`` made them of."""
    return [one.body.decode() for one in claimed]


def _host(url: str) -> str:
    return url.split("/")[2]


@dataclass(frozen=True, slots=True)
class Settled:
    """Answer to a settle: which entries were new, and which leases were not this worker's any more."""

    new: str
    stale: list[str]


@dataclass(slots=True)
class Member:
    """One worker: sends each batch once, and again when told to."""

    fleet: "FleetOnServer"
    session: Session
    sent: list[Call] = field(default_factory=list)
    left: Fleet = field(default_factory=Fleet)
    permits: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The worker's name in the roster."""
        return self.session.worker

    def run(self, call: Call) -> Any:
        """Sends a call; the answer as it came."""
        self.sent.append(call)
        return run_now(self.fleet.redis, call)

    def resend(self, back: int = 1) -> Any:
        """Sends the call before last, or the one ``back`` from the end, once more."""
        return run_now(self.fleet.redis, self.sent[-back])

    def open(self, *, identity: dict[str, str] | None = None, keep_seen: bool = False, feeder: str = "") -> Opened:
        """Joins the crawl."""
        mine = IDENTITY if identity is None else identity
        lapse_ms = int(LAPSE_SECONDS * 1000)
        call = self.session.open(mine, lapse_ms, keep_seen=keep_seen, feeder=feeder)
        return self.session.read_opened(self.run(call))

    def put(self, *entries: Put) -> str:
        """One character an entry: '1' new, '0' known."""
        new: bytes = self.session.read(self.run(self.session.put(entries)))[0]
        return new.decode()

    def claim(
        self,
        want: int = 10,
        room: int = 100,
        rooms: dict[str, int] | None = None,
        lease_seconds: float = LEASE_SECONDS,
        ahead_us: int = 0,
        report: Sequence[tuple[str, int, int]] = (),
    ) -> list[Claimed]:
        """What was claimed; what the fleet has left is in ``left``, permits of hosts with a cap in ``permits``."""
        order = ClaimOrder(want, int(lease_seconds * 1000), ahead_us, room, rooms or {}, report)
        claims = self.session.read_claimed(self.run(self.session.claim(order)))
        assert claims.fleet is not None
        self.left, self.permits = claims.fleet, claims.permits
        return list(claims.claimed)

    def settle(
        self,
        *entries: Put,
        done: Sequence[str] = (),
        retries: Sequence[Retry] = (),
        dead: Sequence[tuple[str, Letter]] = (),
        back: Sequence[str] = (),
    ) -> Settled:
        """Puts links and ends leases."""
        return self.settle_plan(entries, Plan(list(done), list(retries), list(dead), list(back)))

    def settle_plan(self, entries: Sequence[Put], plan: Plan) -> Settled:
        """Puts links and ends what a plan names."""
        new, stale = self.session.read(self.run(self.session.settle(entries, plan)))
        return Settled(new.decode(), [lease.decode() for lease in stale])

    def beat(self, held: Sequence[str] = (), lease_seconds: float = LEASE_SECONDS) -> list[str]:
        """Leases among ``held`` that are lost.

        Raises:
            StaleSession: Redis does not know the session.
        """
        lapse_ms, lease_ms = int(LAPSE_SECONDS * 1000), int(lease_seconds * 1000)
        reply = self.run(self.session.beat(lapse_ms, lease_ms, {"pages": 1}, held))
        status, *rest = msgpack.unpackb(reply, raw=True)
        if status != b"ok":
            raise StaleSession(self.name)
        return [lease.decode() for lease in rest[0]]

    def start(self, act: str) -> str:
        """Takes or ends the lease on the start requests."""
        answer: bytes = self.run(self.session.start(act))
        return answer.decode()

    def finish(self) -> str:
        """Ends the crawl if nothing is left."""
        answer: bytes = self.run(self.session.finish())
        return answer.decode()

    def leave(self, feeder: str = "") -> int:
        """Leaves; the number of leases that were given back."""
        return int(self.run(self.session.leave(feeder)))


class FleetOnServer:
    """A crawl on a server, with as many workers as a test asks for."""

    def __init__(self, redis: Redis, crawl: str, url: str) -> None:
        self.redis = cast(Any, redis)
        self.crawl = crawl
        self.url = url
        self.partition = Partition(crawl)
        self.tampered = False  # by a test that spoils keys: then nothing has to balance
        self._throttle = ThrottleScripts(self.partition.script_keys("throttle"))
        self._reaper = Session(self.partition, "reaper", SeenSpec("exact"))

    def key(self, name: str) -> str:
        """Name of a key of the crawl."""
        return self.partition.key(name)

    def member(self, name: str = "w1", seen: SeenSpec | None = None) -> Member:
        """A worker that has not joined yet."""
        return Member(self, Session(self.partition, name, seen or SeenSpec("exact")))

    def worker(self, name: str = "w1", seen: SeenSpec | None = None) -> Member:
        """A worker that has joined."""
        member = self.member(name, seen)
        member.open()
        return member

    def set_rules(self, rules: RuleSet) -> bool:
        """Makes these the rules of hosts; whether there were others."""
        return bool(run_now(self.redis, self._throttle.limits(rules)))

    def take(self, *hosts: str, missed: int = 0) -> list[Turn]:
        """Takes a turn of each host."""
        parts = iter(msgpack.unpackb(run_now(self.redis, self._throttle.take([(host, missed) for host in hosts]))))
        return [
            Turn(wait / 1000, slack / 1000, int(mark)) for wait, slack, mark in zip(parts, parts, parts, strict=True)
        ]

    def now_ms(self) -> int:
        """The time that scripts go by: the server's clock, or the last time written down if that is later."""
        seconds, micros = self.redis.time()
        written: bytes | None = self.redis.hget(self.key("state"), "time")
        return max(int(seconds) * 1_000_000 + int(micros), int(written or 0)) // 1000

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self.redis.hset(self.key("state"), "time", (self.now_ms() + int(seconds * 1000)) * 1000)

    def reap(self) -> tuple[int, int]:
        """One tick of the reaper: leases given back, dead letters."""
        call = self._reaper.reap(int(TICK_SECONDS * 1000), int(LAPSE_SECONDS * 1000), DEATHS_MAX)
        returned, letters, *_ = msgpack.unpackb(run_now(self.redis, call))
        return returned, letters

    def pass_time(self, seconds: float, alive: Sequence[tuple[Member, Sequence[str]]] = ()) -> tuple[int, int]:
        """Time in which the reaper ticks and workers beat for the leases that they hold; sum of what was reaped."""
        returned = letters = 0
        for _ in range(int(seconds / TICK_SECONDS) + 1):
            self.advance(TICK_SECONDS)
            for member, held in alive:
                member.beat(held)
            found = self.reap()
            returned, letters = returned + found[0], letters + found[1]
        return returned, letters

    def sweep(self) -> int:
        """Removes old seen filters to the end; the number of keys removed."""
        total = removed = int(run_now(self.redis, self._reaper.sweep()))
        while removed or self.redis.exists(self.key("garbage")):
            removed = int(run_now(self.redis, self._reaper.sweep()))
            total += removed
        return total

    def counters(self) -> dict[str, int]:
        """The crawl's counters that are not zero."""
        found = self.redis.hgetall(self.key("counters"))
        return {name.decode(): int(value) for name, value in found.items() if int(value)}

    def names(self) -> set[str]:
        """Every key of the crawl, without its prefix."""
        prefix = self.partition.prefix
        found = self.redis.scan_iter(match=f"{prefix}*", count=1000)
        return {name.decode().removeprefix(prefix) for name in found}

    def picture(self, without: Collection[str] = ()) -> dict[str, bytes]:
        """Every key of the crawl with its content, to compare."""
        return {name: self.redis.dump(self.key(name)) for name in sorted(self.names() - set(without))}

    def letters(self) -> list[dict[str, bytes]]:
        """Fields of the dead letters, oldest first."""
        found = self.redis.xrange(self.key("dead"))
        return [{name.decode(): value for name, value in fields.items()} for _, fields in found]

    def queued(self) -> list[str]:
        """URLs that wait in queues, queue by queue."""
        return [
            element[2:].decode()
            for name in sorted(self.names())
            if name.startswith("q:")
            for element in self.redis.lrange(self.key(name), 0, -1)
        ]


class FilterOnServer:
    """A seen filter alone."""

    def __init__(self, fleet: FleetOnServer, spec: SeenSpec, base: str = "") -> None:
        self.redis = fleet.redis
        self.spec = spec
        self.base = base or fleet.partition.seen(1)
        self._script = read_script("frontier", "test_and_add", filter=spec.kind)

    def add(self, digests: Sequence[bytes]) -> str:
        """One character a key: '1' new, '0' taken for seen; all are seen from then on."""
        return self.add_keys([self.spec.key(one) for one in digests])

    def add_keys(self, keys: Sequence[bytes]) -> str:
        """The same for keys in the form that the filter takes."""
        given: list[bytes | str | int] = [repr(self.spec.error_rate), self.spec.capacity]
        return "".join(
            run_now(self.redis, Call(self._script, [self.base], [*given, *keys[at : at + FILTER_BATCH]])).decode()
            for at in range(0, len(keys), FILTER_BATCH)
        )

    def names(self) -> list[bytes]:
        """Keys of the filter."""
        return [*self.redis.scan_iter(match=self.base.replace("[", "\\[") + "*", count=10_000)]

    def bytes_used(self) -> int:
        """Memory of all its keys."""
        return sum(self.redis.memory_usage(name, samples=0) for name in self.names())

    def described(self) -> Any:
        """What it keeps of itself: layers, or members and splits."""
        return msgpack.unpackb(self.redis.get(self.base))


def digests_of(site: str, count: int) -> list[bytes]:
    """Keys of different URLs, the same in every run."""
    return [digest(f"http://{site}.test/{n}".encode()) for n in range(count)]
