"""What hosts saw of a crawl: times of their requests, and how far those are above a limit."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from tests.support.lab import Lab


def times_of(lab: Lab) -> dict[str, list[float]]:
    """When each host was asked, robots.txt included; epoch seconds."""
    times: dict[str, list[float]] = defaultdict(list)
    for hit in lab.times():
        times[hit.host].append(hit.at)
    return {host: sorted(hits) for host, hits in times.items()}


def gaps_of(times: Sequence[float]) -> list[float]:
    """Seconds between a request and the next."""
    return [later - earlier for earlier, later in pairwise(times)]


def excess_of(times: Sequence[float], rate: float, burst: int) -> float:
    """The most requests above rate * t + burst in any window of time t; negative where the limit was never reached.

    Args:
        times: of one host's requests, in order; seconds.
        rate: requests a second.
        burst: requests at once.
    """
    lowest, worst = float("inf"), -float(burst)
    for number, at in enumerate(times):
        behind = number - rate * at
        lowest = min(lowest, behind)
        worst = max(worst, behind - lowest + 1 - burst)
    return worst
