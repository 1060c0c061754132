"""Downloader middleware that keeps each host's pace in any Scrapy project, without the frontier.

Checked on Scrapy 2.14.2 and 2.19.0: ``Downloader._get_slot``, ``slots``, ``total_concurrency``, ``Slot.active`` (by
which Scrapy's default queue chooses the next host), ``Slot.concurrency``, ``Slot.delay``, and that ``_enqueue_request``
runs up to its signal ``request_reached_downloader`` in the step in which the last ``process_request`` returns.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from redis.asyncio import Redis as AsyncRedis
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import load_object

from crawler.assembly import worker_name
from crawler.clock import monotonic
from crawler.components.causes import PATIENCE_CODES
from crawler.components.door import Door
from crawler.components.downloader import asked_seconds
from crawler.components.node import REDIS_SETTINGS, config_of, exit_code
from crawler.components.pacing import rules_of
from crawler.components.queues import Queues
from crawler.components.scheduler import FrontierScheduler
from crawler.components.view import EngineView
from crawler.config import Config
from crawler.errors import ConfigError, TrawlnetError
from crawler.frontier.identity import queue_of
from crawler.frontier.store import SeenSpec, Session
from crawler.frontier.stream import Stream
from crawler.loop import BackgroundTask
from crawler.redisdb.connect import target_from, wait_until_ready
from crawler.redisdb.keys import Partition
from crawler.throttle.blocks import Blocks
from crawler.throttle.limiter import NO_TURN, Limiter, ThrottleScripts
from crawler.throttle.memory import MemoryTurns
from crawler.throttle.redis import RedisTurns
from crawler.throttle.refusals import Patience, Refusals
from crawler.throttle.rules import RuleSet
from crawler.throttle.turns import Turns

log = logging.getLogger(__name__)

WAITING_MAX = 1000
"""So many requests wait beside CONCURRENT_REQUESTS; what waits beyond takes the places of others."""

AHEAD_SECONDS = 0.3
"""Turns of a host are taken so long before they come, or one at a time: a process that stops leaves no more unused, and
those beside it wait for no more.
"""

WATCH_SECONDS = 0.1
SLOT = "download_slot"


class ThrottleMiddleware:
    """Lets a request pass when the turn of its host has come; in Redis for all processes of a spider where a REDIS_
    setting says where that is, else for this process.
    """

    _limiter: Limiter
    _blocks: Blocks
    _refusals: Refusals
    _rules: RuleSet
    _queues: Queues

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._view = EngineView(crawler)
        self._keeps_delay = crawler.settings.getbool("AUTOTHROTTLE_ENABLED")
        self._doors: dict[str, Door] = {}
        self._waiting: set[asyncio.Task[None]] = set()
        self._slow = self._room = 0
        self._stopping = False
        self._client: AsyncRedis | None = None
        self._tasks: list[BackgroundTask] = []
        self._hearing: set[asyncio.Task[None]] = set()
        self._sent_at: WeakKeyDictionary[Request, float] = WeakKeyDictionary()
        self._unnamed: WeakSet[Request] = WeakSet()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "ThrottleMiddleware":
        """Builds the middleware of a crawler.

        Raises:
            NotConfigured: the crawl is on the frontier, which keeps the pace itself.
            ConfigError: the crawl runs without asyncio.
        """
        scheduler = load_object(crawler.settings["SCHEDULER"])
        # Of a scheduler, issubclass only tells whether it has a scheduler's methods.
        if FrontierScheduler in scheduler.__mro__:
            raise NotConfigured("the frontier keeps the pace of all hosts; remove it from DOWNLOADER_MIDDLEWARES")
        if not is_asyncio_available():
            raise ConfigError("ThrottleMiddleware needs asyncio; remove the setting TWISTED_REACTOR")
        middleware = cls(crawler)
        connect = crawler.signals.connect
        connect(middleware.spider_opened, signals.spider_opened)
        connect(middleware.request_reached_downloader, signals.request_reached_downloader)
        connect(middleware.response_downloaded, signals.response_downloaded)
        connect(middleware.request_left_downloader, signals.request_left_downloader)
        connect(middleware.spider_closed, signals.spider_closed)
        return middleware

    async def spider_opened(self, spider: Spider) -> None:
        """Reads the rules and connects; a wrong rule, or no Redis, ends the process with one line."""
        try:
            config = config_of(self._crawler)
            self._rules = rules_of(self._crawler, config)
            self._queues = Queues(config["CRAWLER_THROTTLE_SCOPE"])
            if any(self._crawler.settings.get(name) for name in REDIS_SETTINGS if name != "REDIS_ENCODING"):
                turns, looks = await self._in_redis(config, config["CRAWLER_CRAWL"] or spider.name)
            else:
                turns = looks = MemoryTurns(self._rules)
        except TrawlnetError as error:
            log.error("%s", error)
            raise SystemExit(exit_code(error)) from None
        self._limiter = Limiter(turns)
        patience = Patience(
            config["CRAWLER_THROTTLE_BACKOFF_SECONDS"], config["CRAWLER_THROTTLE_RETRY_AFTER_MAX_SECONDS"]
        )
        self._blocks = Blocks(looks, lambda: self._doors)
        self._refusals = Refusals(looks, patience, self._blocks)
        self._blocks.blocked = self._slow_down
        self._start("stop watch", self._watch)
        if self._client is not None:
            self._start("blocks of hosts", self._blocks.run)

    async def _in_redis(self, config: Config, crawl: str) -> tuple[Turns, Turns]:
        """Installs the rules; what gives turns, and what tells of blocks on a connection beside."""
        target = target_from({name: self._crawler.settings.get(name) for name in REDIS_SETTINGS})
        self._client = client = target.async_client()
        for warning in await wait_until_ready(client, target, config["CRAWLER_REDIS_WAIT_SECONDS"]):
            log.warning("%s", warning)
        session = Session(Partition(crawl), worker_name(), SeenSpec.of(config))
        scripts = ThrottleScripts(session.keys)
        stream, looks = Stream(client, target, session), Stream(client, target, session)
        await stream.ask(scripts.limits(self._rules))
        log.info("Turns of hosts are shared through Redis at %s as those of crawl %r", target.shown, crawl)
        return RedisTurns(scripts, stream.ask), RedisTurns(scripts, looks.ask)

    def _start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        task = BackgroundTask(name, work, lambda error: None)
        task.start()
        self._tasks.append(task)

    async def process_request(self, request: Request) -> Request | None:
        """Waits until the request may be sent.

        When the spider closes meanwhile, the request goes back to the scheduler; one that does not come from there is
        asked for again by who waits for it, and goes on.
        """
        if SLOT not in request.meta:
            self._unnamed.add(request)
        host, (key, slot) = self._host_of(request), self._slot_of(request)
        rate, door, paced = self._rules.of(host).rate, self._door(key), self._is_paced(host)
        door.places, door.ahead = slot.concurrency, max(1, int(rate * AHEAD_SECONDS)) if paced else slot.concurrency
        may, loop = door.enter(), asyncio.get_running_loop()
        if may.done() and not paced and self._blocks.until(host) <= monotonic():
            door.leave(may)
            loop.call_soon(self._admit, key)
            return None
        self._slow += door.slow
        if paced:
            self._slow_down(key)
        task = loop.create_task(self._turn(host, may))
        self._waiting.add(task)
        slot.active.add(request)
        self._make_room()
        try:
            await task
        except asyncio.CancelledError:
            if not (self._stopping and task.cancelled()):
                raise
            return request.replace(dont_filter=True)
        finally:
            self._waiting.discard(task)
            slot.active.discard(request)
            door.leave(may)
            self._slow -= door.slow
            self._make_room()
            # When it has reached the downloader, or has not: a middleware further in may answer or fail.
            loop.call_soon(self._admit, key)
        return None

    def _is_paced(self, host: str) -> bool:
        return bool(self._rules.of(host).rate) or self._blocks.is_slowed(host)

    async def _turn(self, host: str, may: "asyncio.Future[None]") -> None:
        await may
        limited = self._is_paced(host)
        turn = await self._limiter.turn(host) if limited else NO_TURN
        while (left := self._blocks.until(host) - monotonic()) > 0:
            self._slow_down(host)
            await asyncio.sleep(left)
            if limited:
                turn = await self._limiter.turn(host, turn)

    def process_response(self, request: Request, response: Response) -> Response:
        """Hears hosts that ask for patience."""
        sent_at, host = self._sent_at.pop(request, None), self._host_of(request)
        self._forget_slot(request)
        if sent_at is None:  # it came from a cache
            return response
        if response.status in PATIENCE_CODES:
            self._hear(self._refusals.refused(host, asked_seconds(response), sent_at))
        elif response.status < 400:  # noqa: PLR2004 - what is no error
            self._refusals.worked(host, sent_at)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        """Lets the request be named anew when it is tried again."""
        self._forget_slot(request)

    def _forget_slot(self, request: Request) -> None:
        """Takes the slot that Scrapy wrote out of ``meta``: redirects, and links with the page's meta, would keep it on
        other hosts.
        """
        if request in self._unnamed:
            request.meta.pop(SLOT, None)

    def _hear(self, hearing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(hearing)
        self._hearing.add(task)
        task.add_done_callback(self._hearing.discard)

    def request_reached_downloader(self, request: Request) -> None:
        """Notes that a place of its slot is taken."""
        self._door(request.meta[SLOT]).sent += 1
        self._refusals.sent(self._host_of(request))
        self._sent_at[request] = monotonic()

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Blocks a host that asks for patience before the next request to it is sent."""
        if response.status in PATIENCE_CODES:
            host = self._host_of(request)
            self._refusals.foresee(host, asked_seconds(response))
            self._slow_down(host)

    def request_left_downloader(self, request: Request) -> None:
        """Gives the place to the next one."""
        key = request.meta[SLOT]
        self._doors[key].sent -= 1
        self._admit(key)

    def _door(self, key: str) -> Door:
        return self._doors.setdefault(key, Door())

    def _admit(self, key: str) -> None:
        if door := self._doors.get(key):
            door.admit()
            if not door.sent and not door.waiting:
                del self._doors[key]

    @property
    def _downloader(self) -> Any:
        engine = self._crawler.engine
        assert engine is not None
        return engine.downloader

    def _slot_of(self, request: Request) -> tuple[str, Any]:
        downloader = self._downloader
        known = len(downloader.slots)
        key, slot = downloader._get_slot(request)
        if len(downloader.slots) != known and not self._keeps_delay:
            # The rules have it already.
            slot.delay = 0.0
        return key, slot

    def _host_of(self, request: Request) -> str:
        named = None if request in self._unnamed else request.meta.get(SLOT)
        return queue_of(None, named) if named else self._queues.of_host(urlparse_cached(request).hostname)

    def _slow_down(self, host: str) -> None:
        door = self._doors.get(host)
        if door is not None and not door.slow:
            door.slow = True
            self._slow += door.waiting
            self._make_room()

    def _make_room(self) -> None:
        """Lets the engine go on with others while requests wait for their hosts."""
        downloader, room = self._downloader, min(self._slow, WAITING_MAX)
        if downloader.total_concurrency and room != self._room:
            downloader.total_concurrency += room - self._room
            self._room = room
            self._view.wake()

    async def _watch(self) -> None:
        while not self._view.closing:
            await asyncio.sleep(WATCH_SECONDS)
        self._stopping = True
        for task in list(self._waiting):
            task.cancel()

    async def spider_closed(self, spider: Spider) -> None:
        """Ends what runs beside, and the connection."""
        for task in self._tasks:
            await task.stop()
        for hearing in list(self._hearing):
            hearing.cancel()
        if self._hearing:
            await asyncio.wait(self._hearing)
        await self._limiter.close()
        if self._client is not None:
            await self._client.aclose()
