"""Turns that Redis and memory give, against models that look at every turn given before; and what hosts see of them."""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawler.throttle.memory import SWEEP_HOSTS, MemoryTurns
from crawler.throttle.rules import STRATEGIES, Rule, RuleSet
from crawler.throttle.turns import Ages
from tests.support.frontier import FleetOnServer
from tests.support.turns import Pace, PaceInMemory, PaceInRedis

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


@pytest.fixture(params=["redis", "memory"])
def pace(request: pytest.FixtureRequest) -> Iterator[Pace]:
    """Each implementation in turn."""
    with asyncio.Runner() as runner:
        if request.param == "redis":
            yield PaceInRedis(runner.run, request.getfixturevalue("fleet"))
        else:
            yield PaceInMemory(runner.run)


@pytest.mark.parametrize("strategy", STRATEGIES)
@EXAMPLES
@given(rate=RATES, burst=BURSTS, passing=PASSING_MS)
def test_turns_are_as_early_as_the_model_allows_and_no_earlier(
    pace: Pace, strategy: str, rate: float, burst: int, passing: list[int]
) -> None:
    rule = Rule(rate, burst, strategy=strategy)
    _, span, kept, _, slack_ms, *_ = rule.packed()
    pace.begin(RuleSet(default=rule))
    turns: list[int] = []
    for ms in passing:
        pace.advance(ms)
        now = pace.now_us()
        [turn] = pace.take("a.test")
        expected = earliest(strategy, Packed(span, kept), turns, now)
        # Redis tells them in whole milliseconds, rounded up.
        assert 0 <= round(turn.wait_seconds * 1e6) - (expected - now) < 1000
        assert turn.slack_seconds == slack_ms / 1000
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
def test_jitter_keeps_the_rate(pace: Pace, rate: float, passing: list[int]) -> None:
    rule = Rule(rate, 1, jitter=0.5)
    _, span, *_ = rule.packed()
    pace.begin(RuleSet(default=rule))
    at = -math.inf
    for ms in passing:
        pace.advance(ms)
        now = pace.now_us() / 1000
        [turn] = pace.take("a.test")
        before, at = at, now + turn.wait_seconds * 1000
        assert at - before >= span / 2000 - 1
        assert at <= max(now, before + span * 1.5 / 1000 + 1)


def test_jitter_is_drawn_anew_each_time(pace: Pace) -> None:
    pace.begin(RuleSet(default=Rule(1.0, jitter=0.5)))
    waits = [turn.wait_seconds for turn in pace.take(*["a.test"] * 200)]
    apart = sorted(later - earlier for earlier, later in pairwise(waits))
    assert 0.5 < apart[0] < 0.6
    assert 1.4 < apart[-1] < 1.6
    assert sum(apart) / len(apart) == pytest.approx(1.045, abs=0.08)


def test_a_missed_turn_is_given_again_if_none_came_after(pace: Pace) -> None:
    pace.begin(RuleSet(default=Rule(1.0)))
    [first] = pace.take("a.test")
    pace.advance(200)
    [again] = pace.take("a.test", missed=first.mark)
    assert again.wait_seconds == 0
    [other] = pace.take("a.test")
    assert other.wait_seconds == pytest.approx(1.045, abs=0.002)
    [late] = pace.take("a.test", missed=again.mark)
    assert late.wait_seconds == pytest.approx(2.09, abs=0.002)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_hosts_have_turns_of_their_own(pace: Pace, strategy: str) -> None:
    pace.begin(RuleSet(default=Rule(1.0, 1, strategy=strategy), names={"b.test": Rule(4.0)}))
    first, other, second = pace.take("a.test", "b.test", "a.test")
    assert first.wait_seconds == other.wait_seconds == 0
    assert second.wait_seconds > 0
    [fast] = pace.take("www.b.test")
    assert fast.wait_seconds == 0


def test_hosts_without_a_rule_wait_for_nothing(pace: Pace) -> None:
    pace.begin(RuleSet(names={"b.test": Rule(1.0)}))
    free, limited = pace.take("a.test", "sub.b.test")
    assert (free.wait_seconds, free.slack_seconds, free.mark) == (0, 0, 0)
    assert limited.slack_seconds == 0.01


