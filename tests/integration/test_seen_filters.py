"""The seen filters: what they forget (nothing), what they take for seen by mistake, and what they cost."""

import random
from collections.abc import Sequence

import msgpack
import pytest
from pybloom_live import BloomFilter
from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.utils.reactor import is_reactor_installed
from scrapy.utils.request import RequestFingerprinter

from crawler.components.dupefilter import SeenDupeFilter
from crawler.frontier.seen import false_positive_rate
from crawler.frontier.store import SeenSpec, exact_key
from crawler.redisdb.connect import RedisTarget
from crawler.redisdb.keys import Partition
from tests.support.frontier import FilterOnServer, FleetOnServer, digests_of, page

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")

# Bloom.


def test_bloom_forgets_nothing_while_it_grows_and_costs_few_bytes(fleet: FleetOnServer) -> None:
    bloom = FilterOnServer(fleet, SeenSpec("bloom"))
    known = digests_of("a", 200_000)
    assert bloom.add(known).count("0") <= 20
    assert len(bloom.described()) == 2
    assert bloom.bytes_used() / len(known) <= 6
    assert set(bloom.add(random.Random(1).sample(known, 10_000))) == {"0"}
    assert bloom.add(digests_of("b", 10_000)).count("0") <= 5


@both
def test_bloom_keeps_its_rate_over_many_layers(fleet: FleetOnServer) -> None:
    bloom = FilterOnServer(fleet, SeenSpec("bloom", error_rate=1e-3, capacity=2000))
    known: list[bytes] = []
    for layer in range(8):
        # The layer is called full, so that the next one begins.
        known += digests_of(f"a{layer}", 2000)
        bloom.add(known[-2000:])
        described = bloom.described()
        assert len(described) == layer + 1
        described[-1][2] = described[-1][1]
        fleet.redis.set(bloom.base, msgpack.packb(described))
    assert set(bloom.add(known)) == {"0"}
    assert sum(error for *_, error in described) <= 1e-3
    assert false_positive_rate(described) <= 1e-3
    grown = [capacity for _, capacity, *_ in described[1:]]
    assert grown == sorted(grown)
    assert grown[-1] > 2 * grown[0]


def test_bloom_of_a_declared_size_is_wrong_about_at_most_20_of_100_000(fleet: FleetOnServer) -> None:
    bloom = FilterOnServer(fleet, SeenSpec("bloom", error_rate=1e-4, capacity=100_000))
    assert bloom.add(digests_of("a", 100_000)).count("0") <= 20
    assert len(bloom.described()) == 1


def test_bloom_says_beforehand_how_often_it_is_wrong(fleet: FleetOnServer) -> None:
    bloom = FilterOnServer(fleet, SeenSpec("bloom", error_rate=0.02, capacity=5_000))
    for full, share in ((2_500, 0.5), (5_000, 1.0), (8_000, 1.6)):
        bloom.add(digests_of("a", full))
        expected = false_positive_rate(bloom.described())
        assert expected <= 0.02
        assert share != 1.0 or expected > 0.01, "the memory is used"
        tried = FilterOnServer(fleet, SeenSpec("bloom", error_rate=0.02, capacity=5_000))
        probes = digests_of(f"b{full}", 30_000)
        wrong = _wrong(tried, probes)
        assert abs(wrong / 30_000 - expected) <= 5 * (expected / 30_000) ** 0.5


def _wrong(filter_: FilterOnServer, probes: Sequence[bytes]) -> int:
    """How many of the probes are taken for seen; the filter stays as it is."""
    before = {name: filter_.redis.dump(name) for name in filter_.names()}
    wrong = 0
    for at in range(0, len(probes), 100):
        # Few at a time, and taken out again: else the probes themselves would fill the filter.
        wrong += filter_.add(probes[at : at + 100]).count("0")
        for name, content in before.items():
            filter_.redis.restore(name, 0, content, replace=True)
    return wrong


def test_bloom_agrees_with_pybloom_at_the_same_rate(fleet: FleetOnServer) -> None:
    rate, count = 0.02, 5_000
    ours, theirs = FilterOnServer(fleet, SeenSpec("bloom", rate, count)), BloomFilter(count, rate)
    known, probes = digests_of("a", count), digests_of("b", 20_000)
    ours.add(known)
    for key in known:
        theirs.add(key.hex(), skip_check=True)
    wrong = _wrong(ours, probes)
    assert set(ours.add(known)) == {"0"}
    assert all(key.hex() in theirs for key in known)
    theirs_wrong = sum(key.hex() in theirs for key in probes)
    # Both keep the rate, but for what chance adds (5 sigma).
    slack = 5 * (rate * 20_000) ** 0.5
    assert wrong <= rate * 20_000 + slack
    assert theirs_wrong <= rate * 20_000 + slack
    assert wrong <= theirs_wrong + 2 * slack


@both
def test_bloom_works_for_a_declared_billion(fleet: FleetOnServer) -> None:
    bloom = FilterOnServer(fleet, SeenSpec("bloom", capacity=10**9))
    known = digests_of("a", 300)
    assert set(bloom.add(known)) == {"1"}
    assert set(bloom.add(known)) == {"0"}
    [[blocks, capacity, members, _]] = bloom.described()
    assert blocks * 1024 > 2**32, "more bits than one Redis string holds"
    assert (capacity, members) == (10**9, 300)
    longest = max(fleet.redis.strlen(name) for name in bloom.names())
    assert longest <= 66_000


