"""Cost of the frontier beside scrapy-redis on the same server in the same run: time a URL, and bytes of Redis memory.

Timed is what each does with a request that is there, fingerprinted and, with us, encoded by the worker: filter and
queue it; claim it. Both go through redis-py's blocking client. ``..._all_in`` adds fingerprint and encoding or decoding
to both, and the settle to the claim.
"""

import hashlib
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgpack
from redis import Redis
from scrapy import Request, Spider
from scrapy.utils.request import RequestFingerprinter
from scrapy_redis.dupefilter import RFPDupeFilter
from scrapy_redis.queue import PriorityQueue

from crawler.components.codec import RequestCodec
from crawler.frontier.identity import digest
from crawler.frontier.plan import Plan, Put
from crawler.frontier.seen import false_positive_rate
from crawler.frontier.store import Claimed, ClaimOrder, SeenSpec, Session
from crawler.redisdb.embedded import EmbeddedServer
from crawler.redisdb.keys import Partition
from crawler.redisdb.scripts import Call, run_now
from tests.bench.figures import Target, parser, tell
from tests.support.waiting import wait_until

BATCH = 64
ROUNDS = 5
ROUND_URLS = 6400
CONTROL_URLS = 1280
URLS_A_HOST = 200
LINKS_OF_ONE_HOST = 20
FRESH = 200_000


class _BenchSpider(Spider):
    name = "bench"

    def parse_page(self, response: Any) -> None:
        """The callback that the requests name."""


def requests(spider: _BenchSpider, first: int, count: int, hosts: int) -> Iterator[Request]:
    """Ordinary links: a URL of about 80 characters, a Referer of the same site, depth, callback."""
    for number in range(first, first + count):
        # The links of a page are mostly of its own host.
        host = f"https://www.site-{number // LINKS_OF_ONE_HOST % hosts:05d}.example.com"
        url = f"{host}/catalogue/category-{number % 97}/product-{number:09d}.html"
        yield Request(
            url,
            callback=spider.parse_page,
            headers={"Referer": f"{host}/catalogue/category-{number % 97}/index.html"},
            meta={"depth": 3},
        )


class _Ours:
    """The frontier as a worker uses it, in batches of 64."""

    def __init__(self, client: Redis, crawl: str, seen: SeenSpec) -> None:
        self._client = client
        self.session = Session(Partition(crawl), "bench", seen)
        self._fingerprinter = RequestFingerprinter()
        self._codec = RequestCodec(_SPIDER)
        self.session.read_opened(self.ask(self.session.open({}, 3_600_000)))

    def ask(self, call: Call) -> Any:
        return run_now(self._client, call)

    def fingerprint(self, made: Iterable[Request]) -> None:
        """Scrapy's fingerprinter keeps what it computed."""
        for request in made:
            self._fingerprinter.fingerprint(request)

    def put_of(self, request: Request) -> Put:
        host = request.url.split("/", 3)[2]
        return Put(host, 0, digest(self._fingerprinter.fingerprint(request)), b"", self._codec.encode(request))

    def put(self, entries: Iterable[Put]) -> None:
        waiting = iter(entries)
        while batch := list(islice(waiting, BATCH)):
            self.session.read(self.ask(self.session.put(batch)))

    def claim(self, count: int) -> list[Claimed]:
        taken: list[Claimed] = []
        while len(taken) < count:
            taken += self.session.read_claimed(
                self.ask(self.session.claim(ClaimOrder(BATCH, 60_000, 0, BATCH)))
            ).claimed
        return taken

    def settle(self, taken: list[Claimed]) -> None:
        for first in range(0, len(taken), BATCH):
            done = [claimed.lease for claimed in taken[first : first + BATCH]]
            self.session.read(self.ask(self.session.settle([], Plan(done=done))))

    def decode(self, taken: list[Claimed]) -> None:
        for claimed in taken:
            self._codec.decode(claimed.body)


_SPIDER = _BenchSpider()


