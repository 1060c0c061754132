"""Crawls the lab: an item from each page's article, and every link."""

from collections.abc import Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import HtmlResponse, Response


class LabSpider(Spider):
    """``-a url=`` is the lab's start URL."""

    name = "lab"

    def __init__(self, url: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [url] if url else []

    def parse(self, response: Response) -> Iterator[Any]:
        if not isinstance(response, HtmlResponse):
            return
        yield from items_of(response)
        for link in response.css("a::attr(href)").getall():
            if link.startswith("http"):
                yield Request(link)


def items_of(response: HtmlResponse) -> Iterator[dict[str, str]]:
    """The item of each article of a page of the lab."""
    for article in response.css("article"):
        yield {
            "id": article.attrib["data-id"],
            "title": article.css("h1::text").get(""),
            "price": article.css(".price::text").get(""),
            "url": response.url,
        }
