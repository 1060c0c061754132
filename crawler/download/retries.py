"""When a failed request is tried again: exponential back-off by the cause of the failure."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from crawler.errors import ConfigError

CONNECTION, DNS, TIMEOUT, STATUS = "connection", "dns", "timeout", "status"
REFUSAL, CALLBACK, STORAGE = "refusal", "callback", "storage"

LONGEST_SECONDS = 7 * 86_400.0
MOST_DOUBLINGS = 64  # beyond any `most`; a larger power of a float would overflow


@dataclass(frozen=True, slots=True)
class BackOff:
    """Waits that grow: ``base * factor ** (tries - 1)`` seconds, ``most`` at most, then up to ``jitter`` more or less.

    The jitter keeps requests that failed together from coming back together (Brooker, "Exponential Backoff And Jitter",
    2015). Trawlnet's is a part of the wait, so that a wait never is next to nothing.

    Args:
        base: seconds before the first new try; 0: none is waited for.
        factor: by which each wait is longer than the one before.
        most: longest wait in seconds, before its jitter; where a rule gives a longer base alone, that one.
        jitter: share by which waits differ, 0 to 1.
    """

    base: float = 1.0
    factor: float = 2.0
    most: float = 300.0
    jitter: float = 0.25

    def wait_seconds(self, tries: int, draw: float) -> float:
        """How long to wait before the new try number ``tries`` (from 1); ``draw`` is random in [0, 1)."""
        grown = self.base * self.factor ** min(max(tries, 1) - 1, MOST_DOUBLINGS)
        return min(grown, self.most) * (1 + self.jitter * (2 * draw - 1))


CAUSES: Mapping[str, BackOff] = {
    CONNECTION: BackOff(),
    DNS: BackOff(base=5.0),
    TIMEOUT: BackOff(),
    STATUS: BackOff(),
    REFUSAL: BackOff(base=0.0),
    CALLBACK: BackOff(),
    STORAGE: BackOff(base=5.0),
}
"""Causes of a new try and their defaults. A ``refusal`` (429 or 503) waits for its host's own time; ``callback``
is what a spider asks for by itself (``get_retry_request()``).
"""

_LIMITS = {"base": (0.0, LONGEST_SECONDS), "factor": (1.0, 100.0), "most": (0.0, LONGEST_SECONDS), "jitter": (0.0, 1.0)}


class RetryPolicy:
    """How long each new try waits in the frontier."""

    def __init__(self, back_offs: Mapping[str, BackOff], draw: Callable[[], float] = random.random) -> None:
        self._back_offs = back_offs
        self._draw = draw

    @classmethod
    def read(cls, given: Mapping[str, Any], draw: Callable[[], float] = random.random) -> "RetryPolicy":
        """Reads CRAWLER_RETRY: by cause, or ``*`` for all, a mapping of BackOff's fields, or the base alone.

        Raises:
            ConfigError: names the cause or field that cannot be used.
        """
        back_offs = dict(CAUSES)
        for cause in sorted(given, key=lambda name: name != "*"):
            if cause not in CAUSES and cause != "*":
                raise ConfigError(f"CRAWLER_RETRY has {cause!r}, which is no cause; they are * {' '.join(CAUSES)}")
            changes = _changes(cause, given[cause])
            for name in CAUSES if cause == "*" else (cause,):
                most = max(back_offs[name].most, changes.get("base", 0.0))
                back_offs[name] = replace(back_offs[name], **{"most": most, **changes})
        return cls(back_offs, draw)

    def wait_ms(self, cause: str, tries: int) -> int:
        """How many milliseconds the new try number ``tries`` (from 1) waits after a failure of that cause."""
        return int(1000 * self._back_offs[cause].wait_seconds(tries, self._draw()))


def _changes(cause: str, given: Any) -> dict[str, float]:
    if not isinstance(given, Mapping):
        given = {"base": given}
    known = [field.name for field in fields(BackOff)]
    changes = {}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"CRAWLER_RETRY[{cause!r}] has {name!r}; known are {', '.join(known)}")
        least, most = _LIMITS[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise ConfigError(
                f"CRAWLER_RETRY[{cause!r}][{name!r}] must be a number from {least:g} to {most:g}, got {value!r}"
            )
        changes[name] = float(value)
    return changes
