"""Pages of many hosts, all known from the start: what a host is asked is up to the limits alone."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
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
