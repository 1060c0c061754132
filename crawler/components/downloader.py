"""The downloader: sends a request when its host's turn has come for the whole fleet, whoever asked for it.

Checked on Scrapy 2.14.2 and 2.19.0: ``Downloader._enqueue_request`` (the last step before a request waits for a place
of its slot), ``_wait_for_download`` and ``_download`` (it has one, and is sent), ``_get_slot``, ``_process_queue``,
``get_slot_key``, ``needs_backout``, ``active``, ``Slot.transferring``, ``Slot.concurrency``, and
``DownloadHandlers.download_request_async``.
"""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, cast

from scrapy import Request
from scrapy.core.downloader import Downloader, Slot
from scrapy.core.downloader.handlers import DownloadHandlers
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.misc import load_object
from twisted.internet.defer import Deferred

from crawler.clock import monotonic
from crawler.components.causes import ERROR_CODES, PATIENCE_CODES, cause_of_exception, cause_of_status
from crawler.components.node import Node
from crawler.components.outcomes import HostBlocked, RefusedTarget, lease_of
from crawler.components.queues import OwnSlot
from crawler.frontier.held import Lease
from crawler.throttle.limiter import NO_TURN, Turn
from crawler.throttle.refusals import retry_after_seconds

SHORT_BLOCK_SECONDS = 5.0
"""For less, a request that is about to be sent waits where it is."""

BROKEN_CODES = range(500, 600)
FREE_TURN = Turn(0.0, float("inf"))


class ListeningHandlers(DownloadHandlers):
    """Tells of refusals before the place of the request that was refused is given to the next one."""

    refused: Callable[[Request, Response], None]

    async def download_request_async(self, request: Request) -> Response:
        """Downloads."""
        response = await super().download_request_async(request)
        if response.status in PATIENCE_CODES:
            self.refused(request, response)
        return response


