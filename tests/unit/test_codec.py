"""Requests come back from the frontier as they were put, and those that cannot travel say why."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.http import Headers, JsonRequest, TextResponse, XmlRpcRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.spiders import CrawlSpider, Rule

from crawler.components.codec import RequestCodec
from crawler.components.rebuild import directly_is_right
from crawler.errors import UnknownCallback, UnserialisableRequest, WireError
from crawler.frontier.wire import ENTRY_VERSION, NewerWire, pack, pack_entry

URL = "https://www.example.com/catalogue/category/books/sequential-art/item-0001234567/"
REFERER = "https://www.example.com/catalogue/category/books/sequential-art/page-12.html?sort"
INSTANCE = b"\x00\xffabcdef"


def decorated(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(*args: Any) -> Any:
        return method(*args)

    return wrapper


def renamed(method: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        return method(*args)

    return wrapper


class BookSpider(CrawlSpider):
    name = "books"
    rules = (Rule(callback="parse_item"),)

    class Inner: ...

    def parse_item(self, response: Any, **kwargs: Any) -> Any: ...

    def failed(self, failure: Any) -> None: ...

    @decorated
    def wrapped(self, response: Any) -> None: ...

    @renamed
    def other_name(self, response: Any) -> None: ...

    @staticmethod
    def static(response: Any) -> None: ...

    @classmethod
    def of_class(cls, response: Any) -> None: ...

    async def later(self, response: Any) -> None: ...

    def __private(self, response: Any) -> None: ...

    def private(self) -> Callable[..., Any]:
        return self.__private


class Sized(Request):
    attributes: tuple[str, ...] = (*Request.attributes, "size")

    def __init__(self, *args: Any, size: object = 0, **kwargs: Any) -> None:
        self.size = size
        super().__init__(*args, **kwargs)


@dataclasses.dataclass
class Part:
    number: int
    names: tuple[str, ...] = ()


@pytest.fixture
def spider() -> BookSpider:
    return BookSpider()


@pytest.fixture
def codec(spider: BookSpider) -> RequestCodec:
    return RequestCodec(spider)


def fields(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.attributes} | {"class": type(request)}


def assert_comes_back(codec: RequestCodec, request: Request) -> Request:
    back, instance = codec.decode(codec.encode(request, INSTANCE))
    assert instance == INSTANCE
    assert fields(back) == fields(request)
    assert list(back.headers) == list(request.headers)
    assert isinstance(back.headers, Headers)
    assert back.headers.encoding == request.headers.encoding
    return back


def test_every_field_comes_back(codec: RequestCodec, spider: BookSpider) -> None:
    request = Request(
        URL,
        callback=spider.parse_item,
        method="post",
        headers={"Referer": REFERER, "X-Twice": ["1", "2"], "Accept": "*/*", "X-Empty": []},
        body=b"\xff\x00",
        cookies=[{"name": "a", "value": "b", "domain": ".example.com"}],
        meta={"depth": 3, "rule": 0, "own": (1, {2}), "item": Part(1, ("a",)), "page": None},
        encoding="latin-1",
        priority=-7,
        dont_filter=True,
        errback=spider.failed,
        flags=["a"],
        cb_kwargs={"part": Part(2), "deep": {"a": [b"\xff"]}},
    )
    back = assert_comes_back(codec, request)
    assert type(back.cb_kwargs["part"]) is Part
    assert type(back.meta["own"]) is tuple


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL),
        Request(URL, meta={"depth": 0}),
        Request(URL, meta={"depth": -1}),
        Request(URL, meta={"depth": True}),
        Request(URL, meta=cast("dict[str, Any]", {1: "a", ("b", 2): None, "depth": 1})),
        Request(URL, headers={"Referer": ""}),
        Request(URL, headers={"Referer": URL}),
        Request(URL, headers={"Referer": [URL, REFERER]}),
        Request(URL, headers={"Referer": "x" * 400}),
        Request("http://a.example/" + "p" * 400, headers={"Referer": "http://a.example/" + "p" * 399}),
        Request(URL, headers={"Referer": REFERER, "Accept": "a"}),
        Request(URL, headers={"Accept": "a", "Referer": b"https://\xff/"}),
        Request("http://www.a.example/ä?ö"),
        Request("http://a.example"),
        Request("s3://bucket/key"),
        Request("data:,a"),
        Request(URL, cookies={"a": "b"}, callback=NO_CALLBACK, priority=2**70),
        Request("HTTPS://a.example/ü", encoding="latin-1", body="ü"),
        FormRequest(URL, formdata={"a": ["1", "2"]}),
        JsonRequest(URL, data={"a": 1}, dumps_kwargs={"indent": 1}),
        XmlRpcRequest(URL, methodname="a", params=(1,)),
        Sized(URL, size=(1, 2)),
    ],
    ids=repr,
)
def test_request_comes_back(codec: RequestCodec, request_: Request) -> None:
    assert_comes_back(codec, request_)


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
META = st.dictionaries(
    st.sampled_from(["depth", "rule", "proxy"]) | TEXT,
    st.integers() | TEXT | st.lists(TEXT, max_size=2),
    max_size=4,
)


@given(
    path=TEXT,
    referer=TEXT,
    meta=META,
    cb_kwargs=META,
    headers=st.dictionaries(st.sampled_from(["Referer", "Accept", "X-A"]), st.lists(TEXT, max_size=2), max_size=3),
    body=st.binary(max_size=20),
    priority=st.integers(),
)
def test_any_request_comes_back(path: str, referer: str, **rest: Any) -> None:
    rest["headers"] = {**rest["headers"], "Referer": f"https://a.example/{referer}"}
    assert_comes_back(RequestCodec(BookSpider()), Request(f"https://a.example/{path}", **rest))


def test_a_changed_or_verbatim_url_is_not_quoted_again(codec: RequestCodec) -> None:
    request = Request(URL)
    request._url = "https://a.example/a b|c"
    assert codec.decode(codec.encode(request)).request.url == "https://a.example/a b|c"


@pytest.mark.parametrize("name", ["parse_item", "wrapped", "other_name", "static", "of_class", "later"])
def test_methods_of_the_spider_go_by_name(codec: RequestCodec, spider: BookSpider, name: str) -> None:
    method = getattr(spider, name)
    back = codec.decode(codec.encode(Request(URL, callback=method, errback=method))).request
    assert (back.callback, back.errback) == (method, method)


def test_private_rule_and_instance_bound_methods_go_by_name(codec: RequestCodec, spider: BookSpider) -> None:
    spider.alias = spider.parse_item  # type: ignore[attr-defined]
    rule = Request(URL, callback=spider._callback, errback=spider._errback, meta={"rule": 0, "link_text": "a"})
    assert_comes_back(codec, rule)
    for callback in (spider.private(), spider.alias):  # type: ignore[attr-defined]
        assert codec.decode(codec.encode(Request(URL, callback=callback))).request.callback == callback


def test_another_worker_finds_its_own_methods(codec: RequestCodec, spider: BookSpider) -> None:
    elsewhere = BookSpider()
    back = RequestCodec(elsewhere).decode(codec.encode(Request(URL, callback=spider.parse_item))).request
    assert back.callback == elsewhere.parse_item


def closure() -> Callable[..., Any]:
    def inner(response: Any) -> None: ...

    return inner


@pytest.mark.parametrize(
    "callback",
    [
        lambda response: None,
        closure(),
        BookSpider().parse_item,
        BookSpider.parse_item,
        functools.partial(print, 1),
        [].append,
        BookSpider.Inner,
        type("Called", (), {"__call__": lambda self, response: None, "__eq__": lambda a, b: a is b})(),
    ],
    ids=range(8),
)
def test_a_callback_that_is_no_method_of_the_spider_is_refused(codec: RequestCodec, callback: Any) -> None:
    with pytest.raises(UnserialisableRequest, match="no method of BookSpider; make it one"):
        codec.encode(Request(URL, callback=callback))
    with pytest.raises(UnserialisableRequest, match="no method of BookSpider"):
        codec.encode(Request(URL, errback=callback))


def test_a_lambda_kept_on_the_spider_is_refused(codec: RequestCodec, spider: BookSpider) -> None:
    spider.kept = lambda response: None  # type: ignore[attr-defined]
    with pytest.raises(UnserialisableRequest):
        codec.encode(Request(URL, callback=spider.kept))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["parse_gone", "__init__", "__class__", "name", "rules", "crawler.stop", "Inner"])
def test_an_unknown_callback_is_named_with_the_spider(codec: RequestCodec, name: str) -> None:
    with pytest.raises(UnknownCallback, match=rf"'{name}', which BookSpider lacks"):
        codec.decode(pack_entry(["\x02a.example/", None, name]))


SELECTOR = TextResponse(URL, body=b"<p>a</p>", encoding="utf-8").css("p")[0]


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (Request(URL, meta={"a": {"b": [0, SELECTOR]}}), "meta['a']['b'][1] holds a scrapy.selector"),
        (Request(URL, cb_kwargs={"f": lambda: 0}), "cb_kwargs['f'] holds a function"),
        (Request(URL, cookies={"a": object()}), "cookies['a'] holds an object"),  # type: ignore[dict-item]
        (Request(URL, flags=[object()]), "flags[0] holds an object"),  # type: ignore[list-item]
        (Request(URL, meta=cast("dict[str, Any]", {1: SELECTOR})), "meta[1] holds a scrapy.selector"),
        (Sized(URL, size={"a": print}), "size['a'] holds a builtin_function_or_method"),
        (type("Local", (Request,), {})(URL), "would not find"),
        (Request(URL, body=b"a" * (1 << 20)), "bytes, at most"),
    ],
)
def test_what_cannot_travel_is_named(codec: RequestCodec, request_: Request, told: str) -> None:
    with pytest.raises(UnserialisableRequest) as caught:
        codec.encode(request_)
    assert told in str(caught.value)
    assert URL in str(caught.value)


def test_what_scrapy_noted_of_the_last_download_is_left_out(codec: RequestCodec) -> None:
    meta: dict[Any, Any] = {
        "download_latency": 0.1,
        "cached_response": SELECTOR,
        "depth": 1,
        "_auth_proxy": "http://a",
        "_own": 2,
    }
    back = codec.decode(codec.encode(Request(URL, meta=meta))).request
    assert back.meta == {"depth": 1, "_auth_proxy": "http://a", "_own": 2}
    meta[1] = 1
    assert codec.decode(codec.encode(Request(URL, meta=meta))).request.meta == cast("Any", back.meta) | {1: 1}


def test_an_instance_of_another_length_is_refused(codec: RequestCodec) -> None:
    with pytest.raises(ValueError, match="make it with"):
        codec.encode(Request(URL), b"123")


@pytest.mark.parametrize(
    "body",
    [
        b"https://a.example/",
        pack_entry([]),
        pack_entry([""]),
        pack_entry([1]),
        pack_entry(["\x09a.example"]),
        pack_entry(["\x02a/", -1]),
        pack_entry(["\x02a/", None, 1]),
        pack_entry(["\x02a/", None, None, [99, 1]]),
        pack_entry(["\x02a/", None, None, [-1, 1]]),
        pack_entry(["\x02a/", None, None, ["odd"]]),
        pack_entry(["\x02a/", *[None] * 8, [0, 5]]),
        pack_entry(["\x02a/", *[None] * 8, ["text", b"a"]]),
        pack_entry(["\x02a/", *[None] * 14, 99]),
        pack_entry(["\x02a/", *[None] * 16, 1]),
        pack({"url": "https://a.example/"}),
    ],
)
def test_a_malformed_entry_is_a_wire_error(codec: RequestCodec, body: bytes) -> None:
    with pytest.raises(WireError) as caught:
        codec.decode(body)
    assert not isinstance(caught.value, NewerWire)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("subprocess:Popen", "is no Request"),
        ("scrapy.spiders:Spider", "is no Request"),
        ("builtins:eval", "is not imported here"),
        ("antigravity:Request", "is not imported here"),
        (f"{__name__}:NoSuch", "is not imported here"),
    ],
)
def test_only_imported_request_classes_are_made(codec: RequestCodec, path: str, told: str) -> None:
    with pytest.raises(WireError, match=told):
        codec.decode(pack_entry(["\x02a/", *[None] * 14, path]))


def test_a_newer_entry_is_told_apart(codec: RequestCodec) -> None:
    body = bytearray(codec.encode(Request(URL)))
    body[1] = ENTRY_VERSION + 1
    with pytest.raises(NewerWire):
        codec.decode(bytes(body))


def test_requests_do_not_share_what_they_hold(codec: RequestCodec) -> None:
    body = codec.encode(Request(URL))
    one, other = codec.decode(body).request, codec.decode(body).request
    one.meta["a"] = one.cb_kwargs["a"] = one.cookies["a"] = 1  # type: ignore[call-overload]
    one.headers["A"] = "1"
    one.flags.append("a")
    assert fields(other) == fields(Request(URL))


def test_an_ordinary_link_is_small(codec: RequestCodec, spider: BookSpider) -> None:
    request = Request(URL, callback=spider.parse_item, meta={"depth": 1}, headers={"Referer": REFERER})
    assert len(codec.encode(request, INSTANCE)) <= 120


def test_the_direct_way_sets_what_the_constructor_of_this_scrapy_sets() -> None:
    assert directly_is_right()


def test_a_plain_spider_has_parse() -> None:
    class Plain(Spider):
        name = "plain"

        def parse(self, response: Any) -> None: ...

    spider = Plain()
    assert_comes_back(RequestCodec(spider), Request(URL, callback=spider.parse))
