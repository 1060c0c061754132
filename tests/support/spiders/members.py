"""Pages that only who has logged in is shown."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy import FormRequest, Request, Spider
from scrapy.http import Response

from tests.support.lab.sessions import LOGIN, MEMBER_PAGES


class MembersSpider(Spider):
    """Logs in once, and then asks for ``-a count=`` pages of ``-a base=``, with the cookiejar ``-a jar=``."""

    name = "members"

    def __init__(self, base: str = "", count: str = "60", jar: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._base = base
        self._count = int(count)
        self._meta = {"cookiejar": jar} if jar else {}

    async def start(self) -> AsyncIterator[Any]:
        yield Request(f"{self._base}/login", callback=self.log_in, meta=self._meta)

    def log_in(self, response: Response) -> Iterator[Any]:
        yield FormRequest.from_response(response, formdata=LOGIN, callback=self.inside, meta=self._meta)  # type: ignore[arg-type]

    def inside(self, response: Response) -> Iterator[Any]:
        for number in range(self._count):
            url = f"{self._base}/member/{number % MEMBER_PAGES}?n={number}"
            yield Request(url, callback=self.parse, meta={**self._meta, "asked": url})

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.meta["asked"], "shown": response.url}
