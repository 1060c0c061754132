"""What a Retry-After header asks for."""

from datetime import UTC, datetime

import pytest

from crawler.throttle.refusals import retry_after_seconds

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 1 ", 1),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30),
        ("Sunday, 01-Mar-26 12:01:00 GMT", 60),
        ("Sun Mar  1 12:00:05 2026", 5),
        ("9" * 400, 999_999_999_999),
        ("0", None),
        ("-5", None),
        ("1.5", None),
        ("Sun, 01 Mar 2026 11:59:00 GMT", None),
        ("soon", None),
        ("", None),
        ("Sun, 99 Foo 2026", None),
        ("\u0661\u0662", None),
    ],
)
def test_seconds_and_dates_are_read_and_nonsense_is_none(value: str, seconds: float | None) -> None:
    assert retry_after_seconds(value, NOW) == seconds
