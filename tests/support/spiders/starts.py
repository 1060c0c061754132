"""Spiders whose first requests come about in unusual ways."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider
from scrapy.http import HtmlResponse
from scrapy.settings import BaseSettings
from scrapy.utils.reactor import is_reactor_installed

from tests.support.spiders.lab import LabSpider, items_of


class _AtLab(Spider):
    """``-a base=`` is a host of the lab; pages give their items, and no links."""

    def __init__(self, base: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.base = base

    def parse(self, response: Any) -> Iterator[Any]:
        if isinstance(response, HtmlResponse):
            yield from items_of(response)


class OldStartSpider(_AtLab):
    """Begins as spiders did before Scrapy 2.13."""

    name = "old_start"

    def start_requests(self) -> Iterator[Request]:
        yield Request(f"{self.base}/leaf/1", dont_filter=True)


class BothStartsSpider(_AtLab):
    """Begins the new way, and keeps the old one for older versions of Scrapy."""

    name = "both_starts"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(f"{self.base}/leaf/1")

    def start_requests(self) -> Iterator[Request]:
        yield Request(f"{self.base}/leaf/2")


class StartItemsSpider(_AtLab):
    """Yields items before any page was fetched."""

    name = "start_items"

    async def start(self) -> AsyncIterator[Any]:
        self.logger.info("start() runs")
        yield {"id": "start-0"}
        yield Request(f"{self.base}/leaf/1")
        yield {"id": "start-1"}
        yield Request(f"{self.base}/leaf/1")


class TwoStartUrlsSpider(_AtLab):
    """Two start URLs, the first of which links to the second."""

    name = "two_start_urls"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{self.base}/links/2", f"{self.base}/leaf/0"]

    def parse(self, response: Any) -> Iterator[Any]:
        yield from super().parse(response)
        yield from response.follow_all(css="a")


class IdleSpider(_AtLab):
    """Adds a request each of the first two times that it is idle, one of them known already."""

    name = "idle"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{self.base}/leaf/0"]
        self.further = [f"{self.base}/leaf/0", f"{self.base}/leaf/1"]

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> "IdleSpider":
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.add_request, signals.spider_idle)
        return spider

    def add_request(self) -> None:
        if self.further:
            assert self.crawler.engine is not None
            self.crawler.engine.crawl(Request(self.further.pop()))
            raise DontCloseSpider


class WhereSpider(LabSpider):
    """Crawls the lab, and says on what."""

    name = "where"

    def closed(self, reason: str) -> None:
        self.logger.info("reactor installed: %s", is_reactor_installed())


class SelectReactorSpider(LabSpider):
    """Asks for a reactor that the frontier cannot run on."""

    name = "select_reactor"

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        settings.set("TWISTED_REACTOR", "twisted.internet.selectreactor.SelectReactor", "spider")
