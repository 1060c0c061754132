"""How long new tries wait, by cause and number; and what CRAWLER_RETRY may say."""

import socket
from typing import Any

import pytest
from twisted.internet import error

from crawler.components.causes import cause_of_exception, cause_of_status
from crawler.download.retries import CAUSES, LONGEST_SECONDS, RetryPolicy
from crawler.errors import ConfigError


def waits(given: dict[str, Any], cause: str, tries: range, draw: float = 0.5) -> list[int]:
    policy = RetryPolicy.read(given, lambda: draw)
    return [policy.wait_ms(cause, number) for number in tries]


def test_waits_double_up_to_the_longest() -> None:
    assert waits({}, "timeout", range(1, 6)) == [1000, 2000, 4000, 8000, 16_000]
    assert waits({}, "timeout", range(9, 12)) == [256_000, 300_000, 300_000]
    assert waits({}, "timeout", range(10**9, 10**9 + 1)) == [300_000]


def test_a_name_that_is_not_found_and_a_full_storage_wait_longer_and_a_refusal_for_its_host_alone() -> None:
    assert [waits({}, cause, range(1, 2))[0] for cause in ("dns", "storage", "refusal")] == [5000, 5000, 0]


def test_jitter_makes_waits_differ_both_ways() -> None:
    assert waits({}, "status", range(1, 2), draw=0.0) == [750]
    assert waits({}, "status", range(1, 2), draw=0.999_999) == [1249]
    assert waits({"status": {"jitter": 0}}, "status", range(1, 2), draw=0.0) == [1000]


def test_one_cause_is_set_over_all_whatever_their_order() -> None:
    given = {"timeout": {"base": 3, "most": 10}, "*": {"base": 2, "factor": 3}}
    assert waits(given, "timeout", range(1, 4)) == [3000, 9000, 10_000]
    assert waits(given, "connection", range(1, 4)) == [2000, 6000, 18_000]


def test_a_number_is_the_base_and_0_waits_for_nothing() -> None:
    assert waits({"*": 0}, "connection", range(1, 3)) == [0, 0]
    assert waits({"*": 900}, "connection", range(1, 3)) == [900_000, 900_000]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"timout": 1}, "'timout', which is no cause; they are * connection dns timeout"),
        ({"dns": {"bse": 1}}, "'bse'; known are base, factor, most, jitter"),
        ({"dns": -1}, "['dns']['base'] must be a number from 0 to 604800, got -1"),
        ({"dns": {"factor": 0.5}}, "from 1 to 100, got 0.5"),
        ({"*": {"jitter": 2}}, "from 0 to 1, got 2"),
        ({"*": {"most": "long"}}, "got 'long'"),
        ({"*": True}, "got True"),
        ({"*": {"most": LONGEST_SECONDS * 2}}, "got 1209600.0"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match="CRAWLER_RETRY") as caught:
        RetryPolicy.read(given)
    assert says in str(caught.value)


def test_causes_of_exceptions_and_answers() -> None:
    kinds = (error.DNSLookupError, socket.gaierror, error.TimeoutError, error.TCPTimedOutError, TimeoutError)
    assert [cause_of_exception(kind()) for kind in kinds] == ["dns", "dns", "timeout", "timeout", "timeout"]
    assert {cause_of_exception(kind()) for kind in (error.ConnectionRefusedError, OSError)} == {"connection"}
    assert [cause_of_status(code) for code in (200, 301, 404, 500, 503, 429)] == [
        "",
        "",
        *["status"] * 2,
        *["refusal"] * 2,
    ]
    assert set(CAUSES) >= {cause_of_status(500), cause_of_exception(OSError())}
