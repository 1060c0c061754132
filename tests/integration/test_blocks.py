"""Hosts that asked for patience: one event is heard once, and nobody is given their URLs before it is over."""

import msgpack
import pytest

from crawler.redisdb.scripts import run_now
from crawler.throttle.limiter import ThrottleScripts
from crawler.throttle.rules import Rule, RuleSet
from crawler.throttle.turns import Ages
from tests.support.frontier import FleetOnServer, bodies, leases, page

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")

WAITS = (1.0, 60.0, 86_400.0)


@pytest.fixture
def fleet(fleet: FleetOnServer) -> FleetOnServer:
    """Its clock is ahead of the server's, and so stands still between two advances."""
    fleet.advance(3600)
    return fleet


def hear(
    fleet: FleetOnServer, asked: float | None = None, age: float = 0.1, well: float | None = None
) -> tuple[float, bool]:
    """A 429 of a.test to a request sent so long ago: seconds until the host may be asked, and if it was a new event."""
    scripts = ThrottleScripts(fleet.partition.script_keys("w1"))
    left_ms, new = msgpack.unpackb(run_now(fleet.redis, scripts.hear("a.test", asked, Ages(age, well), WAITS)))
    return left_ms / 1000, bool(new)


@both
def test_eight_answers_to_what_was_sent_at_once_are_one_event(fleet: FleetOnServer) -> None:
    heard = [hear(fleet) for _ in range(8)]
    assert [new for _, new in heard] == [True] + [False] * 7
    assert {left for left, _ in heard} == {heard[0][0]}
    assert 1.0 <= heard[0][0] <= 1.1


@both
def test_answers_to_who_had_not_heard_of_an_event_belong_to_it(fleet: FleetOnServer) -> None:
    """What another worker sent a moment after the first answer, and long before the block was over."""
    left, _ = hear(fleet)
    fleet.advance(0.5)
    again, new = hear(fleet)
    assert again == pytest.approx(left - 0.5, abs=0.002)
    assert not new
    fleet.advance(left)
    assert hear(fleet)[1], "it was sent when the block was over"


def test_waits_double_with_each_event_and_are_forgotten(fleet: FleetOnServer) -> None:
    waits = []
    for _ in range(9):
        left, new = hear(fleet)
        assert new
        waits.append(left)
        fleet.advance(left + 0.2)
    for number, wait in enumerate(waits):
        assert min(2**number, 60) <= wait <= min(2**number, 60) * 1.1 + 0.001
    assert 0 < fleet.redis.pttl(fleet.key("heard:a.test")) <= 3 * 66_000
    fleet.redis.delete(fleet.key("heard:a.test"))  # what its expiry does
    assert hear(fleet)[0] <= 1.1


def test_an_event_after_a_good_answer_is_the_first_of_its_row(fleet: FleetOnServer) -> None:
    """As where some pages of a host always answer with 503."""
    for _ in range(5):
        left, new = hear(fleet, well=0.15)
        assert new
        assert left <= 1.1
        fleet.advance(left + 0.2)
    assert hear(fleet, well=30)[0] >= 2


def test_a_wait_that_the_host_names_is_kept_to_whatever_came_before(fleet: FleetOnServer) -> None:
    assert hear(fleet, 7.0)[0] == 7.0
    assert hear(fleet, 2.0) == (7.0, False)
    assert hear(fleet) == (7.0, False)
    assert hear(fleet, 9.0) == (9.0, False)
    assert hear(fleet, 1e12)[0] == 86_400.0


@both
@pytest.mark.parametrize("rules", [RuleSet(), RuleSet(default=Rule(100.0, 50))])
def test_a_blocked_host_gives_no_entry_until_its_time(fleet: FleetOnServer, rules: RuleSet) -> None:
    worker = fleet.worker()
    fleet.set_rules(rules)
    worker.put(*(page(f"http://{host}.test/{number}") for host in "ab" for number in range(2)))
    hear(fleet, 5.0)
    assert {one.host for one in worker.claim(ahead_us=300_000)} == {"b.test"}
    # Turns, where it has a rule, are given ahead.
    assert worker.left.turn_seconds == pytest.approx(4.7 if rules.default.rate else 5.0, abs=0.01)
    [turn] = fleet.take("a.test")
    assert (turn.wait_seconds, turn.slack_seconds) == (1.0, -0.001), "to be asked for again"
    fleet.advance(4.6)
    assert worker.claim(ahead_us=300_000) == []
    fleet.advance(0.5)
    assert len(worker.claim(ahead_us=300_000)) in {1, 2}


@both
def test_a_suspect_of_a_blocked_host_waits(fleet: FleetOnServer) -> None:
    dying, worker = fleet.worker("dying"), fleet.worker()
    dying.put(page("http://a.test/"))
    assert len(dying.claim()) == 1
    fleet.pass_time(15, alive=[(worker, [])])
    hear(fleet, 5.0)
    assert worker.claim() == []
    assert worker.left.turn_seconds == pytest.approx(5.0, abs=0.01)
    fleet.advance(5.0)
    assert bodies(worker.claim()) == ["http://a.test/"]


def test_blocks_that_are_over_go(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(page("http://b.test/"))
    hear(fleet, 1.0)
    fleet.advance(2)
    assert hear(fleet, 1.0, age=0.5)[1]
    assert fleet.redis.zcard(fleet.key("blocks")) == 1
    worker.settle(done=leases(worker.claim()))
