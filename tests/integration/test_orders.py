"""Orders of an operator for hosts: they hold for the next claim, for hosts below a domain, and across restarts."""

import pytest

from crawler.control.hosts import HostDesk
from crawler.errors import ConfigError
from crawler.throttle.rules import Rule, RuleSet
from tests.support.frontier import FleetOnServer, Member, page

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")

HOST = "www.a.test"


@pytest.fixture
def fleet(fleet: FleetOnServer) -> FleetOnServer:
    """Its clock is ahead of the server's, and so stands still between two advances."""
    fleet.advance(3600)
    return fleet


@pytest.fixture
def desk(fleet: FleetOnServer) -> HostDesk:
    return HostDesk(fleet.redis, fleet.partition.crawl)


@pytest.fixture
def worker(fleet: FleetOnServer) -> Member:
    worker = fleet.worker()
    worker.put(*(page(f"http://{HOST}/{number}") for number in range(9)), page("http://b.test/"))
    return worker


@both
@pytest.mark.parametrize("name", [HOST, "a.test"])
def test_a_paused_host_waits_until_it_is_resumed(
    fleet: FleetOnServer, desk: HostDesk, worker: Member, name: str
) -> None:
    desk.pause(name)
    assert [claimed.host for claimed in worker.claim()] == ["b.test"]
    [turn] = fleet.take(HOST)
    assert (turn.wait_seconds, turn.slack_seconds) == (1.0, -0.001)
    fleet.advance(1)
    assert worker.claim() == []
    assert worker.left.turn_seconds is not None
    assert desk.resume(name)
    fleet.advance(1)
    assert len(worker.claim()) == 9


def test_a_slowed_host_keeps_the_rate_whatever_its_rule_says(
    fleet: FleetOnServer, desk: HostDesk, worker: Member
) -> None:
    fleet.set_rules(RuleSet(default=Rule(100.0, 9)))
    desk.slow(HOST, 0.5)
    assert [claimed.host for claimed in worker.claim()].count(HOST) == 1
    fleet.advance(2)
    assert worker.claim() == []
    fleet.advance(0.1)
    assert len(worker.claim()) == 1
    fleet.set_rules(RuleSet(default=Rule(50.0, 9)))
    fleet.advance(0.1)
    assert worker.claim() == [], "new rules leave it as it is"
    desk.resume(HOST)
    assert len(worker.claim()) == 7


@both
def test_urls_of_a_blocked_host_come_out_to_be_refused(fleet: FleetOnServer, desk: HostDesk, worker: Member) -> None:
    fleet.set_rules(RuleSet(default=Rule(0.001)))
    desk.block("a.test")
    claimed = [one for one in worker.claim(20) if one.host == HOST]
    assert len(claimed) == 9
    assert all(one.turn is not None and one.turn.refused for one in claimed)


def test_resuming_lifts_blocks_and_slowdowns(fleet: FleetOnServer, desk: HostDesk, worker: Member) -> None:
    fleet.redis.zadd(fleet.key("blocks"), {HOST: fleet.now_ms() + 3_600_000})
    fleet.redis.hset(
        fleet.key("pace:" + HOST), mapping={"floor": 60_000_000, "floor_until": fleet.now_ms() + 3_600_000}
    )
    fleet.redis.zadd(fleet.key("slowed"), {HOST: fleet.now_ms() + 3_600_000})
    assert [claimed.host for claimed in worker.claim()] == ["b.test"]
    assert not desk.resume(HOST)
    assert len(worker.claim()) == 9


def test_what_is_shown_of_hosts(fleet: FleetOnServer, desk: HostDesk, worker: Member) -> None:
    fleet.set_rules(RuleSet(names={HOST: Rule(2.0, 4, concurrency=3)}))
    desk.pause("c.test")
    desk.slow("b.test", 0.25)
    assert len(worker.claim()) == 4
    found = {status.host: status for status in desk.overview(10)}
    assert set(found) == {HOST, "b.test", "c.test"}
    assert (found["c.test"].order, found["c.test"].waiting, found["c.test"].wait_seconds) == ("pause", 0, None)
    assert (found["b.test"].order, found["b.test"].strategy) == ("slow", "token_bucket")
    assert found["b.test"].span_seconds == pytest.approx(4.18)
    mine = found[HOST]
    assert (mine.waiting, mine.in_flight, mine.cap, mine.burst) == (6, 3, 3, 3)


@pytest.mark.parametrize("name", ["", "http://a.test/", "*.test", "a test"])
def test_what_is_no_host_is_refused(desk: HostDesk, name: str) -> None:
    with pytest.raises(ConfigError, match="write a host or a domain"):
        desk.pause(name)


def test_orders_that_are_lifted_leave_nothing(fleet: FleetOnServer, desk: HostDesk) -> None:
    before = fleet.names()
    desk.pause("a.test")
    desk.slow("a.test", 2)
    assert desk.resume("a.test")
    assert fleet.names() == before
