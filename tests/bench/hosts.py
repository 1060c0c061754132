"""What many hosts cost a claim, how evenly equal hosts are served, and that hosts leave nothing behind.

Every host has a limit of its own, so that each claim takes turns and puts hosts back to when theirs come again.
"""

import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis

from crawler.frontier.store import SeenSpec
from crawler.redisdb.embedded import EmbeddedServer
from crawler.throttle.rules import Rule, RuleSet
from tests.bench.figures import Target, parser, tell
from tests.support.frontier import FleetOnServer, Member, leases, page

BATCH = 64
FEW = 1_000
ROUNDS = 9
CLAIMS = FEW // BATCH
EQUAL_HOSTS = 100
BIG = 100_000
ONE_URL_HOSTS = 100_000
SEEN = SeenSpec("bloom", 1e-4, 3_000_000)


@contextmanager
def fleet_of(crawl: str) -> Iterator[FleetOnServer]:
    """A crawl on a server of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="trawlnet-bench-") as folder,
        EmbeddedServer(Path(folder)) as server,
        Redis.from_url(server.url) as client,
    ):
        yield FleetOnServer(client, crawl, server.url)


def put(worker: Member, urls: Sequence[str]) -> None:
    """Puts URLs in batches."""
    for at in range(0, len(urls), BATCH * 4):
        worker.put(*(page(url) for url in urls[at : at + BATCH * 4]))


def urls_of(hosts: int, each: int) -> list[str]:
    """URLs of so many hosts, one of each host at a time."""
    return [f"http://host-{host:07d}.test/{number}" for number in range(each) for host in range(hosts)]


def filled(fleet: FleetOnServer, hosts: int) -> Member:
    """A worker of a crawl whose hosts may each be asked once in a thousand seconds."""
    worker = fleet.worker(seen=SEEN)
    fleet.set_rules(RuleSet(default=Rule(1e-3)))
    put(worker, urls_of(hosts, 2))
    return worker


def claim_cost(worker: Member) -> float:
    """Seconds a URL of claims of hosts that were not asked before."""
    began = time.perf_counter()
    claimed = [one for _ in range(CLAIMS) for one in worker.claim(BATCH)]
    spent = time.perf_counter() - began
    worker.settle(done=leases(claimed))
    return spent / (CLAIMS * BATCH)


def claim_cost_ratio(many: int) -> tuple[float, float]:
    """Time a URL claimed with many hosts over that with few, in alternate rounds; and with many, in us."""
    with fleet_of("many") as lots:
        worker = filled(lots, many)
        few, more = [], []
        for number in range(ROUNDS):
            few.append(claim_cost(filled(FleetOnServer(lots.redis, f"few-{number}", lots.url), FEW)))
            more.append(claim_cost(worker))
    with_many = statistics.median(more)
    return with_many / statistics.median(few), with_many * 1e6


def jain_fairness() -> float:
    """Jain's index of the URLs claimed of equal hosts, half-way through all: 1 is even (Jain, Chiu and Hawe, 1984)."""
    each = 40
    with fleet_of("fair") as fleet:
        workers = [fleet.worker(f"w{number}", SEEN) for number in range(4)]
        fleet.set_rules(RuleSet(default=Rule(10.0, 4)))
        put(workers[0], urls_of(EQUAL_HOSTS, each))
        served: Counter[str] = Counter({f"host-{host:07d}.test": 0 for host in range(EQUAL_HOSTS)})
        while served.total() < EQUAL_HOSTS * each / 2:
            for worker in workers:
                served.update(one.host for one in worker.claim(16))
            fleet.advance(0.05)
    return served.total() ** 2 / (len(served) * sum(count**2 for count in served.values()))


def claims_until_served() -> int:
    """Claims of 16 until a host with one URL is served that came after one with very many."""
    with fleet_of("big") as fleet:
        worker = fleet.worker(seen=SEEN)
        put(worker, [f"http://big.test/{number}" for number in range(BIG)])
        put(worker, ["http://small.test/"])
        for number in range(1, 1000):
            if any(one.host == "small.test" for one in worker.claim(16)):
                return number
    raise AssertionError("the small host was never served")


def bytes_left() -> float:
    """Bytes a host that hosts with one URL each leave, when their turns are over; the seen filter apart."""
    with fleet_of("gone") as fleet:
        worker = fleet.worker(seen=SEEN)
        fleet.set_rules(RuleSet(default=Rule(50.0)))
        put(worker, ["http://first.test/"])
        worker.settle(done=leases(worker.claim(BATCH)))
        before = _used(fleet)
        put(worker, urls_of(ONE_URL_HOSTS, 1))
        deadline = time.monotonic() + 60
        # A host leaves the index when a claim finds nothing of it.
        while fleet.redis.exists(fleet.key("hosts")) or any(name.startswith("host:") for name in fleet.names()):
            if time.monotonic() > deadline:
                raise AssertionError("records of hosts do not go")
            for _ in range(100):
                worker.settle(done=leases(worker.claim(BATCH)))
        return (_used(fleet) - before) / ONE_URL_HOSTS


def _used(fleet: FleetOnServer) -> int:
    return sum(fleet.redis.memory_usage(fleet.key(name), samples=0) for name in fleet.names() if "seen" not in name)


def main() -> int:
    """Measures and tells."""
    options = parser("hosts", __doc__)
    options.add_argument("--hosts", type=int, default=1_000_000, help="hosts of the crawl with many (1000000)")
    given = options.parse_args()
    print(f"claims of {BATCH} with {given.hosts:,} hosts beside {FEW:,}, every host with a limit")
    ratio, microseconds = claim_cost_ratio(given.hosts)
    figures: dict[str, Any] = {
        "hosts": given.hosts,
        "claim_cost_ratio_1m_to_1k": ratio,
        "us_a_url_claimed": microseconds,
        "jain_fairness": jain_fairness(),
        "claims_until_small_host_served": claims_until_served(),
        "bytes_left_a_host": bytes_left(),
    }
    targets = [
        Target("claim_cost_ratio_1m_to_1k", ratio, 2.0),
        Target("jain_fairness", figures["jain_fairness"], 0.95, at_least=True),
        Target("claims_until_small_host_served", figures["claims_until_small_host_served"], 1),
        Target("bytes_left_a_host", figures["bytes_left_a_host"], 1.0),
    ]
    tell(targets, figures, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
