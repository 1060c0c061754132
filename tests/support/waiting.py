"""Waiting for a condition, with a deadline and a reason."""

import time
from collections.abc import Callable

LOOK_SECONDS = 0.05


def wait_until(condition: Callable[[], object], limit_seconds: float, what: str) -> None:
    """Looks until the condition holds; raises AssertionError that names what was waited for when the time is over."""
    deadline = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {limit_seconds:g} s in vain for {what}")
        time.sleep(LOOK_SECONDS)  # the one place where tests sleep: between two looks at a condition
