"""Hosts that asked for patience, as this process hears of it."""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from crawler.clock import Monotonic, monotonic
from crawler.throttle.blocks import KNOWN_HOSTS, Blocks
from crawler.throttle.turns import Ages, Turns

log = logging.getLogger(__name__)

LONGEST_SECONDS = 60.0
RATE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits: the first where a host names none (0: such answers are not heard), and the longest that it may name."""

    first_seconds: float = 1.0
    most_seconds: float = 86_400.0


def retry_after_seconds(value: str, now: datetime) -> float | None:
    """The wait that a Retry-After header asks for; None where it cannot be read, or asks for none.

    Args:
        value: seconds, or a date as RFC 9110 has them.
        now: the time that the host's dates are compared with, in UTC.
    """
    text = value.strip()
    if text.isascii() and text.isdigit():
        # Longer numbers are as absurd, and float() of them overflows.
        seconds = float(text[:12])
    else:
        try:
            date = parsedate_to_datetime(text)
        except (TypeError, ValueError):
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds()
    return seconds if seconds > 0 else None


class Refusals:
    """Notes how hosts answer, and blocks those that asked for patience."""

    def __init__(self, turns: Turns, patience: Patience, blocks: Blocks, clock: Monotonic = monotonic) -> None:
        self._turns = turns
        self._patience = patience
        self._blocks = blocks
        self._clock = clock
        self._well_at: dict[str, float] = {}
        self._rates: dict[str, tuple[float, int, float]] = {}

    def sent(self, host: str) -> None:
        """Counts a request."""
        since, count, rate = self._rates.get(host, (0.0, 0, 0.0))
        now = self._clock()
        if now - since >= RATE_SECONDS:
            if len(self._rates) >= KNOWN_HOSTS:
                self._rates.clear()
            self._rates[host] = now, 1, count / (now - since)
        else:
            self._rates[host] = since, count + 1, rate

    def _rate(self, host: str) -> float:
        since, count, rate = self._rates.get(host, (0.0, 0, 0.0))
        return max(rate, count / max(RATE_SECONDS, self._clock() - since))

    def foresee(self, host: str, wait_seconds: float | None) -> None:
        """Blocks a host that refused here at once, for what would be sent before Redis has answered."""
        patience = self._patience
        wait = patience.first_seconds if wait_seconds is None else wait_seconds
        self._blocks.foresee(host, min(wait, patience.most_seconds))

    async def refused(self, host: str, wait_seconds: float | None, sent_at: float) -> None:
        """Blocks a host that asked for patience, for all who share its turns.

        Args:
            host: the host.
            wait_seconds: what its Retry-After says; None without one.
            sent_at: when the request was sent that it answered.
        """
        patience = self._patience
        if not patience.first_seconds and wait_seconds is None:
            return
        waits = (patience.first_seconds, LONGEST_SECONDS, patience.most_seconds)
        # What is learned of this answer must not be overtaken by what was asked before it.
        async with self._blocks.turn:
            left, new = await self._turns.hear(host, wait_seconds, self.ages(host, sent_at), waits, self._rate(host))
        self._blocks.told(host)
        if new:
            log.info("%s asks for patience: nobody asks it for %.1f s", host, left)
        if left > 0:
            self._blocks.learn(host, left)

    def ages(self, host: str, sent_at: float) -> Ages:
        """How long ago a request was sent, and the last that the host answered well."""
        now, well_at = self._clock(), self._well_at.get(host)
        return Ages(now - sent_at, None if well_at is None else now - well_at)

    def worked(self, host: str, sent_at: float) -> None:
        """Notes that a host has answered as it should."""
        if len(self._well_at) >= KNOWN_HOSTS:
            self._well_at.clear()
        self._well_at[host] = sent_at