class _Theirs:
    """scrapy-redis as its scheduler uses it: request_seen and push, then pop; a round trip each."""

    def __init__(self, client: "Redis") -> None:
        self._filter = RFPDupeFilter(client, "bench:dupefilter")
        self._queue = PriorityQueue(client, _SPIDER, "bench:requests")
        self._compute = self._filter.request_fingerprint

    def fingerprint(self, made: Iterable[Request]) -> None:
        """Gives the filter what it would compute itself."""
        kept = {id(request): self._compute(request) for request in made}
        self._filter.request_fingerprint = lambda request: kept.get(id(request)) or self._compute(request)

    def put(self, made: Iterable[Request]) -> None:
        for request in made:
            if not self._filter.request_seen(request):
                self._queue.push(request)

    def claim(self, count: int) -> None:
        for _ in range(count):
            self._queue.pop()


def speeds(client: Redis) -> dict[str, float]:
    """Microseconds a URL, medians of interleaved rounds."""
    ours, theirs = _Ours(client, "speed", SeenSpec()), _Theirs(client)
    times: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def timed(name: str, urls: int) -> Iterator[None]:
        start = time.perf_counter()
        yield
        times[name].append((time.perf_counter() - start) / urls)

    for number in range(ROUNDS):
        made = list(requests(_SPIDER, number * ROUND_URLS, ROUND_URLS, ROUND_URLS // URLS_A_HOST))
        few = made[:CONTROL_URLS]
        with timed("hash", ROUND_URLS):
            ours.fingerprint(made)
        with timed("encode", ROUND_URLS):
            entries = [ours.put_of(request) for request in made]
        with timed("put", ROUND_URLS):
            ours.put(entries)
        with timed("claim", ROUND_URLS):
            taken = ours.claim(ROUND_URLS)
        with timed("settle", ROUND_URLS):
            ours.settle(taken)
        with timed("decode", ROUND_URLS):
            ours.decode(taken)
        with timed("their_hash", CONTROL_URLS):
            theirs.fingerprint(few)
        with timed("their_put", CONTROL_URLS):
            theirs.put(few)
        with timed("their_claim", CONTROL_URLS):
            theirs.claim(CONTROL_URLS)
    return {name: statistics.median(values) * 1e6 for name, values in times.items()}


def _used(client: Redis) -> int:
    # Servers free large values in the background.
    wait_until(lambda: client.info("memory")["lazyfree_pending_objects"] == 0, 60, "the server to free memory")
    return int(client.info("memory")["used_memory"])


def _bytes(client: Redis, pattern: str, urls: int) -> float:
    """Memory that the keys of a pattern take, by removing them."""
    before = _used(client)
    for key in list(client.scan_iter(match=pattern, count=1000)):
        client.delete(key)
    return (before - _used(client)) / urls


def memory(client: Redis, urls: int) -> dict[str, float]:
    """Bytes of the queue and the filter, and how often the filter is wrong when it has grown to that size."""
    ours = _Ours(client, "memory", SeenSpec())
    ours.put(ours.put_of(request) for request in requests(_SPIDER, 0, urls, max(1, urls // URLS_A_HOST)))
    partition = ours.session.partition
    estimate = false_positive_rate(msgpack.unpackb(client.get(partition.seen(1)) or b""))
    wrong = _wrong(ours)
    return {
        "bytes_per_waiting_url": _bytes(client, "*memory*q:*", urls),
        "bytes_per_seen_url": _bytes(client, "*memory*seen:*", urls + FRESH),
        "false_positive_rate": wrong,
        "false_positive_rate_estimate": estimate,
    }


def _tested(label: str, first: int, count: int) -> list[Put]:
    """Entries that are only tested and then recorded, not queued."""
    return [
        Put("none", 0, hashlib.blake2b(f"{label} {n}".encode(), digest_size=16).digest(), b"", b"")
        for n in range(first, first + count)
    ]


def _wrong(ours: _Ours) -> float:
    """Share of fresh URLs that the filter takes for seen ones."""
    known = 0
    for first in range(0, FRESH, BATCH):
        batch = _tested("fresh", first, min(BATCH, FRESH - first))
        known += ours.session.read(ours.ask(ours.session.put(batch)))[0].count(b"0")
    return known / FRESH


def declared(client: Redis, urls: int) -> float:
    """Bytes a URL of a filter whose capacity was declared."""
    ours = _Ours(client, "declared", SeenSpec(capacity=urls))
    for first in range(0, urls, BATCH):
        ours.put(_tested("declared", first, min(BATCH, urls - first)))
    return _bytes(client, "*declared*seen:*", urls)


def lonely(client: Redis, urls: int) -> float:
    """Bytes of a waiting URL where every URL is alone on its host."""
    ours = _Ours(client, "lonely", SeenSpec())
    ours.put(
        ours.put_of(request) for request in requests(_SPIDER, 0, urls * LINKS_OF_ONE_HOST, urls) if _first(request)
    )
    filter_bytes = _bytes(client, "*lonely*seen:*", urls)
    return _bytes(client, "*lonely*", urls) if filter_bytes >= 0 else 0.0


def _first(request: Request) -> bool:
    return int(request.url[-14:-5]) % LINKS_OF_ONE_HOST == 0


def control_memory(client: Redis, urls: int) -> dict[str, float]:
    """The same of scrapy-redis."""
    theirs = _Theirs(client)
    client.delete("bench:requests", "bench:dupefilter")
    theirs.put(requests(_SPIDER, 0, urls, max(1, urls // URLS_A_HOST)))
    return {
        "scrapy_redis_bytes_per_waiting_url": _bytes(client, "bench:requests", urls),
        "scrapy_redis_bytes_per_seen_url": _bytes(client, "bench:dupefilter", urls),
    }


def _measure(urls: int) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="trawlnet-bench-") as folder,
        EmbeddedServer(Path(folder), appendonly=False) as server,
        Redis.from_url(server.url) as client,
    ):
        us = speeds(client)
        for key in client.scan_iter(count=1000):
            client.delete(key)
        put_all_in = us["hash"] + us["encode"] + us["put"]
        claim_all_in = us["claim"] + us["decode"] + us["settle"]
        figures: dict[str, Any] = {
            "urls": urls,
            "put_speedup": us["their_put"] / us["put"],
            "put_speedup_all_in": (us["their_hash"] + us["their_put"]) / put_all_in,
            "claim_speedup": us["their_claim"] / us["claim"],
            "claim_speedup_all_in": us["their_claim"] / claim_all_in,
            **{f"us_{name}": value for name, value in us.items()},
        }
        figures |= memory(client, urls)
        figures["bytes_per_seen_url_declared"] = declared(client, urls)
        figures["bytes_per_waiting_url_alone_on_its_host"] = lonely(client, max(1000, urls // 100))
        figures |= control_memory(client, max(1000, urls // 10))
        return figures


def main() -> None:
    """Measures and tells."""
    options = parser("frontier", __doc__)
    options.add_argument("--urls", type=int, default=1_000_000, help="URLs of the memory part (default 1,000,000)")
    given = options.parse_args()
    print(
        f"frontier beside scrapy-redis: batches of {BATCH}, {given.urls:,} URLs of {URLS_A_HOST} a host, bloom at 1e-4"
    )
    figures = _measure(given.urls)
    targets = [
        Target("put_speedup", figures["put_speedup"], 8, at_least=True),
        Target("claim_speedup", figures["claim_speedup"], 8, at_least=True),
        Target("bytes_per_waiting_url", figures["bytes_per_waiting_url"], 200),
        Target("bytes_per_seen_url", figures["bytes_per_seen_url"], 6),
        Target("bytes_per_seen_url_declared", figures["bytes_per_seen_url_declared"], 4),
        Target("false_positive_rate", figures["false_positive_rate"], 1e-4),
    ]
    tell(targets, figures, given.json)
    for name in sorted(set(figures) - {target.name for target in targets} - {"urls"}):
        print(f"  {name:42} {figures[name]:>12.4g}")


if __name__ == "__main__":
    main()
