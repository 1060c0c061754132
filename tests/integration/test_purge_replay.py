"""What the operator sees and changes of a crawl: status, dead letters and their replay, purge."""

import msgpack
import pytest

from crawler.control.crawls import Crawls, CrawlStatus
from crawler.errors import ClashError
from crawler.frontier.plan import Plan
from crawler.frontier.seen import false_positive_rate
from crawler.frontier.store import SeenSpec
from crawler.redisdb.keys import Intake
from crawler.redisdb.scripts import run_now
from crawler.seeds.intake import IntakeScripts
from tests.support.frontier import (
    LAPSE_SECONDS,
    FleetOnServer,
    Member,
    bodies,
    leases,
    page,
    retry,
    unfiltered,
)

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")


def _crawls(fleet: FleetOnServer) -> Crawls:
    return Crawls(fleet.redis, fleet.crawl)


def _bury(fleet: FleetOnServer, count: int) -> Member:
    """A worker whose pages have all failed for good."""
    worker = fleet.worker()
    worker.put(*(page(f"http://a.test/{n}", band=n % 3) for n in range(count)))
    letter = {"kind": "page", "class": "status", "reason": "status 500 after 3 tries"}
    worker.settle(retries=[retry(claimed) for claimed in worker.claim(1)])
    claimed = worker.claim(count, room=1000)
    worker.settle(dead=[(lease, letter) for lease in leases(claimed)])
    return worker


def _kind_of_everything(fleet: FleetOnServer) -> Member:
    """A crawl that has at least one key of each kind."""
    worker = fleet.worker("w1", SeenSpec("bloom"))
    fleet.member("feeder", SeenSpec("bloom")).open(feeder="feeder")
    worker.put(*(page(f"http://a.test/{n}", band=n % 3) for n in range(9)), unfiltered("http://b.test/"))
    one, other, dead, *_ = worker.claim(6)
    worker.settle(done=[one.lease], retries=[retry(other, 60_000)])
    worker.settle(dead=[(dead.lease, {"kind": "page", "reason": "status 404"})])
    fleet.worker("idle", SeenSpec("bloom")).claim(0)
    fleet.redis.sadd(fleet.key("garbage"), "seen:0")
    intake = IntakeScripts(Intake(f"{fleet.crawl}:start_urls"))
    fleet.redis.rpush(intake.keys.start, "http://c.test/1", "http://c.test/2")
    run_now(fleet.redis, intake.take(1, 60_000))
    return worker


@both
def test_status_counts_what_is_where(fleet: FleetOnServer) -> None:
    assert _crawls(fleet).status() == CrawlStatus(fleet.crawl, "absent")
    worker = _kind_of_everything(fleet)
    worker.beat()
    found = _crawls(fleet).status()
    assert (found.state, found.generation, found.seen_filter) == ("open", 1, "bloom")
    assert (found.waiting, found.delayed, found.in_flight) == (6, 1, 1)
    assert (found.done, found.dead, found.seen, found.unread) == (1, 1, 10, 2)
    assert found.false_positive_rate < 1e-4
    by_name = {one.name: one for one in found.workers}
    assert set(by_name) == {"w1", "feeder", "idle"}
    assert (by_name["w1"].held, by_name["w1"].pages) == (1, 1)
    assert 0 < by_name["w1"].alive_seconds <= LAPSE_SECONDS


def test_status_tells_how_often_the_filter_is_wrong(fleet: FleetOnServer) -> None:
    fleet.worker("w1", SeenSpec("bloom")).put(page("http://a.test/"))
    fuller = [[1, 90, 90, 9e-5], [128, 4096, 2000, 1e-5]]
    fleet.redis.set(fleet.partition.seen(1), msgpack.packb(fuller))
    found = _crawls(fleet).status().false_positive_rate
    assert found == false_positive_rate(fuller)
    assert 1e-3 < found < 1


# Dead letters.


@both
def test_dead_letters_are_listed_newest_first_with_their_reasons(fleet: FleetOnServer) -> None:
    worker = _bury(fleet, 3)
    worker.settle_plan([], Plan(letters=[{"kind": "seed", "class": "bad_seed", "reason": "no scheme"}]))
    newest, *pages = _crawls(fleet).dead_letters()
    assert (newest.fields["reason"], newest.replayable) == ("no scheme", False)
    assert _crawls(fleet).replay([newest.id]) == 0
    assert {letter.fields["reason"] for letter in pages} == {"status 500 after 3 tries"}
    assert all(letter.replayable and "element" not in letter.fields for letter in pages)
    assert len(list(_crawls(fleet).dead_letters(2))) == 2