class PacedDownloader(Downloader):
    """Scrapy's downloader with the fleet's pace in place of each process's own delay.

    What waits for its turn takes no place of CONCURRENT_REQUESTS.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._node = Node.of(crawler)
        # Built by Scrapy's downloader already; a second set would open its connections twice.
        self.handlers.__class__ = ListeningHandlers
        cast(ListeningHandlers, self.handlers).refused = self._refused
        self._unreachable = tuple(load_object(name) for name in crawler.settings.getlist("RETRY_EXCEPTIONS"))
        self._permits = self._node.worker.dispatcher.permits
        self._permits.changed = self._permitted
        self._waiting = 0
        # By request: tasks of downloads run in the context of whichever request left its place to them.
        self._sending: dict[Request, tuple[Turn, Lease | None]] = {}

    def needs_backout(self) -> bool:
        """Whether as many requests are under way as may be, those that wait for their turn not counted."""
        return 0 < self.total_concurrency <= len(self.active) - self._waiting

    def get_slot_key(self, request: Request) -> str:
        """The host as the fleet has it: what shares a pace shares a slot."""
        return OwnSlot(self._node.queues.of(request))

    def _get_slot(self, request: Request, *arguments: Any, **named: Any) -> tuple[str, Slot]:
        known = len(self.slots)
        key, slot = super()._get_slot(request, *arguments, **named)
        if len(self.slots) != known:
            slot.delay = 0.0
            self._permitted(key)
        return key, slot

    def _permitted(self, host: str) -> None:
        """Lets as many requests of a host be under way as the fleet permits."""
        slot = self.slots.get(host)
        if slot is None:
            return
        permits = self._permits.of(host)
        if permits is None:
            per_slot = self.per_slot_settings.get(host, {})
            permits = per_slot.get("concurrency", self.domain_concurrency)
        slot.concurrency = permits
        self._process_queue(slot)

    async def _enqueue_request(self, request: Request) -> Response:
        lease, worker = lease_of(request), self._node.worker
        host = await self._node.queues.find(request, worker.hosts.address)
        if worker.blocks.is_refused(host):
            raise RefusedTarget(f"an operator refuses {host}; lift it with: trawlnet host resume")
        rule, turn = self._node.rules.of(host), _turn_of(lease, host)
        if (turn.ends or rule.paced or worker.blocks.is_slowed(host)) and monotonic() > turn.ends:
            turn = await self._wait(host, turn)
        aside = rule.concurrency and (lease is None or lease.host != host)
        if aside:
            self._permits.add(host)
            worker.dispatcher.wanted.set()
        self._sending[request] = (turn if turn.ends else FREE_TURN), lease
        try:
            return await super()._enqueue_request(request)
        finally:
            self._sending.pop(request, None)
            if aside:
                self._permits.remove(host)

    def _wait_for_download(
        self, slot: Slot, request: Request, queue_dfd: "Deferred[Response]"
    ) -> Coroutine[Any, Any, None]:
        # Here and not when the task of the download first runs: until then Scrapy takes the place for free, and would
        # give it to all that come in the same turn of the loop.
        slot.transferring.add(request)
        return super()._wait_for_download(slot, request, queue_dfd)

    async def _download(self, slot: Slot, request: Request) -> Response:
        host, worker = self._node.queues.of(request), self._node.worker
        # Without an entry its waiting was cancelled, and nobody hears the answer; its place must be left all the same.
        turn, lease = self._sending.get(request, (FREE_TURN, None))
        blocked = worker.blocks.until(host) - monotonic()
        # The slot was full, or the loop busy, for longer than the turn lasted; or the host asked for patience since.
        if blocked > 0 or monotonic() > turn.ends:
            try:
                if blocked > SHORT_BLOCK_SECONDS and lease is not None and lease.requests[0] is request:
                    # What came by a redirect stays: another worker would lack the cookies.
                    self._node.wait_for_host(lease)
                    raise HostBlocked(f"{host} asked for patience; the page waits in the frontier")
                await self._wait(host, turn)
            except BaseException:
                slot.transferring.discard(request)
                self._process_queue(slot)
                raise
        return await self._heard(host, request, lease, super()._download(slot, request))

    async def _heard(
        self, host: str, request: Request, lease: Lease | None, download: Coroutine[Any, Any, Response]
    ) -> Response:
        """Downloads, and tells the fleet what the answer says of the host."""
        worker, sent_at = self._node.worker, monotonic()
        hosts = worker.hosts
        hosts.refusals.sent(host)
        try:
            response = await download
        except self._unreachable as error:
            _note(lease, request, cause_of_exception(error), type(error).__name__)
            # Through a proxy it may be the proxy that does not work.
            if not request.meta.get("proxy"):
                await hosts.failed(host, sent_at)
            raise
        _note(lease, request, cause_of_status(response.status), f"status {response.status}")
        if response.status in PATIENCE_CODES:
            await hosts.refusals.refused(host, asked_seconds(response), sent_at)
        elif response.status in BROKEN_CODES:
            await hosts.failed(host, sent_at)
        elif response.status not in ERROR_CODES:
            tried = worker.blocks.is_slowed(host) if lease is None else lease.probes
            await hosts.worked(host, sent_at, tried=tried)
        if not request.meta.get("autothrottle_dont_adjust_delay"):
            good = response.status == 200  # noqa: PLR2004 - as AutoThrottle has it
            hosts.cost(host, request.meta.get("download_latency", 0.0), len(response.body), good=good)
        return response

    def _refused(self, request: Request, response: Response) -> None:
        self._node.worker.hosts.refusals.foresee(self._node.queues.of(request), asked_seconds(response))

    async def _wait(self, host: str, missed: Turn) -> Turn:
        self._waiting += 1
        try:
            return await self._node.worker.limiter.turn(host, missed)
        finally:
            self._waiting -= 1


def _note(lease: Lease | None, request: Request, cause: str, detail: str) -> None:
    if lease is not None and lease.requests[-1] is request:
        lease.trouble = (cause, detail if cause else "")


def _turn_of(lease: Lease | None, host: str) -> Turn:
    """The turn under which a page was claimed, which is used up with this."""
    if lease is None or lease.host != host:
        return NO_TURN
    turn = Turn(lease.turn_at, lease.turn_ends, lease.turn_mark)
    lease.turn_ends = lease.turn_mark = 0
    return turn


def asked_seconds(response: Response) -> float | None:
    """The wait that a response's Retry-After asks for, if any."""
    header = (response.headers.get("Retry-After") or b"").decode("latin-1")
    return retry_after_seconds(header, datetime.now(UTC))
