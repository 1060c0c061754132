"""The downloader: sends a request when its host's turn has come for the whole fleet, whoever asked for it.

Checked on Scrapy 2.14.2 and 2.19.0: ``Downloader._enqueue_request`` (the last step before a request waits for a place
of its slot), ``Downloader._get_slot``, ``needs_backout`` and ``active``.
"""

from typing import Any

from scrapy import Request
from scrapy.core.downloader import Downloader, Slot
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.httpobj import urlparse_cached

from crawler.clock import monotonic
from crawler.components.node import Node
from crawler.components.outcomes import lease_of
from crawler.frontier.identity import queue_of


class PacedDownloader(Downloader):
    """Scrapy's downloader with the fleet's pace in place of each process's own delay.

    What waits for its turn takes no place of CONCURRENT_REQUESTS.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._node = Node.of(crawler)
        self._waiting = 0

    def needs_backout(self) -> bool:
        """Whether as many requests are under way as may be, those that wait for their turn not counted."""
        return 0 < self.total_concurrency <= len(self.active) - self._waiting

    def _get_slot(self, *arguments: Any, **named: Any) -> tuple[str, Slot]:
        known = len(self.slots)
        key, slot = super()._get_slot(*arguments, **named)
        if len(self.slots) != known:
            slot.delay = 0.0
        return key, slot

    async def _enqueue_request(self, request: Request) -> Response:
        host = queue_of(urlparse_cached(request).hostname, request.meta.get("download_slot"))
        if self._node.rules.of(host).rate and not self._has_turn(request, host):
            self._waiting += 1
            try:
                await self._node.worker.limiter.turn(host)
            finally:
                self._waiting -= 1
        return await super()._enqueue_request(request)

    def _has_turn(self, request: Request, host: str) -> bool:
        """Whether the request came with a turn of the host that is not over; it is used up."""
        lease = lease_of(request)
        if lease is None or lease.host != host:
            return False
        ends, lease.turn_ends = lease.turn_ends, 0.0
        return monotonic() <= ends
