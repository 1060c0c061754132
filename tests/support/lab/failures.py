"""Odd pages that fail.

/status/<code>  that status, always; ``?retry_after=TEXT`` adds the header
/flaky/<k>      500, or ``?status=``, for the first k hits of the URL, then an item; ``?retry_after=`` too
"""

from tests.support.lab.message import BODILESS, Answer, answer_of
from tests.support.lab.visit import NoSuchPage, OddCase, Page, Visit, plain, whole

CASES = (
    *(OddCase(f"/status/{code}", code, code, holds_item=False) for code in (403, 404, 410, 500, 503)),
    OddCase("/status/429?retry_after=1", 429, 429, holds_item=False),
    OddCase("/flaky/2", 500),
    OddCase("/flaky/1?status=429&retry_after=1", 429),
    OddCase("/no-such-page", 404, 404, holds_item=False),
)


def status(visit: Visit) -> Answer:
    """``/status/<code>``."""
    code = visit.number(1)
    if not 200 <= code <= 999:
        raise NoSuchPage(visit.path)
    return _failure(visit, code)


def flaky(visit: Visit) -> Answer:
    """``/flaky/<k>``."""
    if visit.earlier >= visit.number(1):
        return visit.item_page()
    return _failure(visit, whole(visit.query.get("status", "500")))


def _failure(visit: Visit, code: int) -> Answer:
    retry_after = visit.query.get("retry_after")
    headers = [] if retry_after is None else [("Retry-After", retry_after)]
    if code in BODILESS:
        return answer_of(code, b"", headers=headers)
    return plain(code, f"This is a {code}.", *headers)


PAGES: dict[str, Page] = {"status": status, "flaky": flaky}
