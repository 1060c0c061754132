"""URLs whose shape says that a site makes them without end; and budgets of what a crawl takes of a place."""

import re
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from crawler.frontier.plan import Budget

LOWERED: Final = 1000
"""By so much the priority of a suspicious URL is lowered: it comes after all that is not."""

_SEGMENT_LOWER: Final = 3
_SEGMENT_STOP: Final = 6
"""Times that one segment is in a path. Ordinary paths have one twice (/v1/v1/, /2024/05/05/); relative links to the
page itself make one more each time.
"""

_PARAMETERS_LOWER: Final = 20
_PARAMETERS_STOP: Final = 60
_SAME_LOWER: Final = 5
_SAME_STOP: Final = 15
"""Parameters of a query, and those of one name. Searches with facets have a handful of either."""

_QUIET_SLASHES: Final = 4
_QUIET_AMPERSANDS: Final = 4
"""With no more a path or query cannot be suspicious, and is not looked at."""

_SOFT_SHARE: Final = 10
_APART: Final = r"(?<!\d)(?:19|20)\d\d([-/_.])(?:0?[1-9]|1[0-2])(?:\1(?:0?[1-9]|[12]\d|3[01]))?(?!\d)"
_TOGETHER: Final = r"(?<!\d)(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?!\d)"
_DATE: Final = re.compile(f"{_APART}|{_TOGETHER}")
_ASKED: Final = re.compile(_APART)  # in a query eight digits are rather some number
_PART: Final = re.compile(r"\b(?:year|month|week|day|date)=\d+", re.IGNORECASE)
_VIEW: Final = re.compile(r"/(?:list|agenda|day|week|month|map|photo|grid)/?$")


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Why a URL may be one of very many, and whether it is one too many; ``name`` is the budget of those like it."""

    reason: str
    stop: bool = False
    name: str = ""


def suspicion_of(url: str) -> Suspicion | None:
    """Looks at a URL's shape alone.

    Reasons: ``repeating_segments`` of its path, a ``growing_query``, and a ``calendar``: the URL ends with a date, or
    has one in its query, and is otherwise like others.
    """
    if url.count("/") > _QUIET_SLASHES and (found := _segments(url)):
        return found
    if url.count("&") > _QUIET_AMPERSANDS and (found := _parameters(url)):
        return found
    return _calendar(url)


def _segments(url: str) -> Suspicion | None:
    segments = url.partition("?")[0].split("/")[3:]
    if len(set(segments)) + _SEGMENT_LOWER > len(segments) + 1:
        return None
    most = max(Counter(filter(None, segments)).values(), default=0)
    return Suspicion("repeating_segments", most >= _SEGMENT_STOP) if most >= _SEGMENT_LOWER else None


def _parameters(url: str) -> Suspicion | None:
    names = [part.partition("=")[0] for part in url.partition("?")[2].split("&")]
    same = max(Counter(names).values())
    if len(names) < _PARAMETERS_LOWER and same < _SAME_LOWER:
        return None
    return Suspicion("growing_query", len(names) >= _PARAMETERS_STOP or same >= _SAME_STOP)


def _calendar(url: str) -> Suspicion | None:
    place, question, query = url.partition("?")
    dated = "20" in url or "19" in url
    if not (dated and _DATE.search(url)) and not (question and _PART.search(query)):
        return None
    shape, ends = place, False
    for date in _DATE.finditer(_VIEW.sub("", place)):
        ends = date.end() >= len(_VIEW.sub("", place).rstrip("/"))
        if ends:
            shape = place[: date.start()] + "#" + place[date.end() :]
    asked = _PART.sub("#", _ASKED.sub("#", query))
    if not ends and asked == query:
        return None
    name = blake2b(f"{shape}{question}{asked}".encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return Suspicion("calendar", name="calendar:" + name)


def calendar_budget(suspicion: Suspicion, most: int) -> Budget:
    """What a crawl takes of one calendar: the first tenth as it comes, the rest later."""
    return Budget(suspicion.name, most, most // _SOFT_SHARE)
