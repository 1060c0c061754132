"""Claims of hosts that have a limit: no entry comes out before its turn, and a host that waits holds up no other."""

import pytest

from crawler.throttle.rules import Rule, RuleSet
from tests.support.frontier import FleetOnServer, Member, bodies, leases, page

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")

AHEAD_US = 300_000
SLOW = RuleSet(names={"slow.test": Rule(2.0, 2)})


@pytest.fixture
def fleet(fleet: FleetOnServer) -> FleetOnServer:
    """Its clock is ahead of the server's, and so stands still between two advances."""
    fleet.advance(3600)
    return fleet


def put(worker: Member, host: str, count: int) -> None:
    worker.put(*(page(f"http://{host}/{number}") for number in range(count)))


@both
def test_a_claim_takes_no_more_than_has_its_turn(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    fleet.set_rules(SLOW)
    put(worker, "slow.test", 4)
    put(worker, "free.test", 3)
    first = worker.claim()
    assert bodies(first) == [*(f"http://free.test/{number}" for number in range(3)), "http://slow.test/0"]
    assert [claimed.turn is None for claimed in first] == [True, True, True, False]
    assert worker.claim() == []
    assert worker.left.turn_seconds == pytest.approx(0.505, abs=0.002)
    fleet.advance(0.505)
    assert bodies(worker.claim()) == ["http://slow.test/1"]


def test_turns_are_taken_ahead_and_no_further(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    fleet.set_rules(RuleSet(default=Rule(10.0, 2)))
    put(worker, "a.test", 9)
    turns = [claimed.turn for claimed in worker.claim(ahead_us=AHEAD_US)]
    assert [turn.wait_seconds for turn in turns if turn] == [0.0, 0.101, 0.202]
    assert worker.left.turn_seconds == pytest.approx(0.003, abs=0.002)
    fleet.advance(0.003)
    [other] = fleet.worker("w2").claim(ahead_us=AHEAD_US)
    assert other.turn is not None
    assert other.turn.wait_seconds == pytest.approx(0.3, abs=0.002)


def test_a_burst_comes_at_once_but_for_one(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    fleet.set_rules(RuleSet(default=Rule(1.0, 5)))
    put(worker, "a.test", 9)
    assert len(worker.claim()) == 4


def test_turns_that_found_no_entry_are_not_used_up(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    fleet.set_rules(RuleSet(default=Rule(1.0, 5)))
    put(worker, "a.test", 2)
    assert len(worker.claim()) == 2
    put(worker, "a.test", 9)
    assert len(worker.claim()) == 2


def test_a_host_that_was_drained_keeps_its_pace(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    fleet.set_rules(SLOW)
    put(worker, "slow.test", 1)
    worker.settle(done=leases(worker.claim()))
    worker.put(page("http://slow.test/again"))
    assert worker.claim() == []
    fleet.advance(0.505)
    assert bodies(worker.claim()) == ["http://slow.test/again"]


def test_waiting_hosts_hide_no_others(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    fleet.set_rules(RuleSet(globs=(("slow*.test", Rule(0.1)),)))
    for number in range(50):
        put(worker, f"slow{number}.test", 2)
    while worker.claim(64):
        pass
    put(worker, "free.test", 5)
    assert len(worker.claim(5)) == 5


@both
def test_a_suspect_waits_for_its_turn_and_lets_others_go_first(fleet: FleetOnServer) -> None:
    dying, worker = fleet.worker("dying"), fleet.worker()
    fleet.set_rules(RuleSet(names={"slow.test": Rule(0.01)}))
    put(dying, "slow.test", 1)
    put(dying, "free.test", 1)
    assert len(dying.claim()) == 2
    fleet.pass_time(15, alive=[(worker, [])])
    assert fleet.redis.llen(fleet.key("suspects")) == 2
    taken = [*worker.claim(), *worker.claim()]
    assert bodies(taken) == ["http://free.test/0"]
    worker.settle(done=leases(taken))
    assert worker.claim() == []
    assert worker.left.turn_seconds == pytest.approx(89, abs=2.5)
    fleet.advance(worker.left.turn_seconds or 0)
    assert bodies(worker.claim()) == ["http://slow.test/0"]


def test_rules_are_replaced_whole(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    assert fleet.set_rules(SLOW)
    assert not fleet.set_rules(SLOW)
    assert fleet.set_rules(RuleSet())
    put(worker, "slow.test", 4)
    assert len(worker.claim()) == 4


@pytest.mark.parametrize(
    ("host", "count"),
    [("example.com", 2), ("www.example.com", 2), ("api.example.com", 4), ("example.org", 1), ("shop.net", 9)],
)
def test_the_longest_name_decides_then_the_first_glob(fleet: FleetOnServer, host: str, count: int) -> None:
    """Bursts tell which rule it was; one request of each is kept back."""
    names = {"example.com": Rule(0.01, 3), "api.example.com": Rule(0.01, 5), "shop.net": Rule()}
    rules = RuleSet(Rule(0.01, 7), names, (("*.org", Rule(0.01, 1)), ("example.*", Rule(0.01, 2))))
    fleet.set_rules(rules)
    worker = fleet.worker()
    put(worker, host, 9)
    claimed = worker.claim(9)
    assert len(claimed) == count
    assert rules.of(host).rate == (0.01 if claimed[0].turn else 0)