@pytest.mark.parametrize("kind", ["bloom", "exact"])
def test_a_filter_of_200_urls_is_small(fleet: FleetOnServer, kind: str) -> None:
    few = FilterOnServer(fleet, SeenSpec(kind))
    few.add(digests_of("a", 200))
    assert few.bytes_used() < 1_000_000


# Exact.


def test_exact_tells_200_000_urls_apart_in_few_bytes(fleet: FleetOnServer) -> None:
    exact = FilterOnServer(fleet, SeenSpec("exact"))
    known = digests_of("a", 200_000)
    assert set(exact.add(known)) == {"1"}
    assert set(exact.add(random.Random(1).sample(known, 20_000))) == {"0"}
    assert exact.bytes_used() / 200_000 <= 20
    names = [name for name in exact.names() if name != exact.base.encode()]
    assert {fleet.redis.object("encoding", name) for name in names} == {b"intset"}


@both
def test_exact_is_a_set(fleet: FleetOnServer) -> None:
    exact, model = FilterOnServer(fleet, SeenSpec("exact")), set[int]()
    draw = random.Random(7)
    for _ in range(30):
        batch = [draw.randrange(60_000) * draw.choice([1, 10**9, 10**14 + 7]) for _ in range(800)]
        expected = ""
        for key in batch:
            expected += "0" if key in model else "1"
            model.add(key)
        assert exact.add_keys([b"%d" % key for key in batch]) == expected
    members, level, split = exact.described()
    assert members == len(model)
    assert level >= 3, "it was split over and over"
    buckets = 8 * 2**level + split
    content = [fleet.redis.smembers(f"{exact.base}:{bucket}") for bucket in range(buckets)]
    assert {int(key) for bucket in content for key in bucket} == model
    assert sum(map(len, content)) == len(model)


def test_exact_takes_the_smallest_and_the_largest_keys(fleet: FleetOnServer) -> None:
    exact = FilterOnServer(fleet, SeenSpec("exact"))
    ends = [exact_key(bytes(16)), exact_key(b"\xff" * 16)]
    assert ends == [b"0", b"9223372036854775807"]
    keys = [*ends, b"1", b"9", b"999999999", b"1000000000", b"1000000001", b"9223372036854775806"]
    assert exact.add_keys(keys) == "1" * len(keys)
    assert exact.add_keys(keys) == "0" * len(keys)


@pytest.mark.parametrize("kind", ["bloom", "exact"])
def test_the_frontier_asks_its_filter_and_its_instances_apart(fleet: FleetOnServer, kind: str) -> None:
    worker = fleet.worker("w1", SeenSpec(kind))
    assert worker.put(*(page(f"http://a.test/{n % 60}") for n in range(120))) == "1" * 60 + "0" * 60
    assert fleet.counters() == {"put": 60, "seen": 60, "waiting": 60, "duplicate": 60}


# Alone, for a scheduler of another kind.


@both
@pytest.mark.parametrize("kind", ["bloom", "exact"])
def test_the_filter_alone_is_shared_by_all_processes(fleet: FleetOnServer, kind: str) -> None:
    one, other = (
        SeenDupeFilter(RedisTarget(fleet.url), fleet.crawl, SeenSpec(kind), RequestFingerprinter()) for _ in range(2)
    )
    get, post = Request("http://a.test/?b=1&a=2"), Request("http://a.test/?b=1&a=2", method="POST")
    assert [one.request_seen(get), other.request_seen(get.copy()), one.request_seen(post)] == [False, True, False]
    assert other.request_seen(Request("http://a.test/?a=2&b=1")), "fingerprints see one URL here"
    one.close("finished")
    other.close("finished")


def test_the_filter_alone_serves_scrapys_own_scheduler(fleet: FleetOnServer) -> None:
    settings = {
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
        "DUPEFILTER_CLASS": "crawler.components.dupefilter.SeenDupeFilter",
        "REDIS_URL": fleet.url,
        "CRAWLER_CRAWL": fleet.crawl,
        "CRAWLER_SEEN": "exact",
    }
    # Whatever reactor the test's process has, or none: nothing here needs one.
    reactor = {"TWISTED_REACTOR": None, "TWISTED_REACTOR_ENABLED": is_reactor_installed()}
    crawler = Crawler(Spider, {**settings, **reactor})
    crawler._apply_settings()
    crawler.spider = crawler._create_spider("shop")
    scheduler = Scheduler.from_crawler(crawler)
    scheduler.open(crawler.spider)
    home = Request("http://a.test/")
    queued = [scheduler.enqueue_request(request) for request in (home, home.copy(), home.replace(dont_filter=True))]
    assert queued == [True, False, True]
    assert crawler.stats is not None
    assert crawler.stats.get_value("dupefilter/filtered") == 1
    scheduler.close("finished")
    assert fleet.redis.exists(Partition(fleet.crawl).seen(0))
