"""What the components of one crawler share: the worker, the codec, and what ends the crawl."""

import asyncio
import logging
import secrets
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings

from crawler.assembly import Worker, WorkerSpec
from crawler.components.budgets import budgets_of
from crawler.components.codec import RequestCodec
from crawler.components.pacing import latency_target, rules_of
from crawler.components.queues import Queues
from crawler.components.starts import SeedMaker
from crawler.components.view import EngineView
from crawler.config import Config, read_config
from crawler.download.retries import STORAGE, RetryPolicy
from crawler.errors import (
    ClashError,
    ConfigError,
    HostLost,
    HostRefused,
    RedisUnreachable,
    TrawlnetError,
    Undeliverable,
    UnserialisableRequest,
)
from crawler.frontier.held import Decoded, Lease, NewTry
from crawler.frontier.identity import band_of, digest, instance_id
from crawler.frontier.plan import Reason
from crawler.frontier.store import Claimed
from crawler.items.key import page_key
from crawler.redisdb.connect import target_from
from crawler.storage.backends import open_storage
from crawler.storage.writer import BatchWriter, Sizes

log = logging.getLogger(__name__)

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
PUT_OFF_DELAY_MS = 5_000

REDIS_SETTINGS = ("REDIS_URL", "REDIS_HOST", "REDIS_PORT", "REDIS_DB", "REDIS_PARAMS", "REDIS_ENCODING")

_nodes: "weakref.WeakKeyDictionary[Crawler, Node]" = weakref.WeakKeyDictionary()


def exit_code(error: BaseException) -> int:
    """The documented exit code of an error: 2 usage, 3 Redis unreachable, else 1."""
    if isinstance(error, RedisUnreachable):
        return EXIT_UNREACHABLE
    return EXIT_USAGE if isinstance(error, (ConfigError, ClashError)) else EXIT_ERROR


def config_of(crawler: Crawler) -> Config:
    """The crawler's CRAWLER_ settings, checked."""
    return read_config({name: crawler.settings[name] for name in crawler.settings if name.startswith("CRAWLER_")})


def fingerprinter_path(settings: BaseSettings) -> str:
    """Full name of the class that computes fingerprints."""
    fingerprinter = settings["REQUEST_FINGERPRINTER_CLASS"]
    if isinstance(fingerprinter, str):
        return fingerprinter
    return f"{fingerprinter.__module__}.{fingerprinter.__qualname__}"


def foreign_queue_of(settings: BaseSettings, spider_name: str) -> str:
    """Name of the key in which scrapy-redis would queue a spider's requests."""
    return str((settings.get("SCHEDULER_QUEUE_KEY") or "%(spider)s:requests") % {"spider": spider_name})


