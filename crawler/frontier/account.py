"""Where every URL of a crawl is: what came in is what is there, or went out by a way that is counted.

Two equations hold at every moment between two scripts, whatever was killed, since each script counts what it moves::

    seeded + discovered = put + duplicate + over a budget + trapped
    put + replayed      = waiting + delayed + in flight + done + filtered + dead

``put`` are the entries that were new. Those that were suspected of their worker's death wait too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgpack

from crawler.frontier.scripts import Scripts
from crawler.redisdb.keys import Partition
from crawler.redisdb.scripts import Call

HOSTS_AT_ONCE = 2000
WORKERS_COUNTED = 1000
RULE = "filtered:"


@dataclass(frozen=True, slots=True)
class Account:
    """URLs of one generation; ``filtered`` by the rule that kept them from being fetched, ``dead`` as they died: those
    whose letters were dropped or replayed since are among them.
    """

    put: int = 0
    replayed: int = 0
    seeded: int = 0
    discovered: int = 0
    duplicate: int = 0
    over_budget: int = 0
    trapped: int = 0
    waiting: int = 0
    delayed: int = 0
    in_flight: int = 0
    done: int = 0
    filtered: Mapping[str, int] = field(default_factory=dict)
    dead: int = 0

    @classmethod
    def of(cls, counters: Mapping[str, int], *, delayed: int, in_flight: int, suspects: int) -> "Account":
        """The account that the counters and the sizes of the structures give."""
        count = counters.get
        put, duplicate = count("put", 0), count("duplicate", 0)
        over, trapped, seeded = count("over_budget", 0), count("trapped", 0), count("seeded", 0)
        return cls(
            put=put,
            replayed=count("replayed", 0),
            seeded=seeded,
            discovered=put + duplicate + over + trapped - seeded,
            duplicate=duplicate,
            over_budget=over,
            trapped=trapped,
            waiting=count("waiting", 0) + suspects,
            delayed=delayed,
            in_flight=in_flight,
            done=count("done", 0),
            filtered={name.removeprefix(RULE): n for name, n in sorted(counters.items()) if name.startswith(RULE)},
            dead=count("dead", 0) - count("letters", 0),
        )

    @property
    def accounted(self) -> int:
        """Entries of which it is known where they are."""
        return self.waiting + self.delayed + self.in_flight + self.done + sum(self.filtered.values()) + self.dead

    def as_dict(self) -> dict[str, Any]:
        """The account as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Difference:
    """Two numbers that should be one."""

    what: str
    counted: int
    found: int

    def __str__(self) -> str:
        return f"{self.what}: {self.counted} by count, {self.found} found ({self.found - self.counted:+d})"


@dataclass(frozen=True, slots=True)
class Audit:
    """An account and what does not fit in it. ``hosts`` more than HOSTS_AT_ONCE are too many for one step: then the
    lengths of the queues are not compared.
    """

    account: Account
    hosts: int
    letters: int
    differences: Sequence[Difference]

    def as_dict(self) -> dict[str, Any]:
        """The audit as plain values."""
        return asdict(self)


def audit_call(partition: Partition) -> Call:
    """Counts what the structures hold."""
    return Call(Scripts("exact").audit, partition.script_keys("-"), [0, HOSTS_AT_ONCE - 1, WORKERS_COUNTED])


def read_audit(reply: bytes) -> Audit:
    """Compares what audit.lua counted."""
    hosts, queued, packed, delayed, leases, expiries, held, workers, suspects, letters = msgpack.unpackb(
        reply, raw=True
    )
    pairs = iter(packed)
    counters = {name.decode(): int(value) for name, value in zip(pairs, pairs, strict=True)}
    account = Account.of(counters, delayed=delayed, in_flight=leases, suspects=suspects)
    pairs_of_numbers = [
        ("URLs that were put", account.put + account.replayed, account.accounted),
        ("pages filtered", counters.get("filtered", 0), sum(account.filtered.values())),
        ("leases with an expiry", leases, expiries),
    ]
    if hosts <= HOSTS_AT_ONCE:
        pairs_of_numbers.append(("URLs in the queues of hosts", counters.get("waiting", 0), queued))
    if workers <= WORKERS_COUNTED:
        pairs_of_numbers.append(("leases held by workers", leases, held))
    return Audit(account, hosts, letters, [Difference(*each) for each in pairs_of_numbers if each[1] != each[2]])
