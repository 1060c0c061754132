"""Turns that the scripts give, against models that look at every turn given before; and what hosts see of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawler.throttle.rules import STRATEGIES, Rule, RuleSet
from tests.support.frontier import FleetOnServer

pytest_plugins = ("tests.support.fleet",)

EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

RATES = st.sampled_from([0.5, 1.0, 3.0, 10.0, 250.0])
BURSTS = st.integers(1, 6)
PASSING_MS = st.lists(st.integers(0, 3000), min_size=1, max_size=25)
"""Milliseconds that pass before each request."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A rule as the scripts have it; times in microseconds."""

    span: int
    burst: int


def bucket_allows(rule: Packed, turns: Sequence[int]) -> bool:
    """Whether in any time t there are no more than t / interval + burst."""
    last, count = turns[-1], len(turns)
    return all(count - i <= (last - turn) / rule.span + rule.burst for i, turn in enumerate(turns))


def sliding_allows(rule: Packed, turns: Sequence[int]) -> bool:
    """Whether each window that ends with the last one has no more than the burst."""
    return sum(turn > turns[-1] - rule.span for turn in turns) <= rule.burst


def fixed_allows(rule: Packed, turns: Sequence[int]) -> bool:
    """Whether the window of the last one has no more than the burst."""
    return sum(turn // rule.span == turns[-1] // rule.span for turn in turns) <= rule.burst


MODELS: dict[str, Callable[[Packed, Sequence[int]], bool]] = {
    "token_bucket": bucket_allows,
    "sliding_window": sliding_allows,
    "fixed_window": fixed_allows,
}


def earliest(strategy: str, rule: Packed, turns: list[int], now: int) -> int:
    """The first time from now on, not before the last turn, at which the model allows one more."""
    last = turns[-1] if turns else 0
    if strategy == "fixed_window":
        last = last // rule.span * rule.span
    start = max(now, last)
    candidates = {start, (start // rule.span + 1) * rule.span}
    candidates |= {turn + steps * rule.span for turn in turns for steps in range(len(turns) + 2)}
    return min(at for at in candidates if at >= start and MODELS[strategy](rule, [*turns, at]))


@pytest.mark.parametrize("strategy", STRATEGIES)
@EXAMPLES
@given(rate=RATES, burst=BURSTS, passing=PASSING_MS)
def test_turns_are_as_early_as_the_model_allows_and_no_earlier(
    fleet: FleetOnServer, strategy: str, rate: float, burst: int, passing: list[int]
) -> None:
    rule = Rule(rate, burst, strategy=strategy)
    _, span, kept, *_ = rule.packed()
    fleet.set_rules(RuleSet(default=rule))
    fleet.redis.delete(fleet.key("host:a.test"), fleet.key("turns:a.test"))
    fleet.advance(10_000)
    turns: list[int] = []
    for ms in passing:
        fleet.advance(ms / 1000)
        now = fleet.now_ms() * 1000
        [turn] = fleet.take("a.test")
        expected = earliest(strategy, Packed(span, kept), turns, now)
        assert round(turn.wait_seconds * 1000) == math.ceil((expected - now) / 1000)
        turns.append(expected)


@settings(EXAMPLES, max_examples=200)
@given(
    rate=RATES,
    burst=BURSTS,
    requests=st.lists(st.tuples(st.integers(0, 4_000_000), st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=30),
)
def test_what_is_late_within_the_slack_breaks_no_promise(
    rate: float, burst: int, requests: list[tuple[int, float, float]]
) -> None:
    """The host sees each request up to the slack after its turn, and as much again later, for the way."""
    rule = Rule(rate, burst)
    if burst == 1 and rate > 2:  # there the least slack counts, and requests come closer by it
        return
    _, span, kept, _, slack_ms, *_ = rule.packed()
    turns: list[int] = []
    seen: list[float] = []
    now = 0
    for passing, late, way in requests:
        now += passing
        turns.append(earliest("token_bucket", Packed(span, kept), turns, now))
        seen.append(turns[-1] + (late + way) * slack_ms * 1000)
    seen.sort()
    for first in range(len(seen)):
        for last in range(first, len(seen)):
            assert last - first + 1 <= rate * (seen[last] - seen[first]) / 1e6 + burst + 1e-6


@EXAMPLES
@given(rate=RATES, passing=PASSING_MS)
def test_jitter_keeps_the_rate(fleet: FleetOnServer, rate: float, passing: list[int]) -> None:
    rule = Rule(rate, 1, jitter=0.5)
    _, span, *_ = rule.packed()
    fleet.set_rules(RuleSet(default=rule))
    fleet.redis.delete(fleet.key("host:a.test"))
    fleet.advance(10_000)
    at = -math.inf
    for ms in passing:
        fleet.advance(ms / 1000)
        now = fleet.now_ms()
        [turn] = fleet.take("a.test")
        before, at = at, now + turn.wait_seconds * 1000
        assert at - before >= span / 2000 - 1
        assert at <= max(now, before + span * 1.5 / 1000 + 1)


def test_jitter_is_drawn_anew_each_time(fleet: FleetOnServer) -> None:
    fleet.set_rules(RuleSet(default=Rule(1.0, jitter=0.5)))
    waits = [turn.wait_seconds for turn in fleet.take(*["a.test"] * 200)]
    apart = sorted(later - earlier for earlier, later in pairwise(waits))
    assert 0.5 < apart[0] < 0.6
    assert 1.4 < apart[-1] < 1.6
    assert sum(apart) / len(apart) == pytest.approx(1.045, abs=0.08)


def test_a_missed_turn_is_given_again_if_none_came_after(fleet: FleetOnServer) -> None:
    fleet.set_rules(RuleSet(default=Rule(1.0)))
    [first] = fleet.take("a.test")
    fleet.advance(0.2)
    [again] = fleet.take("a.test", missed=first.mark)
    assert again.wait_seconds == 0
    [other] = fleet.take("a.test")
    assert other.wait_seconds == pytest.approx(1.045, abs=0.002)
    [late] = fleet.take("a.test", missed=again.mark)
    assert late.wait_seconds == pytest.approx(2.09, abs=0.002)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_records_of_hosts_go_when_they_tell_nothing_any_more(fleet: FleetOnServer, strategy: str) -> None:
    fleet.set_rules(RuleSet(default=Rule(20.0, 2, strategy=strategy)))
    fleet.take("a.test")
    [name] = fleet.names() - {"limits", "state"}
    assert 0 < fleet.redis.pttl(fleet.key(name)) < 250


def test_hosts_without_a_rule_leave_no_record(fleet: FleetOnServer) -> None:
    fleet.set_rules(RuleSet(names={"b.test": Rule(1.0)}))
    free, limited = fleet.take("a.test", "sub.b.test")
    assert (free.slack_seconds, limited.slack_seconds) == (0, 0.01)
    assert fleet.names() == {"limits", "state", "host:sub.b.test"}
