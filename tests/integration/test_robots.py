"""What the fleet knows of robots.txt: one worker fetches, what it finds counts for all, and failing blocks the host."""

import msgpack
import pytest

from crawler.redisdb.scripts import run_now
from crawler.throttle.robots import FAILED, FETCH, FREE, RULES, WAIT, Fetched, RobotsScripts, Terms
from tests.support.frontier import FleetOnServer, bodies, page

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")

SITE = "http://a.test"
TERMS = Terms(lifetime_seconds=1000, hold_seconds=10, unreachable_max_seconds=100)


@pytest.fixture
def fleet(fleet: FleetOnServer) -> FleetOnServer:
    """Its clock is ahead of the server's, and so stands still between two advances."""
    fleet.advance(3600)
    return fleet


def look(fleet: FleetOnServer, worker: str = "w1", site: str = SITE) -> tuple[str, float, float]:
    """State, how long that holds, and its age; seconds."""
    scripts = RobotsScripts(fleet.partition.script_keys(worker), worker, TERMS)
    state, _, left, age = msgpack.unpackb(run_now(fleet.redis, scripts.robots([site])), raw=True)
    return state.decode(), left / 1000, age / 1000


def tell(fleet: FleetOnServer, state: str, worker: str = "w1") -> float:
    """How a worker's fetch went; for how many seconds that blocks the host."""
    scripts = RobotsScripts(fleet.partition.script_keys(worker), worker, TERMS)
    note = Fetched(SITE, "a.test", state, b"status 500" if state == FAILED else b"User-agent: *")
    [wait_ms] = msgpack.unpackb(run_now(fleet.redis, scripts.fetched([note])))
    return float(wait_ms / 1000)


@both
def test_one_worker_fetches_and_all_know(fleet: FleetOnServer) -> None:
    assert look(fleet, "w1")[0] == FETCH
    assert look(fleet, "w2") == (WAIT, 10, 0)
    assert tell(fleet, RULES, "w1") == 0
    fleet.advance(5)
    assert look(fleet, "w2") == (RULES, 995, 5)
    assert look(fleet, "w2", "https://a.test")[0] == FETCH


def test_who_does_not_come_back_loses_the_fetch(fleet: FleetOnServer) -> None:
    look(fleet, "w1")
    fleet.advance(6)
    assert look(fleet, "w1")[0] == FETCH
    fleet.advance(6)
    assert look(fleet, "w2") == (WAIT, 4, 0)
    fleet.advance(4)
    assert look(fleet, "w2")[0] == FETCH
    assert tell(fleet, FREE, "w1") < 0
    assert look(fleet, "w1")[0] == WAIT
    assert tell(fleet, RULES, "w2") == 0
    assert look(fleet, "w1")[0] == RULES


def test_what_is_found_counts_for_its_lifetime(fleet: FleetOnServer) -> None:
    look(fleet)
    tell(fleet, FREE)
    fleet.advance(999)
    assert look(fleet)[:2] == (FREE, 1)
    fleet.advance(1)
    assert look(fleet)[0] == FETCH
    assert 0 < fleet.redis.pttl(fleet.key(f"robots:{SITE}")) <= 2_000_000


@both
def test_failing_blocks_the_host_for_longer_each_time_until_pages_are_given_up(fleet: FleetOnServer) -> None:
    worker = fleet.worker("w1")
    worker.put(page("http://a.test/1"))
    waits = []
    while (wait := fail(fleet)) > 0:
        waits.append(wait)
        assert look(fleet, "w2")[:2] == (FAILED, wait)
        assert bodies(worker.claim()) == []
        fleet.advance(wait)
    assert waits == [1, 2, 4, 8, 16, 32, 37]
    assert look(fleet) == (FAILED, 128, 100)
    assert bodies(worker.claim()) == ["http://a.test/1"]


def fail(fleet: FleetOnServer) -> float:
    assert look(fleet)[0] == FETCH
    return tell(fleet, FAILED)


def test_success_ends_a_row_of_failures(fleet: FleetOnServer) -> None:
    for expected in (1, 2):
        assert fail(fleet) == expected
        fleet.advance(expected)
    look(fleet)
    tell(fleet, RULES)
    fleet.redis.delete(fleet.key(f"robots:{SITE}"))  # what its expiry does
    assert fail(fleet) == 1


def test_an_older_one_counts_meanwhile_and_blocks_nobody(fleet: FleetOnServer) -> None:
    look(fleet)
    tell(fleet, RULES)
    fleet.advance(1000)
    assert fail(fleet) == 0
    assert look(fleet, "w2") == (RULES, 1, 1000)
    fleet.advance(1)
    assert fail(fleet) == 0
    assert look(fleet, "w2") == (RULES, 2, 1001)
    fleet.advance(2)
    look(fleet)
    tell(fleet, FREE)
    assert look(fleet, "w2") == (FREE, 1000, 0)


def test_answers_of_sites_come_in_the_order_of_asking(fleet: FleetOnServer) -> None:
    look(fleet)
    tell(fleet, RULES)
    scripts = RobotsScripts(fleet.partition.script_keys("w2"), "w2", TERMS)
    reply = msgpack.unpackb(run_now(fleet.redis, scripts.robots(["http://b.test", SITE, "http://c.test"])), raw=True)
    assert reply[::4] == [b"fetch", b"rules", b"fetch"]
