"""The lab's spider as a scrapy-redis user would write it; measurements run it under scrapy-redis itself too."""

from collections.abc import Iterator
from typing import Any

from scrapy import Request
from scrapy.http import HtmlResponse, Response
from scrapy_redis.spiders import RedisSpider

from tests.support.spiders.lab import items_of


class RedisLabSpider(RedisSpider):  # type: ignore[misc]  # scrapy-redis ships no types
    """Waits for start URLs in ``redis_lab:start_urls``."""

    name = "redis_lab"

    def parse(self, response: Response) -> Iterator[Any]:
        if not isinstance(response, HtmlResponse):
            return
        yield from items_of(response)
        for link in response.css("a::attr(href)").getall():
            if link.startswith("http"):
                yield Request(link)
