"""The scheduler: Scrapy's side of the frontier. Its methods touch memory only; Redis is the dispatcher's."""

import logging
from functools import partial
from typing import TYPE_CHECKING

from scrapy import Request, Spider
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import Deferred

from crawler.components.node import Node
from crawler.dispatch import current_lease
from crawler.download.retries import CALLBACK
from crawler.errors import TrawlnetError, UnserialisableRequest
from crawler.frontier.held import Lease, NewTry
from crawler.frontier.identity import band_of, digest, instance_id
from crawler.frontier.outbox import SEEDED
from crawler.frontier.plan import Put, Reason
from crawler.frontier.traps import LOWERED, Suspicion, suspicion_of

if TYPE_CHECKING:
    from scrapy.statscollectors import StatsCollector

log = logging.getLogger(__name__)

DEFAULT_DUPEFILTER = "scrapy.dupefilters.RFPDupeFilter"


class RecentlySent:
    """The last URLs that this worker put: at least ``capacity``, at most twice that; asking Redis about them is
    needless.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def __contains__(self, key: bytes) -> bool:
        return key in self._young or key in self._old

    def add(self, key: bytes) -> None:
        """Remembers a key."""
        if self._capacity:
            self._young.add(key)
            if len(self._young) >= self._capacity:
                self._young, self._old = set(), self._young

    def remove(self, key: bytes) -> None:
        """Forgets a key."""
        self._young.discard(key)
        self._old.discard(key)

    def clear(self) -> None:
        """Forgets all: what Redis lost must be put again."""
        self._young.clear()
        self._old.clear()


class FrontierScheduler(BaseScheduler):
    """Hands out leased requests and takes links for the shared frontier."""

    def __init__(self, node: Node, stats: "StatsCollector", dupefilter: BaseDupeFilter | None) -> None:
        self._node = node
        self._worker = node.worker
        self._dispatcher = node.worker.dispatcher
        self._codec = node.codec
        self._fingerprint = node.fingerprint
        self._stats = stats
        self._dupefilter = dupefilter
        self._guards: bool = node.config["CRAWLER_TRAPS"]
        self._budgets = node.budgets
        self._recent = RecentlySent(node.config["CRAWLER_SEEN_LOCAL_ENTRIES"])
        self._dispatcher.reset = self._recent.clear
        node.is_repeat = self.is_repeat

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "FrontierScheduler":
        """Builds the scheduler of a crawler; a filter class of the user's own is asked beside the shared one."""
        dupefilter = None
        if crawler.settings["DUPEFILTER_CLASS"] != DEFAULT_DUPEFILTER:
            filter_class = load_object(crawler.settings["DUPEFILTER_CLASS"])
            dupefilter = build_from_crawler(filter_class, crawler)
        assert crawler.stats is not None
        return cls(Node.of(crawler), crawler.stats, dupefilter)

    def open(self, spider: Spider) -> "Deferred[None]":
        """Joins the crawl; where that is impossible the process ends with one line and the exit code for it."""
        return deferred_from_coro(self._open())

    async def _open(self) -> None:
        try:
            await self._worker.open()
        except TrawlnetError as error:
            self._node.refuse(error)
        if self._dupefilter is not None:
            self._dupefilter.open()

    def close(self, reason: str) -> "Deferred[None]":
        """Settles what ended, gives back the rest."""
        return deferred_from_coro(self._close(reason))

    async def _close(self, reason: str) -> None:
        if self._dupefilter is not None:
            self._dupefilter.close(reason)
        await self._node.close(reason)

    def has_pending_requests(self) -> bool:
        """Whether anything is left: of this worker, or, as far as it knows, of the fleet."""
        return self._node.has_work()

    def __len__(self) -> int:
        return self._dispatcher.queued

    def next_request(self) -> Request | None:
        """A leased request whose time has come, or None."""
        pair = self._dispatcher.next() if self._worker.alive else None
        if pair is None:
            current_lease.set(None)
            return None
        lease, request = pair
        assert isinstance(request, Request)
        current_lease.set(lease)
        self._stats.inc_value("scheduler/dequeued")
        return request

    def enqueue_request(self, request: Request) -> bool:
        """Takes a request: a new try or a redirect of the page at hand, or a link for the frontier."""
        lease = current_lease.get()
        if lease is not None and lease.ended:
            lease = None
        key = digest(self._fingerprint(request))
        if lease is not None and lease.requests:
            parent = lease.requests[-1]
            assert isinstance(parent, Request)
            if self._is_new_try(request, parent, key):
                return self._try_again(request, key, lease)
            if request.meta.get("redirect_times", 0) == parent.meta.get("redirect_times", 0) + 1:
                return self._follow(request, parent, key, lease)
        return self._put(request, key, lease)

    def _is_new_try(self, request: Request, parent: Request, key: bytes) -> bool:
        tries = request.meta.get("retry_times", 0)
        return tries == parent.meta.get("retry_times", 0) + 1 and key == digest(self._fingerprint(parent))

    def _try_again(self, request: Request, key: bytes, lease: Lease) -> bool:
        # A redirected page is tried again from where it stands; storage knows it under the page that was claimed.
        identity = b"" if lease.identity == key else lease.identity
        try:
            body = self._codec.encode(request, identity)
        except UnserialisableRequest as error:
            return self._unserialisable(request, error, lease)
        cause, detail = lease.trouble if lease.trouble[0] else (CALLBACK, "the spider asked for it")
        tries = request.meta["retry_times"]
        reason = Reason(request.url, tries, cause, detail)
        delay_ms = self._node.retries.wait_ms(cause, tries)
        lease.retry = NewTry(self._host(request), band_of(request.priority), delay_ms, body, reason)
        self._stats.inc_value(f"frontier/retries/{cause}")
        self._stats.inc_value("scheduler/enqueued")
        return True

    def _follow(self, request: Request, parent: Request, key: bytes, lease: Lease) -> bool:
        """Goes on with a redirect here and now: another worker would lack the cookies that came with it."""
        if request.dont_filter or key == digest(self._fingerprint(parent)):
            self._dispatcher.offer(Put(lease.host, 0, key, instance_id(lease.identity, key, 0), b""), lease)
            self._dispatcher.offer_again(lease, request)
            return True
        lease.testing += 1

        def answered(new: bool) -> None:
            lease.testing -= 1
            if new:
                self._dispatcher.offer_again(lease, request)
            else:
                self._stats.inc_value("dupefilter/filtered")

        self._dispatcher.offer(Put(lease.host, 0, key, instance_id(lease.identity, key, 0), b""), lease, answered)
        self._dispatcher.wanted.set()
        return True

    def is_repeat(self, request: Request) -> bool:
        """Whether this worker itself put the request's URL before, so that it need not come as far as the scheduler."""
        if request.dont_filter or digest(self._fingerprint(request)) not in self._recent:
            return False
        lease = current_lease.get()
        self._repeated(None if lease is None or lease.ended else lease)
        return True

    def _repeated(self, lease: Lease | None) -> None:
        self._stats.inc_value("dupefilter/filtered")
        self._tally("duplicate", lease)

    def _tally(self, name: str, lease: Lease | None) -> None:
        """Counts for the crawl a request that is not put; with its page, or as one more seed."""
        if lease is not None:
            lease.tally(name)
        else:
            self._dispatcher.tally(name)
            self._dispatcher.tally(SEEDED)

    def _put(self, request: Request, key: bytes, lease: Lease | None) -> bool:
        instance, seen = b"", key
        if request.dont_filter:
            instance, seen = self._node.instance_of(request, key, lease)
        elif self._is_known(request, key):
            self._repeated(lease)
            return False
        suspicion = suspicion_of(request.url) if self._guards and lease is not None else None
        if suspicion is not None and lease is not None and self._trapped(suspicion, lease):
            return False
        try:
            body = self._codec.encode(request, instance)
        except UnserialisableRequest as error:
            if self._node.config["CRAWLER_FRONTIER_PINNED"] and lease is not None:
                self._dispatcher.offer_again(lease, request)
                return True
            return self._unserialisable(request, error, lease)
        host, refused = self._host(request), None
        budgets = self._budgets.of(request.url, host, suspicion)
        if budgets:
            refused = partial(self._over_budget, key)
        lower = LOWERED if suspicion is not None and not suspicion.name else 0
        bands = band_of(request.priority - lower), band_of(request.priority - LOWERED) if budgets else 0
        self._dispatcher.offer(Put(host, bands[0], seen, instance, body, budgets, bands[1]), lease, refused=refused)
        if not instance:
            self._recent.add(key)
        self._stats.inc_value("scheduler/enqueued")
        return True

    def _trapped(self, suspicion: Suspicion, lease: Lease) -> bool:
        """Counts a suspicious link; whether it is one too many."""
        self._stats.inc_value(f"frontier/suspicious/{suspicion.reason}")
        if suspicion.stop:
            self._stats.inc_value(f"frontier/trapped/{suspicion.reason}")
            lease.tally("trapped")
        return suspicion.stop

    def _over_budget(self, key: bytes) -> None:
        # It is not seen, and may be put again when there is a larger budget.
        self._recent.remove(key)
        self._stats.inc_value("frontier/over_budget")

    def _is_known(self, request: Request, key: bytes) -> bool:
        if key in self._recent:
            return True
        return self._dupefilter is not None and bool(self._dupefilter.request_seen(request))

    def _host(self, request: Request) -> str:
        return self._node.queues.of(request)

    def _unserialisable(self, request: Request, error: UnserialisableRequest, lease: Lease | None) -> bool:
        log.error("%s", error)
        self._stats.inc_value("scheduler/unserializable")
        letter = {"kind": "link", "class": "unserialisable", "reason": str(error), "url": request.url}
        self._dispatcher.bury(letter)
        if lease is not None:
            page = lease.requests[0]
            assert isinstance(page, Request)
            lease.fail("unserialisable", f"its link {request.url} cannot be queued: {error}", url=page.url)
        return False
