"""What slows a host down for the whole fleet: refusals, circuits, the time and bytes of its answers, robots delays."""

import msgpack
import pytest

from crawler.redisdb.scripts import run_now
from crawler.throttle.limiter import ThrottleScripts
from crawler.throttle.rules import Rule, RuleSet
from crawler.throttle.turns import Ages
from tests.support.frontier import FleetOnServer, Member, bodies, page

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")

HOST = "a.test"
WAITS = (1.0, 60.0, 86_400.0)
OPEN_WAITS = (5.0, 300.0, 600.0)


@pytest.fixture
def fleet(fleet: FleetOnServer) -> FleetOnServer:
    """Its clock is ahead of the server's, and so stands still between two advances."""
    fleet.advance(3600)
    return fleet


def scripts(fleet: FleetOnServer) -> ThrottleScripts:
    return ThrottleScripts(fleet.partition.script_keys("w1"))


def refuse(fleet: FleetOnServer, rate: float = 0.0) -> float:
    """A 429 of the host: seconds until it may be asked."""
    call = scripts(fleet).hear(HOST, None, Ages(0.1, 0.2), WAITS, rate)
    left_ms, _ = msgpack.unpackb(run_now(fleet.redis, call))
    return float(left_ms) / 1000


def fail(fleet: FleetOnServer, sent: float = 0.1, well: float | None = None) -> tuple[float, bool]:
    """A failure of the host: seconds until it may be asked, and whether it opened the circuit."""
    left_ms, opened = msgpack.unpackb(run_now(fleet.redis, scripts(fleet).fail(HOST, Ages(sent, well), 5, OPEN_WAITS)))
    return left_ms / 1000, bool(opened)


def interval(fleet: FleetOnServer) -> float:
    """Seconds between two requests of the host just now."""
    first, second = fleet.take(HOST, HOST)
    return second.wait_seconds - first.wait_seconds


def put(worker: Member, count: int) -> None:
    worker.put(*(page(f"http://{HOST}/{number}") for number in range(count)))


@both
def test_a_refusal_slows_to_about_half_and_recovers_to_the_rule(fleet: FleetOnServer) -> None:
    fleet.set_rules(RuleSet(default=Rule(20.0, 4)))
    fleet.advance(refuse(fleet) + 0.01)
    assert 1 / interval(fleet) == pytest.approx(11, rel=0.05)
    fleet.advance(9)
    assert 1 / interval(fleet) == pytest.approx(15, rel=0.05)
    fleet.advance(9)
    assert 1 / interval(fleet) == pytest.approx(19, rel=0.05)
    put(fleet.worker(), 9)
    fleet.advance(30)
    assert len(fleet.worker("w2").claim()) == 3, "the burst, of which one is kept back"


def test_refusals_in_a_row_slow_further_down_and_take_long_to_recover(fleet: FleetOnServer) -> None:
    fleet.set_rules(RuleSet(default=Rule(20.0, 4)))
    rates = []
    for _ in range(5):
        fleet.advance(refuse(fleet) + 1)
        rates.append(1 / interval(fleet))
        fleet.advance(1)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 4


def test_a_host_without_a_rule_is_slowed_from_what_it_was_asked(fleet: FleetOnServer) -> None:
    for name in ("w1", "w2"):
        fleet.worker(name)
    fleet.advance(refuse(fleet, rate=10.0) + 0.01)
    assert 1 / interval(fleet) == pytest.approx(11, rel=0.05)
    worker = fleet.worker("w3")
    put(worker, 40)
    fleet.advance(1)
    assert len(worker.claim(40, ahead_us=300_000)) in {3, 4}
    fleet.advance(3600)
    assert len(worker.claim(40)) > 30


def test_a_host_that_was_hardly_asked_is_slowed_when_it_refuses_again(fleet: FleetOnServer) -> None:
    """Its first answer says nothing of what it takes."""
    wait = refuse(fleet, rate=0.5)
    assert not fleet.redis.exists(fleet.key("pace:a.test"))
    fleet.advance(wait + 0.2)
    fleet.advance(refuse(fleet, rate=0.5) + 0.01)
    assert 1 / interval(fleet) == pytest.approx(0.55, rel=0.05)


@both
@pytest.mark.parametrize("strategy", ["sliding_window", "fixed_window"])
def test_windows_hold_beside_a_slowdown(fleet: FleetOnServer, strategy: str) -> None:
    """Ten requests at once would be allowed; when slowed they are apart, and ten are the most."""
    fleet.set_rules(RuleSet(default=Rule(1.0, 10, strategy=strategy)))
    run_now(fleet.redis, scripts(fleet).crawl_delay(HOST, 0.5, 3600))
    waits = [turn.wait_seconds for turn in fleet.take(*[HOST] * 11)]
    assert waits[1] - waits[0] == pytest.approx(0.5225, abs=0.002)
    assert waits[10] >= (9.9 if strategy == "sliding_window" else 0.5 * 10)


