"""Outermost spider middleware: runs start() once for the fleet, and notes to which page an item belongs."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextvars import ContextVar
from typing import Any

from pydispatch.dispatcher import getAllReceivers, liveReceivers
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.http import Response

from crawler.components.node import Node
from crawler.components.starts import start_of
from crawler.dispatch import current_lease
from crawler.frontier.held import Lease

Placed = tuple[Lease | None, int]
current_place: ContextVar[Placed] = ContextVar("current_place", default=(None, 0))
"""Lease and position of the item in the pipelines just now."""

YIELD_EVERY = 100


class LeaseSpiderMiddleware:
    """``places`` maps the identity of an item that the callback yielded to its lease and position, and keeps it
    alive.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._crawler = node.crawler
        self._early: bool | None = None
        self._stores = bool(node.config["CRAWLER_STORAGE"])
        self.places: dict[int, tuple[Placed, Any]] = node.places

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "LeaseSpiderMiddleware":
        """Builds the middleware of a crawler."""
        return cls(Node.of(crawler))

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Passes the start requests on where this worker holds the start lease; elsewhere waits until they are in."""
        node = self._node
        if not await node.worker.start_role():
            return
        try:
            async for output in self._passed_on(start_of(node.spider, start)):
                yield output
        except Exception:
            # Scrapy logs it and goes on with what start() gave before; so does the fleet.
            await self._all_in()
            raise
        await self._all_in()

    async def _passed_on(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        passed = 0
        async for output in start:
            if isinstance(output, Request):
                self._node.starting.add(id(output))
            yield output
            passed += 1
            if passed % YIELD_EVERY == 0:
                await asyncio.sleep(0)
                while self._node.worker.dispatcher.crowded:
                    await asyncio.sleep(0.01)

    async def _all_in(self) -> None:
        while self._node.worker.dispatcher.parentless:
            await asyncio.sleep(0.01)
        await self._node.worker.start_through()

    def process_start_requests(self, start_requests: Iterable[Any], spider: Spider) -> Iterable[Any]:
        """Scrapy 2.14 and 2.15 ask for it where a user's middleware has only this one; ``process_start`` is what
        runs.
        """
        return start_requests

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterable[Any]:
        """Notes the place of each item, and drops links that this worker itself has put before."""
        early = self._may_drop_early()
        for output in result:
            if isinstance(output, Request):
                if early and self._node.is_repeat(output):
                    continue
            elif self._stores and output is not None:
                self._note(output)
            yield output

    async def process_spider_output_async(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The same, and waits while the frontier takes links slower than they come."""
        early = self._may_drop_early()
        dispatcher = self._node.worker.dispatcher
        async for output in result:
            if isinstance(output, Request):
                if early and self._node.is_repeat(output):
                    continue
            elif self._stores and output is not None:
                self._note(output)
            yield output
            while dispatcher.crowded:
                await asyncio.sleep(0.01)

    def _may_drop_early(self) -> bool:
        """Whether nobody would miss the signals of a dropped link: the offsite check is all that listens by default."""
        if self._early is None:
            heard = [
                *_receivers(self._crawler, signals.request_dropped),
                *_receivers(self._crawler, signals.request_scheduled),
            ]
            self._early = all(isinstance(getattr(receiver, "__self__", None), OffsiteMiddleware) for receiver in heard)
        return self._early

    def _note(self, item: Any) -> None:
        lease = current_lease.get()
        position = 0
        if lease is not None:
            position = lease.positions
            lease.positions += 1
        self.places[id(item)] = ((lease, position), item)


def _receivers(crawler: Crawler, signal: object) -> list[Any]:
    return list(liveReceivers(getAllReceivers(crawler.signals.sender, signal)))
