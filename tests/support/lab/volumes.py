"""Odd pages of which there are many, or which are large, slow or endless.

/large/<bytes>   an item and text, exactly so many bytes
/slow/<seconds>  an item, after that time
/links/<n>       links to /leaf/0 … /leaf/<n-1>
/leaf/<i>        an item and no links
/flat/<i>        the same, a set of its own for seeds
/private/<i>     the same, disallowed by robots.txt
/trap/<n>        links to /trap/<n+1> and the calendar
/calendar/<year>/<month>  links to the months beside it
"""

from dataclasses import replace

from tests.support.lab.message import Answer
from tests.support.lab.visit import NoSuchPage, OddCase, Page, Visit, seconds

LARGE_LIMIT_BYTES = 256 * 1024 * 1024
MONTHS = 12
CALENDAR_START = (2026, 1)

CASES = (
    OddCase("/large/200000"),
    OddCase("/slow/0.2"),
    OddCase("/links/5", holds_item=False),
    *(OddCase(f"/leaf/{i}") for i in range(5)),
    OddCase("/private/1", robots_allowed=False),
)


def large(visit: Visit) -> Answer:
    """``/large/<bytes>``; the item alone takes some hundred."""
    size = visit.number(1)
    if size > LARGE_LIMIT_BYTES:
        raise NoSuchPage(visit.path)
    return visit.item_page(size=size)


def slow(visit: Visit) -> Answer:
    """``/slow/<seconds>``."""
    return replace(visit.item_page(), delay_seconds=seconds(visit.part(1)))


def links(visit: Visit) -> Answer:
    """``/links/<n>``."""
    return visit.link_page("Links", (visit.on(0, f"/leaf/{i}") for i in range(visit.number(1))))


def leaf(visit: Visit) -> Answer:
    """``/leaf/<i>``, ``/flat/<i>``, ``/private/<i>``."""
    visit.number(1)
    return visit.item_page()


def trap(visit: Visit) -> Answer:
    """``/trap/<n>``."""
    year, month = CALENDAR_START
    further = visit.on(0, f"/trap/{visit.number(1) + 1}")
    return visit.link_page("Further", [further, visit.on(0, f"/calendar/{year}/{month:02d}")])


def calendar(visit: Visit) -> Answer:
    """``/calendar/<year>/<month>``."""
    year, month = visit.number(1), visit.number(2)
    if not 1 <= month <= MONTHS:
        raise NoSuchPage(visit.path)
    count = year * MONTHS + month - 1
    beside = [divmod(each, MONTHS) for each in (count - 1, count + 1)]
    links_beside = [visit.on(0, f"/calendar/{year}/{month + 1:02d}") for year, month in beside]
    return visit.link_page(f"{year}-{month:02d}", links_beside)


PAGES: dict[str, Page] = {
    "large": large,
    "slow": slow,
    "links": links,
    "leaf": leaf,
    "flat": leaf,
    "private": leaf,
    "trap": trap,
    "calendar": calendar,
}
