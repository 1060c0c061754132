"""Hosts with a cap: permits for the requests that the whole fleet may have under way, and who has them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawler.throttle.rules import Rule, RuleSet
from tests.support.frontier import FleetOnServer, Member, page

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")

HOST = "a.test"
FOUR = RuleSet(default=Rule(concurrency=4))


@pytest.fixture
def fleet(fleet: FleetOnServer) -> FleetOnServer:
    """Its clock is ahead of the server's, and so stands still between two advances."""
    fleet.advance(3600)
    fleet.set_rules(FOUR)
    return fleet


def put(worker: Member, count: int, host: str = HOST) -> None:
    worker.put(*(page(f"http://{host}/{number}") for number in range(count)))


def in_flight(fleet: FleetOnServer) -> dict[str, int]:
    """What Redis thinks that the fleet has under way."""
    return {host.decode(): int(count) for host, count in fleet.redis.hgetall(fleet.key("flight")).items()}


@both
def test_workers_share_the_permits_of_a_host(fleet: FleetOnServer) -> None:
    one, two = fleet.worker("one"), fleet.worker("two")
    put(one, 40)
    assert len(one.claim(3)) == 3
    assert one.permits == {HOST: 3}
    assert len(two.claim(9)) == 2, "one to send, and one to go on with"
    assert two.permits == {HOST: 1}
    assert in_flight(fleet) == {HOST: 4}
    assert fleet.worker("three").claim() == []


@both
def test_given_up_permits_are_another_s_at_once(fleet: FleetOnServer) -> None:
    one, two = fleet.worker("one"), fleet.worker("two")
    put(one, 40)
    assert len(one.claim(4)) == 4
    assert two.claim() == []
    assert one.claim(0, report=[(HOST, 1, 1)]) == []
    assert one.permits == {HOST: 1}
    assert len(two.claim()) == 6
    assert two.permits == {HOST: 3}


def test_who_has_permits_claims_on_while_the_host_is_parked_for_others(fleet: FleetOnServer) -> None:
    one, two = fleet.worker("one"), fleet.worker("two")
    put(one, 40)
    assert len(one.claim(4)) == 4
    assert two.claim() == []
    assert len(one.claim(9, report=[(HOST, 4, 2)])) == 6
    assert one.permits == {HOST: 4}


def test_hosts_at_their_cap_hide_no_others(fleet: FleetOnServer) -> None:
    one, two = fleet.worker("one"), fleet.worker("two")
    for number in range(30):
        put(one, 4, f"h{number}.test")
    while one.claim(64):
        pass
    for number in range(30):
        put(one, 4, f"h{number}.test")
    one.put(page("http://free.test/"))
    found: list[str] = []
    for _ in range(9):
        found += (claimed.host for claimed in two.claim(4))
        assert found or two.left.turn_seconds == 0
    assert found == ["free.test"]


@both
def test_permits_of_who_leaves_or_dies_come_back(fleet: FleetOnServer) -> None:
    leaving, dying, last = fleet.worker("leaving"), fleet.worker("dying"), fleet.worker("last")
    put(leaving, 40)
    assert len(leaving.claim(2)) == 2
    assert len(dying.claim(2)) == 2
    leaving.leave()
    assert in_flight(fleet) == {HOST: 2}
    fleet.pass_time(15, alive=[(last, [])])
    assert in_flight(fleet) == {}
    assert not any(name.startswith("busy:") for name in fleet.names())


def test_who_joins_again_reports_anew(fleet: FleetOnServer) -> None:
    one = fleet.worker("one")
    put(one, 40)
    assert len(one.claim(4)) == 4
    one.open()
    assert in_flight(fleet) == {}
    assert one.claim(0, report=[(HOST, 4, 4)]) == []
    assert in_flight(fleet) == {HOST: 4}


def test_a_request_outside_the_frontier_asks_for_a_permit(fleet: FleetOnServer) -> None:
    one, two = fleet.worker("one"), fleet.worker("two")
    put(one, 40)
    assert len(one.claim(4)) == 4
    two.claim(0, report=[(HOST, 0, 1)])
    assert two.permits == {HOST: 0}
    one.claim(0, report=[(HOST, 3, 3)])
    two.claim(0, report=[(HOST, 0, 1)])
    assert two.permits == {HOST: 1}


def test_a_host_whose_cap_was_lifted_is_told_so(fleet: FleetOnServer) -> None:
    one = fleet.worker("one")
    put(one, 40)
    assert len(one.claim(4)) == 4
    fleet.set_rules(RuleSet())
    one.claim(0, report=[(HOST, 4, 4)])
    assert one.permits == {HOST: -1}
    assert in_flight(fleet) == {}


def test_a_cap_and_a_rate_hold_together(fleet: FleetOnServer) -> None:
    fleet.set_rules(RuleSet(default=Rule(1.0, 9, concurrency=4)))
    one = fleet.worker("one")
    put(one, 40)
    assert len(one.claim(20)) == 8, "the burst but one"
    assert one.permits == {HOST: 4}


@both
def test_a_suspect_needs_a_permit(fleet: FleetOnServer) -> None:
    dying, one, two = fleet.worker("dying"), fleet.worker("one"), fleet.worker("two")
    put(dying, 1)
    assert len(dying.claim()) == 1
    put(one, 4)
    assert len(one.claim(3)) == 3
    fleet.pass_time(15, alive=[(one, []), (two, [])])
    one.claim(0, report=[(HOST, 3, 3)])
    assert len(one.claim(1, report=[(HOST, 3, 3)])) == 1
    assert one.permits[HOST] == 4
    assert two.claim() == []


STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.floats(0, 1), st.integers(0, 3)), max_size=40)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_sum_of_what_workers_have_is_never_above_the_cap(
    fleet: FleetOnServer, steps: list[tuple[int, int, float, int]]
) -> None:
    """Workers claim, end some of what they have at hand, and ask for permits beside; each tells the truth."""
    fleet.tampered = True
    fleet.redis.delete(*(fleet.key(name) for name in ("flight", "hosts")))
    workers = [fleet.worker(f"w{number}") for number in range(3)]
    put(workers[0], 300, "b.test")
    hands, permits = [0, 0, 0], [0, 0, 0]
    for number, want, share, aside in steps:
        hands[number] = int(hands[number] * share)
        permits[number] = min(permits[number], hands[number] + aside)
        report = [("b.test", permits[number], hands[number] + aside)]
        worker = workers[number]
        hands[number] += len(worker.claim(want, report=report))
        permits[number] = worker.permits.get("b.test", 0)
        assert sum(permits) <= 4
        assert in_flight(fleet).get("b.test", 0) == sum(permits)
        assert hands[number] == 0 or permits[number] > 0 or share > 0
        fleet.advance(0.3)
    for worker in workers:
        worker.leave()
    assert in_flight(fleet) == {}
