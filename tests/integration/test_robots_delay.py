"""A host that asks to be asked less often: its turns are as far apart as it says, unless its rule has them further."""

import pytest

from crawler.redisdb.scripts import run_now
from crawler.throttle.limiter import ThrottleScripts
from crawler.throttle.rules import Rule, RuleSet
from tests.support.frontier import FleetOnServer, bodies, page

pytest_plugins = ("tests.support.fleet",)


@pytest.fixture
def fleet(fleet: FleetOnServer) -> FleetOnServer:
    """Its clock is ahead of the server's, and so stands still between two advances."""
    fleet.advance(3600)
    return fleet


@pytest.mark.parametrize(
    ("rule", "apart"),
    [
        (None, 2.09),
        (Rule(0.25), 4.18),
        (Rule(20.0, 10), 2.09),
        (Rule(20.0, 10, strategy="sliding_window"), 2.09),
    ],
)
def test_turns_are_as_far_apart_as_the_host_says(fleet: FleetOnServer, rule: Rule | None, apart: float) -> None:
    fleet.set_rules(RuleSet(default=rule) if rule else RuleSet())
    scripts = ThrottleScripts(fleet.partition.script_keys("w1"))
    for _ in range(2):
        run_now(fleet.redis, scripts.crawl_delay("a.test", 2.0, 100.0))
    waits = [turn.wait_seconds for turn in fleet.take(*["a.test"] * 3)]
    assert waits[0] == pytest.approx(2.09, abs=0.002)
    assert waits[2] - waits[1] == pytest.approx(apart, abs=0.002)
    assert fleet.take("b.test")[0].wait_seconds == 0


def test_claims_keep_to_it(fleet: FleetOnServer) -> None:
    worker = fleet.worker("w1")
    worker.put(page("http://a.test/1"), page("http://a.test/2"), page("http://b.test/1"))
    scripts = ThrottleScripts(fleet.partition.script_keys("w1"))
    run_now(fleet.redis, scripts.crawl_delay("a.test", 2.0, 100.0))
    assert bodies(worker.claim()) == ["http://b.test/1"]
    fleet.advance(2.1)
    assert bodies(worker.claim()) == ["http://a.test/1"]
    fleet.advance(2.1)
    assert bodies(worker.claim()) == ["http://a.test/2"]
