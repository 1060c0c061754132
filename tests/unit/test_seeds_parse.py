"""A start URL entry becomes the request it describes, or an error that says what is wrong with it."""

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider

from crawler.components.seedrequest import request_of_seed
from crawler.errors import BadSeed, UnknownCallback
from crawler.seeds.parse import MAX_SEED_BYTES, Seed, parse_seed

URL = "https://example.com/a?b=c"


class PlainSpider(Spider):
    name = "plain"

    def parse_item(self, response: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...


def request_of(content: dict[str, Any] | str, *, form: bool = False) -> Request:
    raw = content if isinstance(content, str) else json.dumps(content)
    return request_of_seed(parse_seed(raw.encode(), form=form), PlainSpider())


@pytest.mark.parametrize(
    ("raw", "url"),
    [
        (b" https://example.com/a\r\n", "https://example.com/a"),
        (b"\xef\xbb\xbfhttp://example.com", "http://example.com"),
        ("https://bücher.example/ä".encode(), "https://bücher.example/ä"),
        (b"HTTP://example.com:8080/", "HTTP://example.com:8080/"),
        (b"ftp://example.com/a", "ftp://example.com/a"),
        (b"s3://bucket/key", "s3://bucket/key"),
        (b"http://[::1]/", "http://[::1]/"),
        (b'\n {"url": " https://example.com/a "}', "https://example.com/a"),
    ],
)
def test_a_url_alone_is_a_seed(raw: bytes, url: str) -> None:
    assert parse_seed(raw) == Seed(url)


def test_the_encoding_of_the_key_is_obeyed() -> None:
    assert parse_seed("https://example.com/ä".encode("latin-1"), "latin-1").url == "https://example.com/ä"


def test_every_field_reaches_the_request() -> None:
    request = request_of(
        {
            "url": URL,
            "method": "put",
            "headers": {"X-A": "1", "X-Many": ["a", "b"], "X-Number": 7},
            "cookies": {"a": "b", "n": 1},
            "body": "text",
            "meta": {"depth": 2, "own": [1, None]},
            "cb_kwargs": {"page": 3},
            "callback": "parse_item",
            "errback": "failed",
            "priority": 5,
            "dont_filter": True,
            "encoding": "latin-1",
            "flags": ["f"],
        }
    )
    assert (request.url, request.method, request.body) == (URL, "PUT", b"text")
    assert list(request.headers.items()) == [
        (b"X-A", [b"1"]),
        (b"X-Many", [b"a", b"b"]),
        (b"X-Number", [b"7"]),
    ]
    assert request.cookies == {"a": "b", "n": 1}
    assert request.meta == {"depth": 2, "own": [1, None]}
    assert request.cb_kwargs == {"page": 3}
    assert (getattr(request.callback, "__name__", ""), getattr(request.errback, "__name__", "")) == (
        "parse_item",
        "failed",
    )
    assert (request.priority, request.dont_filter, request.encoding) == (5, True, "latin-1")
    assert request.flags == ["f"]


def test_null_stands_for_an_absent_field() -> None:
    nothing = dict.fromkeys(("method", "headers", "meta", "priority", "callback", "json", "body"))
    assert parse_seed(json.dumps({"url": URL, **nothing}).encode()) == Seed(URL)


def test_json_and_form_bodies_are_posted_unless_the_seed_says_otherwise() -> None:
    as_json = request_of({"url": URL, "json": {"a": [1]}})
    assert (as_json.method, json.loads(as_json.body)) == ("POST", {"a": [1]})
    assert as_json.headers["Content-Type"] == b"application/json"
    form = request_of({"url": URL, "form": {"a": ["1", 2], "b": True, "c": None}})
    assert (form.method, form.body) == ("POST", b"a=1&a=2&b=true")
    assert request_of({"url": URL, "form": {"q": "x"}, "method": "GET"}).url == "https://example.com/a?q=x"
    assert request_of({"url": URL, "body": "x"}).method == "POST"


def test_unknown_keys_leave_the_url_alone_and_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    spider = PlainSpider()
    seed = parse_seed(json.dumps({"url": URL, "original_author": "x", "meta": {"a": 1}}).encode())
    with caplog.at_level(logging.WARNING):
        requests = [request_of_seed(seed, spider) for _ in range(3)]
    assert {request.url for request in requests} == {URL}
    assert requests[0].meta == {"original_author": "x", "a": 1}
    assert [record.getMessage() for record in caplog.records if "original_author" in record.getMessage()] == [
        caplog.records[0].getMessage()
    ]


def test_form_behaviour_of_scrapy_redis() -> None:
    get = request_of({"url": "https://example.com/s", "q": "x", "page": 2, "meta": {"a": 1}}, form=True)
    assert type(get) is FormRequest
    assert (get.method, get.url, get.meta) == ("GET", "https://example.com/s?q=x&page=2", {"a": 1})
    post = request_of({"url": URL, "method": "POST", "headers": "x"}, form=True)
    assert (post.method, post.url, post.body) == ("POST", URL, b"headers=x")
    assert request_of({"url": URL}, form=True).url == URL


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"www.example.com/x", "'www.example.com/x' lacks a scheme; push it as https://www.example.com/x"),
        (b"localhost:8080/x", "lacks a scheme"),
        (b"", "a URL, as in"),
        (b"  \n", "a URL, as in"),
        (b"https:///x", "has no host"),
        (b"https://", "has no host"),
        (b"file:///etc/passwd", "scheme 'file'; use one of http, https, ftp, s3"),
        (b"javascript://a/alert", "scheme 'javascript'"),
        (b"http://example.com:port/", "cannot be read"),
        (b"http://[::1/", "cannot be read"),
        (b"http://a.example/\nhttp://b.example/", "one URL without line breaks"),
        (b"http://a.example/\x00", "control characters"),
        (b"\xff\xfehttp", "is not utf-8"),
        (b"[1]", "lacks a scheme"),
        (b"{", "is not JSON"),
        (b'{"url": ', "is not JSON"),
        (b'{"a": 1}', 'lacks "url"'),
        (b'{"url": null}', '"url" of a seed is None'),
        (b'{"url": 5}', '"url" of a seed is 5 (int)'),
        (b'{"url": ["https://a.example"]}', '"url" of a seed is'),
        (b'{"url": "www.example.com"}', "lacks a scheme"),
        (b'{"a":' * 100_000, "out of bounds"),
        (b'{"url": "http://a.example", "priority": ' + b"9" * 5000 + b"}", "out of bounds"),
        (b"http://a.example/" + b"a" * MAX_SEED_BYTES, "keep large data elsewhere"),
    ],
)
def test_a_bad_entry_says_what_is_wrong(raw: bytes, told: str) -> None:
    with pytest.raises(BadSeed) as caught:
        parse_seed(raw)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "field",
    [
        {"method": 5},
        {"method": "GET /"},
        {"headers": ["a"]},
        {"headers": {"X-A": None}},
        {"headers": {"X-A": True}},
        {"headers": {"X-A": "a\r\nX-B: b"}},
        {"headers": {"X A": "a"}},
        {"cookies": "a=b"},
        {"cookies": {"a": {}}},
        {"cookies": [{"name": "a"}]},
        {"cookies": [5]},
        {"body": 5},
        {"form": []},
        {"form": {"a": {"b": 1}}},
        {"meta": []},
        {"cb_kwargs": "a"},
        {"callback": "a.b"},
        {"errback": 5},
        {"priority": "5"},
        {"priority": True},
        {"priority": 1.5},
        {"dont_filter": 1},
        {"encoding": "utf-9"},
        {"encoding": 8},
        {"flags": "a"},
        {"flags": [1]},
    ],
    ids=repr,
)
def test_a_field_of_a_wrong_type_is_named_with_what_to_give(field: dict[str, Any]) -> None:
    (name,) = field
    with pytest.raises(BadSeed, match=rf'"{name}" of a seed is .*; give '):
        parse_seed(json.dumps({"url": URL, **field}).encode())


