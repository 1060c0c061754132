"""How leases end: each once, after its links, as done, as a new try, as a dead letter, or given back."""

import random
from collections import Counter

import msgpack
import pytest

from crawler.frontier.plan import Plan, Retry
from crawler.frontier.store import Claimed
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


@both
def test_every_way_of_ending_in_one_call(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(*(page(f"http://a.test/{n}") for n in range(6)))
    done, later, soon, dead, back, kept = worker.claim()
    letter = {"kind": "page", "class": "status", "reason": "status 500 after 3 tries"}
    plan = Plan(
        done=[done.lease],
        retries=[retry(later, 60_000), retry(soon, body=b"http://a.test/2?try=2")],
        dead=[(dead.lease, letter)],
        back=[back.lease],
        letters=[{"kind": "link", "class": "unserialisable", "reason": "meta key 'f' holds a function"}],
        tallies={"trapped": 2, "callback_errors": 1},
    )
    assert worker.settle_plan([page("http://a.test/new"), page("http://a.test/0")], plan).new == "10"
    assert fleet.redis.hkeys(fleet.key("inflight")) == [kept.lease.encode()]
    assert fleet.redis.zrange(fleet.key("lease"), 0, -1) == [kept.lease.encode()]
    assert fleet.redis.smembers(fleet.partition.held("w1")) == {kept.lease.encode()}
    assert fleet.counters() == {
        **{"put": 7, "seen": 7, "waiting": 3, "duplicate": 1, "letters": 1},
        **{"done": 1, "retried": 2, "dead": 2, "returned": 1, "trapped": 2, "callback_errors": 1},
    }
    # What was given back is first, a new try queues up behind what waited.
    again = worker.claim()
    assert bodies(again) == ["http://a.test/4", "http://a.test/new", "http://a.test/2?try=2"]
    assert [one.deliveries for one in again] == [1, 0, 1]


@both
def test_a_dead_letter_says_why_and_keeps_the_entry(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(page("http://a.test/", band=4))
    [claimed] = worker.claim()
    worker.settle(dead=[(claimed.lease, {"kind": "page", "reason": "status 410", "url": "http://a.test/"})])
    [letter] = fleet.letters()
    assert letter == {
        **{"kind": b"page", "reason": b"status 410", "url": b"http://a.test/"},
        **{"host": b"a.test", "band": b"4", "element": b"\0\0http://a.test/"},
    }


def test_a_letter_of_something_that_was_no_lease_has_no_entry(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.settle_plan([], Plan(letters=[{"kind": "seed", "reason": "no scheme", "seed": "\udcff"}]))
    assert fleet.letters() == [{"kind": b"seed", "reason": b"no scheme", "seed": b"\xed\xb3\xbf"}]
    assert fleet.counters() == {"dead": 1, "letters": 1}


@both
@pytest.mark.parametrize("end", ["done", "retries", "dead", "back"])
def test_a_lease_that_went_to_another_ends_nothing(fleet: FleetOnServer, end: str) -> None:
    late, other = fleet.worker("late"), fleet.worker("other")
    late.put(page("http://a.test/"))
    [lost] = late.claim()
    fleet.pass_time(60, alive=[(late, []), (other, [])])
    [taken] = other.claim()
    before = fleet.picture(without={"session:late", "counters"})
    assert _end(late, end, lost) == [lost.lease]
    assert fleet.picture(without={"session:late", "counters"}) == before
    assert fleet.counters()["stale"] == 1
    assert _end(other, end, taken) == []


@both
@pytest.mark.parametrize("end", ["done", "retries", "dead", "back"])
@pytest.mark.parametrize("then", ["done", "retries", "dead", "back"])
def test_no_lease_ends_twice(fleet: FleetOnServer, end: str, then: str) -> None:
    worker = fleet.worker()
    worker.put(page("http://a.test/"))
    [claimed] = worker.claim()
    assert _end(worker, end, claimed) == []
    before = fleet.counters()
    assert _end(worker, then, claimed) == [claimed.lease]
    assert fleet.counters() == {**before, "stale": 1}


def _end(worker: Member, how: str, claimed: Claimed) -> list[str]:
    lease = claimed.lease
    ends = {
        "done": Plan(done=[lease]),
        "retries": Plan(retries=[retry(claimed)]),
        "dead": Plan(dead=[(lease, {"kind": "page", "reason": "status 404"})]),
        "back": Plan(back=[lease]),
    }
    return worker.settle_plan([], ends[how]).stale


def test_links_are_in_when_their_page_is_done(fleet: FleetOnServer) -> None:
    worker, other = fleet.worker("w1"), fleet.worker("other")
    worker.put(page("http://a.test/"))
    [home] = worker.claim()
    worker.settle(page("http://a.test/1"), unfiltered("http://b.test/"), done=[home.lease])
    assert bodies(other.claim()) == ["http://a.test/1", "http://b.test/#0"]


def test_equal_entries_that_wait_for_a_new_try_stay_two(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(unfiltered("http://a.test/", 0), unfiltered("http://a.test/", 1))
    worker.settle(retries=[retry(claimed, 1000) for claimed in worker.claim()])
    fleet.advance(2)
    assert sorted(bodies(worker.claim())) == ["http://a.test/#0", "http://a.test/#1"]


def test_what_is_given_back_keeps_its_order_and_band(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(*(page(f"http://a.test/{n}", band=n // 3) for n in range(9)))
    claimed = worker.claim()
    worker.settle(back=leases(claimed))
    assert bodies(worker.claim()) == bodies(claimed)


def test_the_last_activity_of_the_fleet_is_a_page_that_ended(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(page("http://a.test/"))
    fleet.advance(100)
    [claimed] = worker.claim()
    assert worker.left.idle_seconds >= 100
    worker.settle(done=[claimed.lease])
    worker.claim()
    assert worker.left.idle_seconds < 1


@both
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_each_entry_is_in_one_place(fleet: FleetOnServer, seed: int) -> None:
    draw = random.Random(seed)
    workers = [fleet.worker(f"w{n}") for n in range(3)]
    held: dict[str, list[str]] = {worker.name: [] for worker in workers}
    accepted = 0
    for _ in range(120):
        worker = draw.choice(workers)
        mine = held[worker.name]
        act = draw.choice(["put", "claim", "claim", "settle", "settle", "time", "kill", "leave"])
        if act == "put":
            batch = [page(f"http://{draw.choice('abc')}.test/{draw.randrange(400)}", draw.choice([0, 0, 2]))]
            accepted += worker.put(*batch * draw.choice([1, 2])).count("1")
        elif act == "claim":
            mine += leases(worker.claim(draw.randrange(8)))
        elif act == "settle" and mine:
            ending, held[worker.name] = mine[:4], mine[4:]
            accepted += _settle_at_random(fleet, worker, ending, draw)
        elif act == "time":
            fleet.pass_time(draw.choice([3, 30]), alive=[(one, held[one.name]) for one in workers])
        elif act in {"kill", "leave"}:
            if act == "leave":
                worker.leave()
            else:
                fleet.pass_time(LAPSE_SECONDS, [(one, held[one.name]) for one in workers if one is not worker])
            held[worker.name] = []
            workers[workers.index(worker)] = fleet.worker(worker.name)
        _check_places(fleet, accepted)
    assert accepted > 20


def _settle_at_random(fleet: FleetOnServer, worker: Member, ending: list[str], draw: random.Random) -> int:
    plan = Plan()
    for lease in ending:
        packed = fleet.redis.hget(fleet.key("inflight"), lease)
        _, host, band, element = msgpack.unpackb(packed, raw=True)
        how = draw.randrange(4)
        if how == 0:
            plan.done.append(lease)
        elif how == 1:
            plan.dead.append((lease, {"kind": "page", "reason": "drawn"}))
        elif how == 2:
            plan.back.append(lease)
        else:
            due = draw.choice([0, 5000])
            plan.retries.append(Retry(lease, host.decode(), int(band), due, element[2:]))
    links = [page(f"http://{draw.choice('abc')}.test/{draw.randrange(400)}") for _ in range(draw.randrange(4))]
    settled = worker.settle_plan(links, plan)
    assert settled.stale == []
    return settled.new.count("1")


def _check_places(fleet: FleetOnServer, accepted: int) -> None:
    queued = fleet.queued()
    assert fleet.counters().get("waiting", 0) == len(queued)
    apart = [*fleet.redis.zrange(fleet.key("delayed"), 0, -1), *fleet.redis.lrange(fleet.key("suspects"), 0, -1)]
    elements = [
        *(msgpack.unpackb(one, raw=True)[2] for one in apart),
        *(msgpack.unpackb(one, raw=True)[3] for one in fleet.redis.hvals(fleet.key("inflight"))),
    ]
    places = Counter([*queued, *(element[2:].decode() for element in elements)])
    assert max(places.values(), default=0) <= 1, "an entry is in two places"
    ended = fleet.counters().get("done", 0) + fleet.counters().get("dead", 0)
    assert len(places) + ended == accepted
    assert fleet.redis.hlen(fleet.key("inflight")) == fleet.redis.zcard(fleet.key("lease"))
