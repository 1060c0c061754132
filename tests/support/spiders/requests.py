"""Spiders that use what a request can hold, and what it cannot."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import date
from typing import Any
from urllib.parse import urljoin

from scrapy import FormRequest, Request, Spider
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.http import HtmlResponse, JsonRequest
from twisted.python.failure import Failure

from tests.support.spiders.lab import items_of


class _AtLab(Spider):
    """``-a base=`` is a host of the lab."""

    def __init__(self, base: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.base = base


class EveryFieldSpider(_AtLab):
    """What of each field of its requests came back out of the queue, and what the server got."""

    name = "every_field"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(
            f"{self.base}/echo?q=%C3%A9",
            method="POST",
            body=b"\xff\x00",
            headers={"X-Twice": ["1", "2"], "Accept-Language": "de"},
            cookies={"a": "b"},
            meta={"pair": (1, 2), "day": date(2026, 12, 1), "words": {"é"}},
            priority=7,
            flags=["f"],
            cb_kwargs={"word": "wörd", "raw": b"\xfe"},
            callback=self.parse_echo,
            errback=self.on_error,
            dont_filter=True,
        )
        yield JsonRequest(f"{self.base}/echo?json", data={"a": [1]}, callback=self.parse_said)
        yield FormRequest(f"{self.base}/echo?form", formdata={"a": "ä"}, callback=self.parse_said)
        yield Request(f"{self.base}/status/404", errback=self.on_error, cb_kwargs={"word": "lost"})

    def parse_echo(self, response: Any, word: str, raw: bytes) -> Iterator[Any]:
        request = response.request
        assert request is not None
        yield {
            "id": "every_field",
            "said": json.loads(response.text),
            "kept": repr(
                [
                    *(request.method, request.body, request.headers.getlist("X-Twice"), request.cookies),
                    *(request.meta["pair"], request.meta["day"], request.meta["words"], request.priority),
                    *(request.flags, word, raw, request.dont_filter),
                    *(getattr(request.callback, "__name__", ""), getattr(request.errback, "__name__", "")),
                ]
            ),
        }

    def parse_said(self, response: Any) -> Iterator[Any]:
        yield {"id": type(response.request).__name__, "said": json.loads(response.text)}

    def on_error(self, failure: Failure) -> Iterator[Any]:
        request: Request = failure.request  # type: ignore[attr-defined]
        yield {
            "id": "error",
            "url": request.url,
            "word": request.cb_kwargs["word"],
            "type": type(failure.value).__name__,
        }
        yield Request(f"{self.base}/leaf/9", callback=self.parse_leaf)

    def parse_leaf(self, response: Any) -> Iterator[Any]:
        yield from items_of(response)


class PrioritySpider(_AtLab):
    """One page gives links of several priorities."""

    name = "priority"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{self.base}/links/1"]

    def parse(self, response: Any) -> Iterator[Any]:
        for number, priority in enumerate((0, 5, -5, 1000, 5)):
            yield Request(f"{self.base}/flat/{number}", self.parse_leaf, priority=priority)

    def parse_leaf(self, response: Any) -> None:
        pass


class SelectorSpider(_AtLab):
    """The third of five links holds a Selector."""

    name = "selector"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{self.base}/links/5"]

    def parse(self, response: Any) -> Iterator[Any]:
        for number, link in enumerate(response.css("a")):
            meta = {"link": link} if number == 2 else {}
            yield Request(link.attrib["href"], self.parse_leaf, meta=meta)

    def parse_leaf(self, response: Any) -> Iterator[Any]:
        for item in items_of(response):
            yield {**item, "link": response.meta["link"].get() if "link" in response.meta else ""}


class LoginSpider(_AtLab):
    """Fills in the login form, and crawls what is behind it."""

    name = "login"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{self.base}/login"]

    def parse(self, response: Any) -> Iterator[Any]:
        data = {"user": "reader", "password": "open"}
        yield FormRequest.from_response(response, formdata=data, callback=self.parse_member)

    def parse_member(self, response: Any) -> Iterator[Any]:
        yield from items_of(response)
        yield from response.follow_all(css="li a", callback=self.parse_member)


class LanguagesSpider(_AtLab):
    """The same URL in two languages, one of them twice."""

    name = "languages"

    async def start(self) -> AsyncIterator[Any]:
        for language in ("de", "fr", "de"):
            yield Request(f"{self.base}/echo", headers={"Accept-Language": language})

    def parse(self, response: Any) -> Iterator[Any]:
        said = json.loads(response.text)
        yield {"id": said["headers"]["accept-language"]}


class RedirectsSpider(_AtLab):
    """Requests each of ``-a paths=``, separated by spaces, one after the other."""

    name = "redirects"

    def __init__(self, paths: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.paths = paths.split()

    async def start(self) -> AsyncIterator[Any]:
        if self.paths:
            yield self.request_of(0)

    def request_of(self, number: int) -> Request:
        url = self.base + self.paths[number]
        return Request(url, errback=self.on_error, meta={"asked": self.paths[number]}, cb_kwargs={"number": number})

    def next_one(self, number: int) -> Iterator[Request]:
        if number + 1 < len(self.paths):
            yield self.request_of(number + 1)

    def parse(self, response: Any, number: int) -> Iterator[Any]:
        if isinstance(response, HtmlResponse):
            for item in items_of(response):
                yield {**item, "asked": response.meta["asked"], "times": response.meta.get("redirect_times", 0)}
        yield from self.next_one(number)

    def on_error(self, failure: Failure) -> Iterator[Any]:
        request: Request = failure.request  # type: ignore[attr-defined]
        yield {"id": "error", "asked": request.meta["asked"], "type": type(failure.value).__name__}
        yield from self.next_one(request.cb_kwargs["number"])


class InlineSpider(_AtLab):
    """Its callback fetches ``-a inner=``, a path or URL, by itself before it yields."""

    name = "inline"

    def __init__(self, inner: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{self.base}/leaf/1"]
        self.inner = inner

    async def parse(self, response: Any) -> AsyncIterator[Any]:
        engine = self.crawler.engine
        assert engine is not None
        inner = await engine.download_async(Request(urljoin(self.base, self.inner)))
        for item in items_of(response):
            yield {**item, "inner": inner.status}
        yield Request(f"{self.base}/leaf/2", callback=self.parse_leaf)

    def parse_leaf(self, response: Any) -> Iterator[Any]:
        yield from items_of(response)


class UnrulySpider(_AtLab):
    """A start request that cannot travel beside one that can, and a callback that breaks in the middle."""

    name = "unruly"

    async def start(self) -> AsyncIterator[Any]:
        nameless: Callable[[Any], None] = lambda response: None  # noqa: E731 - what people write
        yield Request(f"{self.base}/leaf/1", callback=nameless)
        yield Request(f"{self.base}/leaf/2")

    def parse(self, response: Any) -> Iterator[Any]:
        yield from items_of(response)
        yield Request(f"{self.base}/leaf/3", callback=self.parse_leaf)
        raise ValueError("this callback is broken")

    def parse_leaf(self, response: Any) -> Iterator[Any]:
        yield from items_of(response)


class OwnRetrySpider(_AtLab):
    """Asks for a page again from its callback, until it has what it should."""

    name = "own_retry"
    handle_httpstatus_list = (500,)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{self.base}/flaky/2"]

    def parse(self, response: Any) -> Iterator[Any]:
        yield from items_of(response)
        if response.status != 200:
            again = get_retry_request(response.request, spider=self, reason="no article")
            if again is not None:
                yield again
