"""Spiders for tests of how workers live, stop and end."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy_redis.spiders import RedisSpider


class FlatSpider(Spider):
    """``count`` pages that take ``seconds`` each, all from start(); ``pause`` seconds between them."""

    name = "flat"
    base = ""
    count = "16"
    seconds = "0"
    pause = "0"

    async def start(self) -> AsyncIterator[Any]:
        for number in range(int(self.count)):
            yield Request(f"{self.base}/slow/{self.seconds}?n={number}")
            if float(self.pause):
                await asyncio.sleep(float(self.pause))

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


class FlatAgainSpider(FlatSpider):
    """Another spider of the same pages."""

    name = "flat_again"


class BlockingSpider(FlatSpider):
    """Its callback blocks the event loop for as long as ``block`` says."""

    name = "blocking"
    block = "4"

    def parse(self, response: Response) -> Iterator[Any]:
        time.sleep(float(self.block))
        yield {"url": response.url}


class PoisonSpider(FlatSpider):
    """Page 7 kills the worker that parses it."""

    name = "poison"

    def parse(self, response: Response) -> Iterator[Any]:
        if response.url.endswith("n=7"):
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"url": response.url}


class WaitingSpider(RedisSpider):  # type: ignore[misc]  # scrapy-redis ships no types
    """Waits for seeds; a page whose URL says ``yields=N`` has so many links."""

    name = "waiting"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        if "yields=" in response.url:
            for number in range(int(response.url.split("yields=")[1])):
                yield Request(response.urljoin(f"/slow/0.2?leaf={number}"))
