"""The spider of the worker benchmark: what an ordinary crawl does, the same for every scheduler."""

from collections.abc import Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor


class BenchSpider(Spider):
    """A request for each link, and one item with three selectors; ``-a url=`` is the start URL."""

    name = "bench"

    def __init__(self, url: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [url]
        self._links = LinkExtractor()

    def parse(self, response: Response) -> Iterator[Any]:
        if not isinstance(response, HtmlResponse):
            return
        for link in self._links.extract_links(response):
            yield Request(link.url)
        yield {
            "title": response.css("h1::text").get(),
            "price": response.css(".price::text").get(),
            "stock": response.css(".stock::text").get(),
        }
