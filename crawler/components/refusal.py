"""Ends a crawl that must not start, with one line and an exit code, from the only place where every Scrapy lets it."""

import logging
import weakref

from scrapy import Request, Spider
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from crawler.components.node import exit_code
from crawler.errors import TrawlnetError

log = logging.getLogger(__name__)

_refused: "weakref.WeakKeyDictionary[Crawler, TrawlnetError]" = weakref.WeakKeyDictionary()


def refuse(crawler: Crawler, error: TrawlnetError) -> None:
    """Notes why the crawler must not start; RefusingScheduler says so."""
    _refused[crawler] = error


class RefusingScheduler(BaseScheduler):
    """Stands in for the scheduler of a crawl that must not start.

    An exception in an add-on ends Scrapy 2.14 with exit code 0 and later ones with a traceback; a SystemExit in
    the Deferred of
    ``open`` ends all of them with its code.
    """

    def __init__(self, error: TrawlnetError) -> None:
        self._error = error

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "RefusingScheduler":
        """Builds it with the noted reason."""
        return cls(_refused[crawler])

    def open(self, spider: Spider) -> "Deferred[None]":
        """Logs the reason and ends the process."""
        return deferred_from_coro(self._refuse())

    async def _refuse(self) -> None:
        log.error("%s", self._error)
        raise SystemExit(exit_code(self._error))

    def has_pending_requests(self) -> bool:
        """Nothing."""
        return False

    def enqueue_request(self, request: Request) -> bool:
        """Takes nothing."""
        return False

    def next_request(self) -> Request | None:
        """Has nothing."""
        return None
