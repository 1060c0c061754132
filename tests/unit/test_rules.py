"""Rules as users write them."""

from typing import Any

import pytest

from crawler.errors import ConfigError
from crawler.throttle.rules import Rule, read_rules


def test_a_number_is_a_rate_and_a_mapping_a_rule() -> None:
    rules = read_rules({"a.com": 2, "*.b.com": {"rate": 0.5, "burst": 3}, "*": {"rate": 1, "strategy": "fixed_window"}})
    assert rules.of("a.com") == rules.of("www.a.com") == Rule(2.0)
    assert rules.of("x.b.com") == Rule(0.5, 3)
    assert rules.of("b.com") == Rule(1.0, strategy="fixed_window")


def test_a_glob_is_no_regular_expression() -> None:
    rules = read_rules({"a?.x-y.*": 1})
    assert rules.of("ab.x-y.com").rate
    assert not rules.of("abbx-y.com").rate
    assert not rules.of("ab.x-y").rate


def test_rules_given_replace_those_from_elsewhere() -> None:
    rules = read_rules({"A.com.": 0}, default=Rule(1.0), names={"a.com": Rule(3.0), "b.com": Rule(4.0)})
    assert [rules.of(host).rate for host in ("a.com", "b.com", "c.com")] == [0, 4, 1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a.com"], "must map hosts to rules, got list"),
        ({"http://a.com/": 1}, "write a host, a domain or a glob, no URL"),
        ({"": 1}, "has the host ''"),
        ({"a.com": {"rat": 1}}, "has 'rat'; known are rate, burst, jitter, strategy, concurrency, byte_rate"),
        ({"a.com": {"burst": 2}}, "has the rate None; it must be a number"),
        ({"a.com": "fast"}, "has the rate 'fast'; it must be a number"),
        ({"a.com": -1}, "has the rate -1"),
        ({"a.com": 1e-9}, "must be 0 (no limit) or at least 1e-06 a second"),
        ({"a.com": {"rate": 1, "burst": 0}}, "has the burst 0; it must be a number from 1"),
        ({"a.com": {"rate": 1, "jitter": 2}}, "has the jitter 2; it must be a number from 0 to 1"),
        ({"a.com": {"concurrency": -2}}, "has the concurrency -2; it must be a number from 0"),
        ({"a.com": {"rate": 1, "byte_rate": 1, "strategy": "fixed_window"}}, "a byte_rate needs token_bucket"),
        ({"a.com": {"rate": 1, "strategy": "leaky"}}, "has the strategy 'leaky'; known are token_bucket"),
    ],
)
def test_a_wrong_rule_is_named_with_what_it_may_be(given: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_rules(given)
    assert said in str(refused.value)
