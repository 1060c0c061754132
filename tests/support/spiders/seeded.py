"""Spiders that wait for start URLs: scrapy-redis's own and ours, and what a spider of rules does alone."""

import json
from collections.abc import Iterator
from typing import Any

from scrapy import Request
from scrapy.http import HtmlResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from scrapy_redis.spiders import RedisCrawlSpider as TheirCrawlSpider

from crawler.components.spiders import RedisCrawlSpider, RedisSpider
from tests.support.spiders.lab import items_of

RULES = (Rule(LinkExtractor(allow=r"/leaf/"), callback="parse_leaf"),)


class RulesSpider(CrawlSpider):
    """Follows leaves by rule, from ``-a base=``."""

    name = "rules"
    rules = RULES

    def __init__(self, base: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{base}/links/3"]

    def parse_leaf(self, response: Any) -> Iterator[Any]:
        yield from items_of(response)


class TheirRulesSpider(TheirCrawlSpider):  # type: ignore[misc]  # scrapy-redis ships no types
    """scrapy-redis's own, unchanged."""

    name = "their_rules"
    rules = RULES

    def parse_leaf(self, response: Any) -> Iterator[Any]:
        yield from items_of(response)


class OurRulesSpider(RedisCrawlSpider):
    """The same of ours."""

    name = "our_rules"
    rules = RULES

    def parse_leaf(self, response: Any) -> Iterator[Any]:
        yield from items_of(response)


class SaidSpider(RedisSpider):
    """Keeps what the server says it got, with the request's meta and priority."""

    name = "said"

    def parse(self, response: Any) -> Iterator[Any]:
        if isinstance(response, HtmlResponse):
            yield from items_of(response)
            return
        request = response.request
        assert request is not None
        said = json.loads(response.text)
        meta = {name: value for name, value in request.meta.items() if name.startswith("original")}
        yield {"id": said["path"], "said": said, "meta": meta, "priority": request.priority}


class OwnSeedsSpider(RedisSpider):
    """Makes requests of seeds itself: a number is that many pages, ``none`` is nothing, ``error`` an error."""

    name = "own_seeds"
    base = ""

    def make_request_from_data(self, data: bytes) -> Any:
        text = data.decode()
        if text == "none":
            return None
        if text == "error":
            raise ValueError("a seed that this spider cannot read")
        return [Request(f"{self.base}/leaf/{number}") for number in range(int(text))]

    def parse(self, response: Any) -> Iterator[Any]:
        yield from items_of(response)


class WithStartUrlsSpider(RedisSpider):
    """Has start URLs of its own beside those it waits for."""

    name = "with_start_urls"

    def __init__(self, base: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{base}/flat/1"]

    def parse(self, response: Any) -> Iterator[Any]:
        yield from items_of(response)


class OwnNextSpider(RedisSpider):
    """Takes start URLs out of Redis by itself."""

    name = "own_next"

    def next_requests(self) -> Iterator[Any]:
        yield Request(self.server.lpop(self.redis_key).decode())