class Node:
    """One crawler as a member of the fleet; every component of the crawler gets the same one."""

    def __init__(self, crawler: Crawler) -> None:
        spider = crawler.spider
        assert spider is not None
        assert crawler.request_fingerprinter is not None
        self.crawler = crawler
        self.spider: Spider = spider
        self.config = config_of(crawler)
        self.rules = rules_of(crawler, self.config)
        self.budgets = budgets_of(self.rules, self.config)
        self.retries = RetryPolicy.read(self.config["CRAWLER_RETRY"])
        self.codec = RequestCodec(spider)
        self.queues = Queues(self.config["CRAWLER_THROTTLE_SCOPE"])
        self.view = EngineView(crawler)
        self.fingerprint: Callable[[Request], bytes] = crawler.request_fingerprinter.fingerprint
        self.seeds = SeedMaker(crawler, spider, self.codec, self.fingerprint, self.config, self.budgets)
        self.waits_for_seeds = hasattr(spider, "redis_key") and hasattr(spider, "max_idle_time")
        self.worker = Worker(self.config, self._spec(), self)
        self.worker.on_failure = self._stop_on
        self.worker.blocks.blocked = self._leave_to_frontier
        self.writer = self._writer()
        self.items = 0
        self.worker.items = lambda: self.items
        self.places: dict[int, tuple[tuple[Lease | None, int], Any]] = {}
        self.starting: set[int] = set()
        self._giving_back: set[asyncio.Task[None]] = set()
        self.is_repeat: Callable[[Request], bool] = lambda request: False
        self._start_items = 0
        self._start_occurrences: dict[bytes, int] = {}

    @classmethod
    def of(cls, crawler: Crawler) -> "Node":
        """The node of a crawler; made when the first component asks."""
        node = _nodes.get(crawler)
        if node is None:
            node = _nodes[crawler] = cls(crawler)
        return node

    def _spec(self) -> WorkerSpec:
        settings, spider = self.crawler.settings, self.spider
        identity = {
            "project": str(settings["BOT_NAME"]),
            "spider": f"{type(spider).__module__}.{type(spider).__qualname__}",
            "fingerprinter": fingerprinter_path(settings),
        }
        concurrency = settings.getint("CONCURRENT_REQUESTS")
        return WorkerSpec(
            target=target_from({name: settings.get(name) for name in REDIS_SETTINGS}),
            crawl=self.config["CRAWLER_CRAWL"] or spider.name,
            identity=identity,
            start_key=self.seeds.start_key,
            foreign_queue=foreign_queue_of(settings, spider.name),
            concurrency=concurrency,
            per_host=settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") or concurrency,
            seed_batch=int(getattr(spider, "redis_batch_size", None) or max(16, concurrency)),
            waits_for_seeds=self.waits_for_seeds,
            make_seed=self.seeds.make,
            rules=self.rules,
            latency_target=latency_target(settings),
            longest_delay_seconds=settings.getfloat("AUTOTHROTTLE_MAX_DELAY"),
        )

    def _writer(self) -> BatchWriter | None:
        config = self.config
        if not config["CRAWLER_STORAGE"]:
            return None
        self.worker.dispatcher.through = self._page_through
        storage = open_storage(config["CRAWLER_STORAGE"], writer=self.worker.name)
        return BatchWriter(
            storage,
            Sizes(
                config["CRAWLER_STORAGE_BATCH_RECORDS"],
                config["CRAWLER_STORAGE_BATCH_SECONDS"],
                config["CRAWLER_STORAGE_RETRY_SECONDS"],
            ),
        )

    def _page_through(self, lease: Lease) -> None:
        """Rows that an earlier fetch of the page left and this one did not yield again go once this fetch is
        complete.
        """
        failed = lease.fault is not None or lease.retry is not None or lease.returned
        if self.writer is None or not lease.deliveries or failed:
            return
        lease.records += 1

        def committed(done: "asyncio.Future[None]") -> None:
            lease.records -= 1
            if done.cancelled() or done.exception() is not None:
                self.try_later(lease, "the page's older rows could not be removed")

        self.writer.commit(page_key(self.spider.name, lease.page), int(lease.id)).add_done_callback(committed)

    def try_later(self, lease: Lease | None, reason: str) -> None:
        """Ends a lease as a new try of the same entry, because storage could not take its items."""
        if lease is None:
            log.error("items of start() were not stored: %s", reason)
            return
        lease.tally("storage_failed")
        request = lease.requests[0]
        assert isinstance(request, Request)
        why = Reason(request.url, lease.deliveries + 1, STORAGE, reason)
        delay_ms = self.retries.wait_ms(STORAGE, why.attempt)
        lease.retry = NewTry(self.queues.of(request), band_of(request.priority), delay_ms, lease.body, why)

    def wait_for_host(self, lease: Lease) -> None:
        """Gives a page back to its host's queue once the engine has done with it; the spider hears nothing of it."""
        lease.returned = True
        self.view.mute(lease.requests)

    def wait_in_frontier(self, lease: Lease, request: Request) -> None:
        """The same; where redirects have brought the page to another request, that one goes to its host's queue."""
        if lease.requests[0] is request:
            self.wait_for_host(lease)
            return
        key = digest(self.fingerprint(request))
        host, delay_ms = self.queues.of(request), 0
        try:
            body = self.codec.encode(request, b"" if lease.identity == key else lease.identity)
        except UnserialisableRequest:
            host, delay_ms, body = lease.host, PUT_OFF_DELAY_MS, lease.body
        why = Reason(request.url, cause="host", detail=f"redirected to {host}, not to be asked now")
        lease.retry = NewTry(host, band_of(request.priority), delay_ms, body, why)
        self.view.mute(lease.requests)

    # dispatch.Engine

    def decode(self, claimed: Claimed) -> Decoded:
        """Makes the request of an entry, and its page's name in storage."""
        self.worker.blocks.claimed()
        request, instance = self.codec.decode(claimed.body)
        if claimed.turn is not None and (claimed.turn.refused or claimed.turn.lost):
            raise self._no_use(claimed, claimed.turn.lost, request.url)
        identity = instance or digest(self.fingerprint(request))
        return Decoded(request, identity.hex(), identity)

    def _no_use(self, claimed: Claimed, lost: bool, url: str) -> Undeliverable:
        error: Undeliverable = HostRefused(f"an operator refuses {claimed.host}; lift it with: trawlnet host resume")
        if lost:
            longest = self.config["CRAWLER_THROTTLE_CIRCUIT_MAX_SECONDS"]
            error = HostLost(f"{claimed.host} failed for over {longest:g} s; trawlnet dead replay tries it again")
        error.url = url
        return error

    def has(self, request: Hashable) -> bool:
        """Whether Scrapy still works on the request."""
        return self.view.has(request)

    def is_downloading(self, request: Hashable) -> bool:
        """Whether the request is in the downloader."""
        return self.view.is_downloading(request)

    def give_up(self, request: Hashable) -> None:
        """Notes a request whose lease is over though its page is not."""
        self.view.give_up(request)

    def wake(self) -> None:
        """Wakes the engine."""
        self.view.wake()

    # For the components.

    def instance_of(self, request: Request, key: bytes, lease: Lease | None) -> tuple[bytes, bytes]:
        """Instance id of a request with ``dont_filter``, and the key under which the filter records it, if any.

        Start requests are recorded, so that a link to them is no new page; requests of callbacks are not, as in Scrapy.
        """
        if id(request) in self.starting:
            self.starting.discard(id(request))
            count = self._start_occurrences[key] = self._start_occurrences.get(key, 0) + 1
            return instance_id(b"start", key, count), key
        if lease is not None:
            return instance_id(lease.identity, key, lease.occurrence(key)), b""
        return instance_id(secrets.token_bytes(8), key, 1), b""

    def next_start_position(self) -> int:
        """Position of an item that start() yields, counted from 0."""
        self._start_items += 1
        return self._start_items - 1

    def has_work(self) -> bool:
        """Whether this worker or, as far as it knows, the fleet has work left."""
        worker = self.worker
        if worker.dispatcher.busy:
            return True
        if self.waits_for_seeds:
            fleet = worker.dispatcher.fleet
            return not fleet.quiet or bool(worker.feed.unread or worker.feed.outstanding)
        return not worker.ended

    def refuse(self, error: TrawlnetError) -> None:
        """Ends the process for a reason that the user can mend: one line, and the exit code for it."""
        log.error("%s", error)
        raise SystemExit(exit_code(error))

    def _stop_on(self, error: BaseException) -> None:
        self.exit_with(EXIT_ERROR)
        self.close_spider("frontier_error")

    def close_spider(self, reason: str) -> None:
        """Makes the engine close its spider, idle or not."""
        engine = self.crawler.engine
        if engine is not None and not self.view.closing:
            self._closing = asyncio.get_running_loop().create_task(engine.close_spider_async(reason=reason))

    def _leave_to_frontier(self, host: str) -> None:
        """Gives back what was not handed over yet of a host that is blocked."""
        ids = self.worker.dispatcher.release_unstarted(host)
        if ids:
            task = asyncio.get_running_loop().create_task(self.worker.dispatcher.give_back(ids))
            self._giving_back.add(task)
            task.add_done_callback(self._given_back)

    def _given_back(self, task: "asyncio.Task[None]") -> None:
        self._giving_back.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stop_on(error)

    def exit_with(self, code: int) -> None:
        """Makes the process end with the code once the engine has stopped."""
        self._exit_code = code

    _exit_code = 0

    @property
    def exit_code(self) -> int:
        """The code that the process is to end with; 0 for a normal end."""
        return self._exit_code

    async def close(self, reason: str) -> None:
        """Leaves the crawl; a spider that waited for seeds and ran out of patience ends its generation."""
        if reason == "finished" and self.waits_for_seeds and self.worker.failed is None:
            await self.worker.finish()
        assert self.crawler.stats is not None
        self.crawler.stats.set_value("frontier/round_trips", self.worker.round_trips)
        self.crawler.stats.set_value("frontier/pages", self.worker.dispatcher.pages)
        await self.worker.close()