@pytest.mark.parametrize("rules", [RuleSet(), *(RuleSet(default=Rule(200.0, 5, strategy=each)) for each in STRATEGIES)])
def test_no_turn_comes_before_the_end_of_a_block(pace: Pace, rules: RuleSet) -> None:
    pace.begin(rules)
    assert pace.hear("a.test", 5.0) == (5.0, True)
    assert pace.blocked("a.test", "b.test") == [5.0, 0.0]
    blocked, free = pace.take("a.test", "b.test")
    assert blocked.wait_seconds == 1
    assert blocked.slack_seconds < 0, "it is to be asked for again"
    assert free.wait_seconds == 0
    pace.advance(5100)
    assert pace.blocked("a.test") == [0]
    assert pace.take("a.test")[0].wait_seconds == 0


def test_a_named_wait_counts_and_a_block_only_grows(pace: Pace) -> None:
    pace.begin(RuleSet())
    assert pace.hear("a.test", 7.0)[0] == 7.0
    assert pace.hear("a.test", 2.0) == (7.0, False)
    assert pace.hear("a.test") == (7.0, False)
    assert pace.hear("a.test", 9.0) == (9.0, False)
    assert pace.hear("a.test", 1e12)[0] == 86_400.0


def test_waits_that_no_host_names_double_until_it_answers_well(pace: Pace) -> None:
    pace.begin(RuleSet())
    for number in range(9):
        left, new = pace.hear("a.test")
        assert new
        assert min(2**number, 60) <= left <= min(2**number, 60) * 1.1 + 0.001
        assert not pace.hear("a.test", age=1.0)[1]
        pace.advance(round(left * 1000) + 200)
    assert pace.hear("a.test", well=0.15)[0] <= 1.1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_records_in_redis_go_when_they_tell_nothing_any_more(fleet: FleetOnServer, strategy: str) -> None:
    fleet.set_rules(RuleSet(default=Rule(20.0, 2, strategy=strategy)))
    fleet.take("a.test")
    [name] = fleet.names() - {"limits", "state"}
    assert 0 < fleet.redis.pttl(fleet.key(name)) < 250


def test_hosts_without_a_rule_leave_no_record_in_redis(fleet: FleetOnServer) -> None:
    fleet.set_rules(RuleSet(names={"b.test": Rule(1.0)}))
    fleet.take("a.test", "sub.b.test")
    assert fleet.names() == {"limits", "state", "host:sub.b.test"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_records_in_memory_go_when_they_tell_nothing_any_more(strategy: str) -> None:
    """Each host is asked and refuses once, 20 of them a second."""
    now = 0.0
    turns = MemoryTurns(RuleSet(default=Rule(20.0, 2, strategy=strategy)), clock=lambda: now)

    async def ask_many() -> int:
        nonlocal now
        most = 0
        for number in range(5 * SWEEP_HOSTS):
            now += 0.05
            await turns.take([(f"h{number}.test", 0)])
            await turns.hear(f"h{number}.test", 0.5, Ages(0.01), (1.0, 60.0, 86_400.0))
            most = max(most, turns.records)
        return most

    assert asyncio.run(ask_many()) <= SWEEP_HOSTS + 1
    assert turns.records > 0


def test_blocks_in_memory_go_when_they_are_over() -> None:
    now = 0.0
    turns = MemoryTurns(RuleSet(), clock=lambda: now)

    async def hear_many() -> int:
        nonlocal now
        for number in range(5 * SWEEP_HOSTS):
            now += 0.05
            await turns.hear(f"h{number}.test", 0.5, Ages(0.01), (1.0, 60.0, 86_400.0))
        return turns.records

    assert asyncio.run(hear_many()) <= SWEEP_HOSTS


def test_records_in_memory_stay_while_they_tell_something() -> None:
    turns = MemoryTurns(RuleSet(default=Rule(0.001)), clock=lambda: 1.0)

    async def ask_many() -> None:
        for number in range(3 * SWEEP_HOSTS):
            await turns.take([(f"h{number}.test", 0)])

    asyncio.run(ask_many())
    assert turns.records == 3 * SWEEP_HOSTS


def test_hosts_without_a_rule_leave_no_record_in_memory() -> None:
    turns = MemoryTurns(RuleSet(), clock=lambda: 1.0)
    asyncio.run(turns.take([("a.test", 0)]))
    assert turns.records == 0
