"""Extension that ends a worker well: when to close, what happens on a signal, and with which exit code."""

import asyncio
import logging
import sys
from typing import Any

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.reactor import is_reactor_installed

from crawler.components.node import Node
from crawler.dispatch import current_lease
from crawler.loop import BackgroundTask

log = logging.getLogger(__name__)

WATCH_SECONDS = 0.1


class LifecycleExtension:
    """Watches for the close of the engine; a handler of a second signal hands everything back at once."""

    def __init__(self, node: Node, crawler: Crawler) -> None:
        self._node = node
        self._crawler = crawler
        self._grace: float = node.config["CRAWLER_STOP_GRACE_SECONDS"]
        self._watch = BackgroundTask("stop watch", self._run, node.worker.on_failure)
        self._handed_back = False
        self._waking: asyncio.TimerHandle | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "LifecycleExtension":
        """Connects the extension to the signals of a crawler."""
        extension = cls(Node.of(crawler), crawler)
        connect = crawler.signals.connect
        connect(extension.spider_opened, signals.spider_opened)
        connect(extension.spider_idle, signals.spider_idle)
        connect(extension.spider_error, signals.spider_error)
        connect(extension.spider_closed, signals.spider_closed)
        connect(extension.engine_stopped, signals.engine_stopped)
        return extension

    def spider_opened(self, spider: Spider) -> None:
        """Starts watching; the second signal is heard through the reactor's shutdown, or without one by
        cancellation.
        """
        self._watch.start()
        if is_reactor_installed():
            from twisted.internet import reactor  # noqa: PLC0415 - importing it installs it where there is none

            stopping: Any = reactor  # Twisted's stubs know the reactor's class only by its interface
            stopping.addSystemEventTrigger("before", "shutdown", lambda: deferred_from_coro(self._hand_back_all()))

    def spider_idle(self, spider: Spider) -> None:
        """Keeps a spider that waits for seeds until the whole fleet was idle for its limit."""
        node = self._node
        if not node.waits_for_seeds or self._may_end():
            return
        limit, loop = self._idle_limit(), asyncio.get_running_loop()
        if limit and (self._waking is None or self._waking.when() <= loop.time()):
            self._waking = loop.call_later(max(0.05, limit - node.worker.idle_seconds()), node.wake)
        raise DontCloseSpider

    def _idle_limit(self) -> float:
        return float(getattr(self._node.spider, "max_idle_time", None) or 0)

    def _may_end(self) -> bool:
        """Whether the crawl is finished, or this spider has waited for seeds as long as it should."""
        node, limit = self._node, self._idle_limit()
        return node.worker.ended or (node.waits_for_seeds and 0 < limit <= node.worker.idle_seconds())

    def spider_error(self, **_: Any) -> None:
        """Counts an exception of a callback; the page is done all the same, as in Scrapy."""
        lease = current_lease.get()
        if lease is not None:
            lease.tally("callback_errors")

    async def _run(self) -> None:
        try:
            while not self._node.view.closing:
                await asyncio.sleep(WATCH_SECONDS)
                if self._node.view.held_up and self._may_end():
                    log.warning("closing over requests that never ended: their leases ran out of age")
                    self._node.close_spider("finished")
            await self._drain()
        except asyncio.CancelledError:
            if not is_reactor_installed():
                self._node.view.mute()
                # Every task was cancelled with this one: that the engine has a page no more does not make it done.
                await self._hand_back_all(settle=False)
            raise

    async def _drain(self) -> None:
        """First signal: nothing more is claimed, unstarted work goes back, downloads get their time, then go back
        too.
        """
        node, dispatcher = self._node, self._node.worker.dispatcher
        dispatcher.claiming = node.worker.feed.taking = False
        if node.view.in_progress:
            log.info("claiming no more: %d requests under way have %.0f s", node.view.in_progress, self._grace)
        unstarted = dispatcher.release_unstarted()
        await dispatcher.give_back(unstarted)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace
        while node.view.in_progress and loop.time() < deadline:
            await asyncio.sleep(WATCH_SECONDS)
        if node.view.in_progress:
            log.info("%d requests did not end within %.0f s: handing them back", node.view.in_progress, self._grace)
            await dispatcher.give_back(dispatcher.unended())
            node.view.abandon()

    async def _hand_back_all(self, *, settle: bool = True) -> None:
        worker = self._node.worker
        if self._handed_back or worker.closed:
            return
        self._handed_back = True
        worker.dispatcher.claiming = worker.feed.taking = False
        await worker.close(settle=settle)

    async def spider_closed(self, spider: Spider, reason: str) -> None:
        """Ends the watch."""
        if self._waking is not None:
            self._waking.cancel()
        await self._watch.stop()

    def engine_stopped(self) -> None:
        """Makes the process end with the code of the error that stopped it."""
        if self._node.exit_code:
            asyncio.get_running_loop().call_soon(sys.exit, self._node.exit_code)
