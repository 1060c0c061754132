"""Spiders whose callbacks never return, or ask for the end, for tests of how workers end."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from twisted.python.failure import Failure

from tests.support.spiders.workers import FlatSpider


class HangingSpider(FlatSpider):
    """The callback of page 3 waits for what never comes."""

    name = "hanging"

    async def parse(self, response: Response) -> AsyncIterator[Any]:  # type: ignore[override]  # Scrapy takes both
        if response.url.endswith("n=3"):
            await asyncio.Event().wait()
        yield {"url": response.url}


class ClosingSpider(FlatSpider):
    """Page 0 ends the worker unless ``-a patient=1``."""

    name = "closing"
    patient = ""

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        if response.url.endswith("n=0") and not self.patient:
            raise CloseSpider("enough")


class ErringSpider(FlatSpider):
    """Says when the errback of one of its pages is called."""

    name = "erring"

    async def start(self) -> AsyncIterator[Any]:
        async for request in super().start():
            yield request.replace(errback=self.failed)

    def failed(self, failure: Failure) -> None:
        self.logger.info("errback called: %s", failure.getErrorMessage())


class InsistentSpider(FlatSpider):
    """Asks for each of its pages twice, whether or not it was seen."""

    name = "insistent"

    async def start(self) -> AsyncIterator[Any]:
        async for request in super().start():
            for _ in range(2):
                yield request.replace(dont_filter=True)
