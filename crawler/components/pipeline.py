"""The two ends of the pipeline that store items: where an item's page is found again, and where it goes to storage."""

import asyncio
import logging
from typing import Any

from scrapy import signals
from scrapy.crawler import Crawler
from twisted.python.failure import Failure

from crawler.clock import wall
from crawler.components.node import Node
from crawler.components.spidermw import current_place
from crawler.errors import RecordRefused, StorageError, TrawlnetError
from crawler.frontier.held import Lease
from crawler.items.key import page_key
from crawler.items.record import Source, record_of

log = logging.getLogger(__name__)


class ItemPlacePipeline:
    """First stage: finds the page and position of an item by its identity, before any stage may replace it."""

    def __init__(self, node: Node) -> None:
        self._places = node.places

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "ItemPlacePipeline":
        """Builds the stage of a crawler."""
        return cls(Node.of(crawler))

    def process_item(self, item: Any) -> Any:
        """Moves the place to a variable that follows the item through the stages."""
        place, _ = self._places.pop(id(item), ((None, 0), None))
        current_place.set(place)
        return item


class StoragePipeline:
    """Last stage: gives the item to storage without waiting for its batch; the page's lease waits instead."""

    def __init__(self, node: Node) -> None:
        assert node.writer is not None
        self._node = node
        self._writer = node.writer
        self._key_field: str = node.config["CRAWLER_STORAGE_KEY_FIELD"] or getattr(node.spider, "key_field", "")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "StoragePipeline":
        """Builds the stage of a crawler."""
        return cls(Node.of(crawler))

    async def open_spider(self) -> None:
        """Opens storage and proves that it can be written."""
        try:
            await self._writer.open()
        except TrawlnetError as error:
            self._node.refuse(error)

    async def process_item(self, item: Any) -> Any:
        """Hands the item over; waits only while storage is far behind."""
        lease, position = current_place.get()
        try:
            record = record_of(item, self._source(lease, position), key_field=self._key_field, stored_at=wall())
        except RecordRefused as error:
            self._refused(item, lease, error)
            return item
        future = self._writer.add(record)
        if lease is not None:
            lease.records += 1
        future.add_done_callback(lambda done: self._stored(done, item, lease))
        await self._writer.room()
        return item

    def _source(self, lease: Lease | None, position: int) -> Source:
        node = self._node
        crawl, spider = node.worker.spec.crawl, node.spider.name
        if lease is None:
            return Source(crawl, spider, "", 0, node.next_start_position(), "")
        return Source(crawl, spider, page_key(spider, lease.page), int(lease.id), position, _url_of(lease))

    def _stored(self, done: "asyncio.Future[None]", item: Any, lease: Lease | None) -> None:
        error = None if done.cancelled() else done.exception()
        if lease is not None:
            lease.records -= 1
        if done.cancelled():
            error = StorageError("the write was given up")
        if isinstance(error, RecordRefused):
            self._refused(item, lease, error)
        elif error is not None:
            self._node.try_later(lease, str(error))
        else:
            self._node.items += 1

    def _refused(self, item: Any, lease: Lease | None, error: RecordRefused) -> None:
        log.error("storage refused an item of %s: %s", _url_of(lease) or "start()", error)
        if lease is not None:
            lease.fail("record_refused", str(error), url=_url_of(lease))
        failure = Failure(error)
        self._node.crawler.signals.send_catch_log(
            signals.item_error, item=item, response=None, spider=self._node.spider, failure=failure
        )

    async def close_spider(self) -> None:
        """Writes what is left; the leases settle after it."""
        await self._writer.flush()
        # Pages that are through now may have older rows to remove, which the writer must still be open for.
        self._node.worker.dispatcher.mark_ended()
        await self._writer.close()


def _url_of(lease: Lease | None) -> str:
    return str(getattr(lease.requests[-1], "url", "")) if lease is not None and lease.requests else ""