def test_two_bodies_are_refused() -> None:
    with pytest.raises(BadSeed, match="has body and json; keep one of them"):
        parse_seed(json.dumps({"url": URL, "body": "a", "json": 1}).encode())


def test_whole_numbers_are_priorities() -> None:
    assert parse_seed(json.dumps({"url": URL, "priority": -5.0}).encode()).priority == -5


def test_a_seed_that_says_nothing_of_filtering_is_told_from_one_that_wants_it() -> None:
    said = [parse_seed(json.dumps({"url": URL, **more}).encode()) for more in ({}, {"dont_filter": False})]
    assert [seed.dont_filter for seed in said] == [None, False]
    assert request_of({"url": URL}).dont_filter is False


def test_an_unknown_method_of_the_spider_is_named() -> None:
    with pytest.raises(UnknownCallback, match=r"'parse_gone', which PlainSpider lacks"):
        request_of({"url": URL, "callback": "parse_gone"})


def test_what_scrapy_refuses_is_a_bad_seed() -> None:
    with pytest.raises(BadSeed, match="makes no request"):
        request_of('{"url": "http://a.example/\\ud800"}')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from([*Seed.__dataclass_fields__, "other"])


@given(st.dictionaries(FIELDS, JSON, max_size=5), st.booleans())
def test_any_json_seed_is_a_request_or_a_bad_seed(content: dict[str, Any], form: bool) -> None:
    try:
        request = request_of({**content, "url": URL}, form=form)
    except (BadSeed, UnknownCallback):
        return
    assert request.url.startswith("https://example.com/a")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_seed_or_a_bad_seed(raw: bytes) -> None:
    try:
        seed = parse_seed(raw)
    except BadSeed:
        return
    assert "://" in seed.url
