"""Pages that are all known from the start: what a host is asked, and when, is up to its limits alone."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response


class PacedSpider(Spider):
    """``-a plan=`` is a JSON file of base URLs and how many pages each is asked for; they come in turn."""

    name = "paced"

    def __init__(self, plan: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._work: dict[str, int] = json.loads(Path(plan).read_text()) if plan else {}

    async def start(self) -> AsyncIterator[Any]:
        left = dict(self._work)
        number = 0
        while left:
            for base in list(left):
                yield Request(f"{base}/flat/{number}")
                if number + 1 >= left[base]:
                    del left[base]
            number += 1

    def parse(self, response: Response) -> Iterator[Any]:
        yield from ()


class FloodSpider(PacedSpider):
    """The same, all at once: ``-a lead=`` seconds before the end of a window of ``-a window=`` seconds."""

    name = "flood"

    def __init__(self, window: str = "1", lead: str = "0", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._window, self._lead = float(window), float(lead)

    async def start(self) -> AsyncIterator[Any]:
        await asyncio.sleep((-monotonic() - self._lead) % self._window)
        async for request in super().start():
            yield request


class ListedSpider(Spider):
    """``-a plan=`` is a JSON file of URLs."""

    name = "listed"

    def __init__(self, plan: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._urls: list[str] = json.loads(Path(plan).read_text()) if plan else []

    async def start(self) -> AsyncIterator[Any]:
        for url in self._urls:
            yield Request(url, errback=self.failed)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}

    def failed(self, failure: Any) -> None:
        """Shows in the log that the spider was told of a failure."""
        self.logger.error("the errback got %r", failure.value)


class LinkedSpider(ListedSpider):
    """The same, all linked from the page ``-a url=``."""

    name = "linked"

    def __init__(self, url: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._page = url

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self._page, self.parse_links)

    def parse_links(self, response: Response) -> Iterator[Any]:
        for url in self._urls:
            yield Request(url)


class FilesSpider(Spider):
    """Its page has an item with the files of ``-a files=``, URLs separated by spaces; ``-a url=`` is the page."""

    name = "files"

    def __init__(self, url: str = "", files: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [url] if url else []
        self._files = files.split()

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"file_urls": self._files}