@both
def test_replayed_letters_are_entries_again_as_if_new(fleet: FleetOnServer) -> None:
    worker = _bury(fleet, 130)
    worker.settle_plan([], Plan(letters=[{"kind": "seed", "reason": "no scheme"}]))
    crawls = _crawls(fleet)
    assert crawls.replay() == 130
    assert crawls.status().dead == 1, "what never was an entry stays a letter"
    claimed = worker.claim(200, room=1000)
    assert sorted(bodies(claimed)) == sorted(f"http://a.test/{n}" for n in range(130))
    assert {(one.deliveries, one.deaths) for one in claimed} == {(0, 0)}
    assert crawls.replay() == 0
    assert worker.claim() == []


@both
def test_a_letter_is_replayed_once(fleet: FleetOnServer) -> None:
    worker = _bury(fleet, 2)
    crawls = _crawls(fleet)
    chosen, kept = (letter.id for letter in crawls.dead_letters())
    assert crawls.replay([chosen, chosen, "1-1"]) == 1
    before = fleet.picture()
    assert crawls.replay([chosen]) == 0
    assert fleet.picture() == before
    assert [letter.id for letter in crawls.dead_letters()] == [kept]
    assert len(worker.claim()) == 1


def test_a_replay_opens_a_finished_crawl_again(fleet: FleetOnServer) -> None:
    worker = _bury(fleet, 1)
    worker.start("take")
    worker.start("done")
    assert worker.finish() == "finished"
    worker.leave()
    assert _crawls(fleet).replay() == 1
    assert _crawls(fleet).status().state == "open"
    joined = fleet.worker("w2")
    assert joined.session.opened.generation == 1
    assert joined.finish() == "open"
    assert bodies(joined.claim()) == ["http://a.test/0"]


# Purge.


@both
def test_a_purge_removes_every_key_and_nothing_else(fleet: FleetOnServer, declared_keys: set[str]) -> None:
    worker = _kind_of_everything(fleet)
    # Names that a careless pattern would take along.
    neighbours = [f"trawlnet:{{{fleet.crawl}x:0}}:state", f"{fleet.crawl}:start_urls", f"x{fleet.crawl}:items"]
    declared_keys.update(neighbours)
    fleet.redis.set(neighbours[0], "1")
    fleet.redis.set(neighbours[2], "1")
    crawls = _crawls(fleet)
    worker.leave()
    for name in ("feeder", "idle"):
        fleet.redis.zadd(fleet.key("workers"), {name: 1})
    counted = sum(1 for _ in crawls.own_keys())
    assert counted == len(fleet.names()) + 2, "the intake's two keys are the crawl's too"
    assert crawls.purge() == counted
    assert list(crawls.own_keys()) == []
    assert fleet.names() == set()
    assert all(fleet.redis.exists(name) for name in neighbours)
    assert crawls.status().state == "absent"
    assert crawls.purge() == 0


@both
def test_a_crawl_with_workers_alive_is_not_purged_unless_forced(fleet: FleetOnServer) -> None:
    _kind_of_everything(fleet)
    crawls = _crawls(fleet)
    before = fleet.picture()
    with pytest.raises(ClashError, match=r"3 workers are at the crawl .*w1.*--force"):
        crawls.purge()
    assert fleet.picture() == before
    assert crawls.purge(force=True) > 0
    assert fleet.names() == set()


def test_crawls_of_dead_workers_are_purged(fleet: FleetOnServer) -> None:
    _bury(fleet, 3)
    fleet.redis.zadd(fleet.key("workers"), {"w1": 1})
    assert _crawls(fleet).purge() > 0


@both
def test_more_keys_than_one_batch_are_purged(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    for part in range(10):
        worker.put(*(page(f"http://{part}-{n}.test/", band=1) for n in range(100)))
    worker.leave()
    assert _crawls(fleet).purge() > 2000
    assert fleet.names() == set()


@pytest.mark.parametrize("crawl", ["a*b", "a[bc]", "a?c", "a\\c", "a^c"])
def test_names_with_signs_of_patterns_are_taken_as_they_are(fleet: FleetOnServer, crawl: str) -> None:
    odd = FleetOnServer(fleet.redis, f"{fleet.crawl}{crawl}", fleet.url)
    plain = FleetOnServer(fleet.redis, f"{fleet.crawl}abc", fleet.url)
    for one in (odd, plain):
        one.worker().leave()
    before = plain.picture()
    assert Crawls(fleet.redis, odd.crawl).purge() == 1
    assert plain.picture() == before
    assert not fleet.redis.exists(odd.key("state"))


def test_after_a_purge_workers_must_join_again_and_put_what_they_hold(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(page("http://a.test/"))
    _crawls(fleet).purge(force=True)
    assert worker.open().generation == 1
    assert worker.put(page("http://a.test/")) == "1"
