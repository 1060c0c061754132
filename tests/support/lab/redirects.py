"""Odd pages that send the client elsewhere, or to themselves.

/redirect/<code>/<n>  n hops, each to the next host, then an item
/redirect/relative    a Location without host
/redirect/raw         a Location of raw UTF-8
/loop                 to itself, for ever
/cookie               to itself until its cookie comes back, then an item
"""

from tests.support.lab.charsets import UNICODE_LINK
from tests.support.lab.message import Answer, answer_of
from tests.support.lab.visit import NoSuchPage, OddCase, Page, Visit

CODES = (301, 302, 303, 307, 308)
COOKIE = ("seen", "yes")

CASES = (
    OddCase("/redirect/301/1", 301, ends_at="/redirect/301/0", hosts_further=1),
    OddCase("/redirect/302/3", 302, ends_at="/redirect/302/0", hosts_further=3),
    OddCase("/redirect/308/2", 308, ends_at="/redirect/308/0", hosts_further=2),
    OddCase("/redirect/relative", 302, ends_at="/redirect/landed"),
    OddCase("/redirect/raw", 302, ends_at=UNICODE_LINK),
    OddCase("/loop", 302, 302, holds_item=False),
    OddCase("/cookie", 302),
)


def redirect(visit: Visit) -> Answer:
    """``/redirect/…``."""
    kind = visit.part(1)
    if kind == "landed":
        return visit.item_page()
    if kind == "relative":
        return _to("landed", 302)
    if kind == "raw":
        return _to(UNICODE_LINK, 302)
    code, hops = visit.number(1), visit.number(2)
    if code not in CODES:
        raise NoSuchPage(visit.path)
    return _to(visit.on(1, f"/redirect/{code}/{hops - 1}"), code) if hops else visit.item_page()


def loop(visit: Visit) -> Answer:
    """``/loop``."""
    return _to(visit.on(0, visit.request.target), 302)


def cookie(visit: Visit) -> Answer:
    """``/cookie``."""
    name, value = COOKIE
    if visit.cookies().get(name) == value:
        return visit.item_page()
    return _to(visit.on(0, visit.request.target), 302, ("Set-Cookie", f"{name}={value}; Path=/"))


def _to(location: str, code: int, *headers: tuple[str, str]) -> Answer:
    return answer_of(code, b"", headers=[("Location", location), *headers])


PAGES: dict[str, Page] = {"redirect": redirect, "loop": loop, "cookie": cookie}
