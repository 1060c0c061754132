"""From a request to its answer: the page, odd or ordinary, and the log entry."""

import time

from tests.support.lab.control import PREFIX, control_answer
from tests.support.lab.hits import HitLog
from tests.support.lab.message import Answer, Request, answer_of
from tests.support.lab.moods import Moods
from tests.support.lab.odd import odd_answer
from tests.support.lab.site import PAGE, Site

CACHE_BYTES = 128 * 1024 * 1024
"""Pages beyond this are written anew each time, at about a quarter of the speed."""


class Responder:
    """Answers every request of every host."""

    def __init__(self, site: Site, log: HitLog) -> None:
        self._site = site
        self._log = log
        self._moods = Moods(time.monotonic)
        self._pages: dict[tuple[int, str], Answer] = {}
        self._cache_bytes_left = CACHE_BYTES
        self._addresses = [site.spec.address(host) for host in range(site.spec.hosts)]

    def answer(self, request: Request) -> Answer:
        """The answer to a request; unless it is for the lab itself, it is in the log from now on."""
        if request.target.startswith(PREFIX):
            return control_answer(self._site, self._log, self._moods, request)
        address = self._addresses[request.host]
        answer = (
            self._moods.refusal(request.host) or self._pages.get((request.host, request.target)) or self._page(request)
        )
        if answer is None:
            answer = odd_answer(self._site, request, self._log.count(address, request.target))
        self._log.add(address, request.method, request.target, answer.status)
        return answer

    def _page(self, request: Request) -> Answer | None:
        page = self._number(request)
        if page is None:
            return None
        answer = answer_of(200, self._site.body(page))
        answer.delay_seconds = self._site.delay_seconds(page)
        size = len(answer.body)
        if size <= self._cache_bytes_left:
            self._cache_bytes_left -= size
            self._pages[request.host, request.target] = answer
        return answer

    def _number(self, request: Request) -> int | None:
        path = request.target.partition("?")[0]
        digits = path.removeprefix(PAGE)
        if digits == path or not (digits.isascii() and digits.isdigit()):
            return None
        page = int(digits)
        exists = page < self._site.spec.pages and self._site.host_of(page) == request.host
        return page if exists and self._site.path(page) == path else None
