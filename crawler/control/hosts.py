"""Hosts of a crawl as an operator sees and orders them. Blocking; never part of a worker."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgpack
from redis import Redis

from crawler.errors import ConfigError
from crawler.redisdb.keys import Partition
from crawler.redisdb.scripts import Call, read_script, run_now
from crawler.throttle.rules import Rule, packed_order

STRATEGY_NAMES = {"t": "token_bucket", "s": "sliding_window", "f": "fixed_window"}


@dataclass(frozen=True, slots=True)
class HostStatus:
    """What holds for one host.

    Args:
        host: its name.
        waiting: URLs in its queue.
        wait_seconds: until its next URL may be claimed; None without one.
        blocked_seconds: what is left of its block.
        order: what an operator ordered: slow, pause, block, or nothing.
        slowed_seconds: interval of its requests while it is slowed down; 0 if it is not.
        trying: whether its circuit is open and one request tries it.
        failures: in a row.
        in_flight: requests that the fleet may have under way; None without a cap.
        cap: the most of those; 0 without one.
        strategy: of its rule; empty without a rate.
        span_seconds: interval of its rule, or its window.
        burst: of its rule.
    """

    host: str
    waiting: int
    wait_seconds: float | None
    blocked_seconds: float
    order: str
    slowed_seconds: float
    trying: bool
    failures: int
    in_flight: int | None
    cap: int
    strategy: str
    span_seconds: float
    burst: int

    def as_dict(self) -> dict[str, Any]:
        """The status as plain values."""
        return asdict(self)


class HostDesk:
    """Reads and changes what holds for the hosts of one crawl."""

    def __init__(self, client: Redis, crawl: str) -> None:
        self._client: Any = client
        self._partition = Partition(crawl)
        self._keys = self._partition.script_keys("-")
        self._show = read_script("throttle", "show")
        self._order = read_script("throttle", "order")

    def overview(self, most: int) -> list[HostStatus]:
        """Hosts that an operator gave orders for, that are blocked or slowed down, then those with waiting URLs."""
        key = self._partition.key
        pipe = self._client.pipeline(transaction=False)
        pipe.zrevrange(key("blocks"), 0, most - 1)
        pipe.zrevrange(key("slowed"), 0, most - 1)
        pipe.zrange(key("hosts"), 0, most - 1)
        ordered = [field[2:] for field, _ in self._client.hscan_iter(key("limits"), match="o:*", count=1000)]
        names = [name for found in (ordered, *pipe.execute()) for name in found]
        return self.show(list(dict.fromkeys(name.decode() for name in names))[:most])

    def show(self, hosts: Sequence[str]) -> list[HostStatus]:
        """What holds for these hosts, in their order."""
        found: list[HostStatus] = []
        for at in range(0, len(hosts), 100):
            reply = run_now(self._client, Call(self._show, self._keys, hosts[at : at + 100]))
            found += (_status(*each) for each in msgpack.unpackb(reply))
        return found

    def slow(self, host: str, rate: float) -> None:
        """Gives a host, and those below it, so many requests a second, whatever their rules say."""
        self._give(host, packed_order("slow", Rule(rate)))

    def pause(self, host: str) -> None:
        """Lets nobody ask a host, and those below it; their URLs wait."""
        self._give(host, packed_order("pause"))

    def block(self, host: str) -> None:
        """Lets nobody ask a host, and those below it; their URLs become dead letters."""
        self._give(host, packed_order("block"))

    def resume(self, host: str) -> bool:
        """Lifts the order for a host, its block, and all that slows it down; whether there was an order."""
        return bool(self._give(host, b""))

    def _give(self, host: str, order: bytes) -> int:
        name = host.strip().lower().rstrip(".")
        if not name or re.search(r"[\s/@*?]", name):
            raise ConfigError(f"got the host {host!r}; write a host or a domain, no URL and no glob")
        return int(run_now(self._client, Call(self._order, self._keys, [name, order])))


def _status(*parts: Any) -> HostStatus:
    host, waiting, wait_ms, blocked_ms, order, slow_us, trying, failures, flight, cap, strategy, span_us, burst = parts
    return HostStatus(
        host,
        waiting,
        None if wait_ms < 0 else wait_ms / 1000,
        blocked_ms / 1000,
        order,
        slow_us / 1e6,
        bool(trying),
        failures,
        None if flight < 0 else flight,
        cap,
        STRATEGY_NAMES.get(strategy, ""),
        span_us / 1e6,
        burst,
    )
