"""Spiders whose callbacks never return, or ask for the end, for tests of how workers end."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy.exceptions import CloseSpider
from scrapy.http import Response

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