@both
def test_five_failures_open_a_circuit_and_one_request_tries_it(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    put(worker, 9)
    opened = [fail(fleet)[1] for _ in range(5)]
    assert opened == [False, False, False, False, True]
    assert worker.claim() == []
    assert fail(fleet)[1] is False, "it was sent before the circuit opened"
    fleet.advance(5.6)
    [trying] = worker.claim(ahead_us=300_000)
    assert trying.turn is not None
    assert trying.turn.probes
    assert worker.claim(ahead_us=300_000) == []
    left, again = fail(fleet)
    assert again
    assert 10 <= left <= 11.1
    fleet.advance(left + 0.01)
    [trying] = worker.claim(ahead_us=300_000)
    fleet.advance(0.2)
    assert run_now(fleet.redis, scripts(fleet).well(HOST, 0.1)) == 1
    claimed = worker.claim(ahead_us=300_000)
    assert len(claimed) == 7
    assert not any(one.turn for one in claimed)


@both
def test_failures_of_who_had_not_heard_of_the_open_circuit_do_not_open_it_for_longer(fleet: FleetOnServer) -> None:
    """Workers hear of it one after another; in between they may send what fails too."""
    for _ in range(5):
        left, _ = fail(fleet)
    for _ in range(8):
        fleet.advance(0.2)
        left -= 0.2
        again, opened = fail(fleet)
        assert again == pytest.approx(left, abs=0.01)
        assert not opened
    fleet.advance(left + 0.2)
    assert 10 <= fail(fleet)[0] <= 11.1


def test_an_answer_from_before_the_circuit_opened_does_not_close_it(fleet: FleetOnServer) -> None:
    for _ in range(5):
        fail(fleet)
    fleet.advance(1)
    assert run_now(fleet.redis, scripts(fleet).well(HOST, 3.0)) == 0
    assert fleet.redis.exists(fleet.key("pace:a.test"))


def test_failures_with_good_answers_between_open_nothing(fleet: FleetOnServer) -> None:
    for _ in range(20):
        fleet.advance(1)
        assert fail(fleet, 0.1, well=0.5) == (0, False)


@both
def test_a_host_that_fails_for_ten_minutes_is_lost_and_then_tried_anew(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    put(worker, 9)
    took = 0.0
    for _ in range(5):
        fail(fleet)
    while fleet.redis.hget(fleet.key("pace:a.test"), "lost") is None:
        left, _ = fail(fleet)
        took += left + 0.2
        assert took < 1000
        fleet.advance(left + 0.2)
    assert took > 600
    claimed = worker.claim(20)
    assert len(claimed) == 9
    assert all(one.turn is not None and one.turn.lost for one in claimed)
    fleet.advance(1600)
    worker.put(page(f"http://{HOST}/new"))
    assert [one.turn for one in worker.claim()] == [None]


def test_a_prober_that_dies_is_followed_by_another(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    put(worker, 9)
    for _ in range(5):
        fail(fleet)
    fleet.advance(5.6)
    assert len(worker.claim()) == 1
    assert worker.claim() == []
    fleet.advance(5.6)
    assert len(fleet.worker("w2").claim()) == 1


@both
def test_slow_answers_make_intervals_longer_and_quick_ones_shorter_again(fleet: FleetOnServer) -> None:
    def answered(seconds: float, count: int = 1, *, good: bool = True) -> None:
        run_now(fleet.redis, scripts(fleet).report(2.0, 60.0, [(HOST, seconds, count, good, 0)]))

    answered(1.0)
    assert interval(fleet) == pytest.approx(0.5, abs=0.01)
    answered(3.0)
    assert interval(fleet) == pytest.approx(1.5, abs=0.01)
    answered(1.0)
    assert interval(fleet) == pytest.approx(1.0, abs=0.01)
    answered(0.1, good=False)
    assert interval(fleet) == pytest.approx(1.0, abs=0.01), "a quick error says nothing"
    answered(0.1, 10)
    assert interval(fleet) < 0.06
    answered(1000.0)
    assert interval(fleet) == pytest.approx(60.0, abs=1)


def test_bytes_use_up_a_byte_rate(fleet: FleetOnServer) -> None:
    fleet.set_rules(RuleSet(default=Rule(byte_rate=1000.0)))
    worker = fleet.worker()
    put(worker, 9)
    assert len(worker.claim(2)) == 2
    run_now(fleet.redis, scripts(fleet).report(0.0, 60.0, [(HOST, 0.1, 2, True, 5000)]))
    assert worker.claim(2) == []
    fleet.advance(4.9)
    assert worker.claim(2) == []
    fleet.advance(0.2)
    assert bodies(worker.claim(1)) == [f"http://{HOST}/2"]


def test_a_robots_delay_holds_for_its_lifetime(fleet: FleetOnServer) -> None:
    fleet.set_rules(RuleSet(default=Rule(20.0)))
    run_now(fleet.redis, scripts(fleet).crawl_delay(HOST, 2.0, 60.0))
    assert interval(fleet) == pytest.approx(2.09, abs=0.01)
    fleet.advance(61)
    assert interval(fleet) == pytest.approx(1.045 / 20, abs=0.002)
