"""How leases live on, and how they come back from workers that died, without blaming the innocent."""

import pytest

from crawler.errors import StaleSession
from tests.support.frontier import (
    DEATHS_MAX,
    LAPSE_SECONDS,
    LEASE_SECONDS,
    TICK_SECONDS,
    FleetOnServer,
    Member,
    bodies,
    leases,
    page,
    retry,
)

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")


def _put(worker: Member, count: int) -> list[str]:
    urls = [f"http://a.test/{n}" for n in range(count)]
    worker.put(*map(page, urls))
    return urls


def _kill(fleet: FleetOnServer, *alive: tuple[Member, list[str]]) -> tuple[int, int]:
    """Time passes until everyone who is not named counts as dead."""
    return fleet.pass_time(LAPSE_SECONDS, alive)


@both
def test_a_worker_that_beats_keeps_its_leases_for_as_long_as_it_likes(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    _put(worker, 3)
    held = leases(worker.claim())
    assert fleet.pass_time(10 * LEASE_SECONDS, alive=[(worker, held)]) == (0, 0)
    assert worker.settle(done=held).stale == []


@both
def test_a_heartbeat_hears_which_leases_are_lost(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    _put(worker, 2)
    kept, lost = leases(worker.claim())
    fleet.pass_time(LEASE_SECONDS, alive=[(worker, [kept])])
    assert worker.beat([kept, lost, "17"]) == [lost, "17"]


def test_the_heartbeat_of_a_worker_that_was_reaped_is_stale(fleet: FleetOnServer) -> None:
    worker, other = fleet.worker("w1"), fleet.worker("other")
    _kill(fleet, (other, []))
    with pytest.raises(StaleSession):
        worker.beat()
    assert fleet.redis.zrange(fleet.key("workers"), 0, -1) == [b"other"]


@both
def test_the_leases_of_a_silent_worker_come_back_before_they_run_out(fleet: FleetOnServer) -> None:
    dead, other = fleet.worker("dead"), fleet.worker("other")
    urls = _put(dead, 5)
    dead.claim()
    passed = 0.0
    while fleet.pass_time(0, alive=[(other, [])])[0] == 0:
        passed += TICK_SECONDS
    assert LAPSE_SECONDS <= passed + TICK_SECONDS <= LAPSE_SECONDS + TICK_SECONDS
    assert passed < 15
    tried = []
    while claimed := other.claim():
        tried += bodies(claimed)
        other.settle(done=leases(claimed))
    assert sorted(tried) == urls


@both
def test_suspects_are_tried_one_at_a_time_by_each_worker_beside_its_other_work(fleet: FleetOnServer) -> None:
    dead, one, other = fleet.worker("dead"), fleet.worker("one"), fleet.worker("other")
    _put(dead, 4)
    dead.claim()
    _kill(fleet, (one, []), (other, []))
    one.put(*(page(f"http://b.test/{n}") for n in range(8)))
    mixed = one.claim(3)
    assert [claimed.host for claimed in mixed] == ["a.test", "b.test", "b.test"]
    assert [claimed.host for claimed in one.claim(3)] == ["b.test"] * 3
    assert [claimed.host for claimed in other.claim(9)] == ["a.test", "b.test", "b.test", "b.test"]
    one.settle(done=[mixed[0].lease])
    assert [claimed.host for claimed in one.claim(3)] == ["a.test"]


@both
def test_only_the_one_suspect_of_a_worker_that_died_is_to_blame(fleet: FleetOnServer) -> None:
    witness = fleet.worker("witness")
    killer, *innocents = _put(witness, 8)
    [found] = witness.claim(1)
    assert found.body == killer.encode()
    witness.settle(back=[found.lease])

    fleet.worker("dies 1").claim(1)
    assert _kill(fleet, (witness, [])) == (1, 0)
    for death in range(2, DEATHS_MAX + 2):
        victim = fleet.worker(f"dies {death}")
        held = victim.claim(4)
        assert (held[0].body, held[0].deaths) == (killer.encode(), death - 1)
        assert len(held) == 4
        # The other three that it held are not suspected: they come back as they were.
        assert _kill(fleet, (witness, [])) == (4, int(death == DEATHS_MAX + 1))
        assert fleet.redis.llen(fleet.key("suspects")) == int(death <= DEATHS_MAX)
    claimed = witness.claim(20)
    assert sorted(bodies(claimed)) == innocents
    assert {one.deaths for one in claimed} == {0}
    [letter] = fleet.letters()
    assert letter["element"][2:] == killer.encode()
    assert (letter["kind"], letter["class"], letter["worker"]) == (b"page", b"worker_death", b"dies 4")


@both
def test_a_lease_that_runs_out_on_a_living_worker_blames_nobody(fleet: FleetOnServer) -> None:
    slow = fleet.worker("slow")
    _put(slow, 1)
    for time in range(2 * DEATHS_MAX):
        [claimed] = slow.claim()
        assert (claimed.deliveries, claimed.deaths) == (time, min(time, 1))
        assert fleet.pass_time(LEASE_SECONDS, alive=[(slow, [])]) == (1, 0)


def test_a_suspect_whose_lease_runs_out_is_blamed_no_more_for_it(fleet: FleetOnServer) -> None:
    slow = fleet.worker("slow")
    _put(slow, 1)
    for death in range(1, DEATHS_MAX):
        assert len(fleet.worker(f"dies {death}").claim()) == 1
        _kill(fleet, (slow, []))
    for _ in range(2):
        [claimed] = slow.claim()
        assert claimed.deaths == DEATHS_MAX - 1
        assert fleet.pass_time(LEASE_SECONDS, alive=[(slow, [])]) == (1, 0)


def test_without_a_suspect_all_that_a_dead_worker_held_are_suspects(fleet: FleetOnServer) -> None:
    dead, victim, other = fleet.worker("dead"), fleet.worker("victim"), fleet.worker("other")
    _put(dead, 1)
    dead.claim()
    _kill(fleet, (victim, []), (other, []))
    other.put(*(page(f"http://b.test/{n}") for n in range(3)))
    suspect, *rest = victim.claim()
    victim.settle(done=[suspect.lease])
    assert _kill(fleet, (other, [])) == (3, 0)
    assert fleet.redis.llen(fleet.key("suspects")) == len(rest)


def test_a_suspect_that_lived_through_a_try_is_suspected_no_more(fleet: FleetOnServer) -> None:
    dead, other = fleet.worker("dead"), fleet.worker("other")
    _put(dead, 1)
    dead.claim()
    _kill(fleet, (other, []))
    [suspect] = other.claim()
    assert suspect.deaths == 1
    other.settle(retries=[retry(suspect)])
    [again] = other.claim()
    assert (again.deaths, again.deliveries) == (0, 2)


@both
def test_a_suspect_that_is_given_back_stays_one(fleet: FleetOnServer) -> None:
    dead, leaving, other = fleet.worker("dead"), fleet.worker("leaving"), fleet.worker("other")
    _put(dead, 2)
    dead.claim()
    _kill(fleet, (leaving, []), (other, []))
    [first] = leaving.claim()
    leaving.settle(back=[first.lease])
    [second] = leaving.claim()
    assert second.body == first.body, "it is first again"
    leaving.leave()
    assert fleet.redis.llen(fleet.key("suspects")) == 2
    assert len(other.claim()) == 1, "one at a time"


@both
def test_after_a_gap_between_ticks_nobody_is_reaped_for_one_lapse(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    _put(worker, 2)
    held = leases(worker.claim(lease_seconds=5))
    fleet.reap()
    # Redis was away: no worker could beat, and all look dead now.
    fleet.advance(300)
    assert fleet.reap() == (0, 0)
    fleet.advance(LAPSE_SECONDS - TICK_SECONDS)
    worker.beat(held)
    assert fleet.pass_time(LAPSE_SECONDS, alive=[(worker, held)]) == (0, 0)
    assert worker.settle(done=held).stale == []


def test_who_is_silent_through_the_grace_too_is_reaped(fleet: FleetOnServer) -> None:
    dead, other = fleet.worker("dead"), fleet.worker("other")
    _put(dead, 2)
    dead.claim()
    fleet.reap()
    fleet.advance(300)
    assert fleet.reap() == (0, 0)
    assert _kill(fleet, (other, []))[0] == 2


def test_many_reapers_tick_as_one(fleet: FleetOnServer) -> None:
    dead = fleet.worker("dead")
    _put(dead, 2)
    dead.claim()
    fleet.reap()
    fleet.redis.zadd(fleet.key("workers"), {"dead": 1})
    assert fleet.reap() == (0, 0), "another has just ticked"
    fleet.advance(TICK_SECONDS)
    assert fleet.reap() == (2, 0)


def test_more_than_one_call_may_reap_comes_back_over_several(fleet: FleetOnServer) -> None:
    dead, other = fleet.worker("dead"), fleet.worker("other")
    for part in range(5):
        dead.put(*(page(f"http://a.test/{part}/{n}") for n in range(100)))
        dead.claim(100)
    assert fleet.pass_time(LAPSE_SECONDS + 2 * TICK_SECONDS, alive=[(other, [])]) == (500, 0)
    assert fleet.redis.llen(fleet.key("suspects")) == 500
    assert fleet.redis.exists(fleet.partition.held("dead"), fleet.partition.session("dead")) == 0


@both
def test_leaving_gives_all_back_in_order_and_counts_nothing(fleet: FleetOnServer) -> None:
    leaving, other = fleet.worker("leaving"), fleet.worker("other")
    urls = _put(leaving, 7)
    leaving.claim(3)
    leaving.claim(2)
    assert leaving.leave() == 5
    assert fleet.redis.zrange(fleet.key("workers"), 0, -1) == [b"other"]
    claimed = other.claim()
    assert bodies(claimed) == urls
    assert {one.deaths for one in claimed} == {0}
    assert not fleet.redis.exists(fleet.partition.held("leaving"), fleet.partition.session("leaving"))
    with pytest.raises(StaleSession):
        leaving.put(page("http://a.test/late"))


def test_a_large_worker_leaves_in_order_too(fleet: FleetOnServer) -> None:
    leaving, other = fleet.worker("leaving"), fleet.worker("other")
    urls = []
    for part in range(6):
        part_urls = [f"http://a.test/{part}/{n}" for n in range(110)]
        leaving.put(*map(page, part_urls))
        leaving.claim(110, room=1000)
        urls += part_urls
    assert leaving.leave() == 660
    assert bodies(other.claim(1000, room=1000)) == urls


def test_idle_workers_hear_of_what_came_back(fleet: FleetOnServer) -> None:
    dead, leaving, idle = fleet.worker("dead"), fleet.worker("leaving"), fleet.worker("idle")
    _put(dead, 2)
    dead.claim(1)
    leaving.claim(1)
    for act, count in ((lambda: _kill(fleet, (leaving, []), (idle, [])), b"1"), (leaving.leave, b"2")):
        while claimed := idle.claim():
            idle.settle(done=leases(claimed))
        act()
        assert fleet.redis.get(fleet.key("wake")) == count
