"""The downloader: sends a request when its host's turn has come for the whole fleet, whoever asked for it.

Checked on Scrapy 2.14.2 and 2.19.0: ``Downloader._enqueue_request`` (the last step before a request waits for a place
of its slot), ``_download`` (it has one, and is sent), ``_get_slot``, ``_process_queue``, ``needs_backout``, ``active``
and ``Slot.transferring``.
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
from crawler.throttle.limiter import NO_TURN, Turn


class PacedDownloader(Downloader):
    """Scrapy's downloader with the fleet's pace in place of each process's own delay.

    What waits for its turn takes no place of CONCURRENT_REQUESTS.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._node = Node.of(crawler)
        self._waiting = 0
        self._turns: dict[Request, Turn] = {}

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
        host = _host_of(request)
        if not self._node.rules.of(host).rate:
            return await super()._enqueue_request(request)
        turn = self._turn_it_came_with(request, host)
        self._turns[request] = turn if monotonic() <= turn.ends else await self._wait(host, turn)
        try:
            return await super()._enqueue_request(request)
        finally:
            self._turns.pop(request, None)

    async def _download(self, slot: Slot, request: Request) -> Response:
        turn = self._turns.get(request)
        # The slot was full, or the loop busy, for longer than the turn lasted.
        if turn is not None and monotonic() > turn.ends:
            slot.transferring.add(request)
            try:
                await self._wait(_host_of(request), turn)
            except BaseException:
                slot.transferring.discard(request)
                self._process_queue(slot)
                raise
        return await super()._download(slot, request)

    async def _wait(self, host: str, missed: Turn) -> Turn:
        self._waiting += 1
        try:
            return await self._node.worker.limiter.turn(host, missed)
        finally:
            self._waiting -= 1

    def _turn_it_came_with(self, request: Request, host: str) -> Turn:
        """The turn under which the request was claimed, which is used up with this."""
        lease = lease_of(request)
        if lease is None or lease.host != host:
            return NO_TURN
        turn = Turn(lease.turn_at, lease.turn_ends, lease.turn_mark)
        lease.turn_ends = lease.turn_mark = 0
        return turn


def _host_of(request: Request) -> str:
    return queue_of(urlparse_cached(request).hostname, request.meta.get("download_slot"))
