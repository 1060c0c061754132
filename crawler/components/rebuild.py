"""Puts requests together again from their fields, for plain ones without the work of the constructor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from scrapy import Request
from scrapy.http.headers import Headers

BASE_ATTRIBUTES: Final = (
    *("url", "callback", "method", "headers", "body", "cookies", "meta", "encoding", "priority"),
    *("dont_filter", "errback", "flags", "cb_kwargs"),
)
_EMPTY_IS_NONE: Final = isinstance(vars(Request).get("headers"), property)  # from Scrapy 2.19


def rebuild(cls: type[Request], fields: dict[str, Any]) -> Request:
    """A request of any class, by its constructor, which gets those fields that the class declares."""
    return cls(**{name: value for name, value in fields.items() if name in cls.attributes})


def _rebuild_directly(fields: dict[str, Any]) -> Request:
    """Set what the constructor would set; quoting the URL and the rest was done when it was first made."""
    request = Request.__new__(Request)
    encoding, headers = fields["encoding"], fields["headers"]
    request._encoding = encoding
    request._url = fields["url"]
    request._body = fields["body"]
    request._meta = fields["meta"]
    request._cb_kwargs = fields["cb_kwargs"]
    request.method = fields["method"]
    request.priority = fields["priority"]
    request.callback = fields["callback"]
    request.errback = fields["errback"]
    request.dont_filter = fields["dont_filter"]
    if _EMPTY_IS_NONE:
        request.headers, request.cookies, request.flags = headers, fields["cookies"], fields["flags"]
    else:
        request.headers = Headers(encoding=encoding) if headers is None else headers
        request.cookies = fields["cookies"] or {}
        request.flags = fields["flags"] or []
    return request


def _state(request: Request) -> dict[str, Any]:
    names = {*getattr(request, "__dict__", ()), *getattr(request, "__slots__", ())} - {"__weakref__"}
    return {name: getattr(request, name, "not set") for name in names}


def directly_is_right() -> bool:
    """Whether this Scrapy's constructor sets exactly what is set here; another version may set more."""
    bare = dict.fromkeys(BASE_ATTRIBUTES) | {
        "url": "https://a.example/",
        "method": "GET",
        "body": b"",
        "encoding": "utf-8",
        "priority": 0,
        "dont_filter": False,
    }
    full = bare | {
        "method": "POST",
        "body": b"\xff",
        "headers": Headers({"A": ["1", "2"]}),
        "cookies": {"a": "b"},
        "meta": {"a": 1},
        "cb_kwargs": {"a": 1},
        "flags": ["a"],
        "priority": 1,
        "dont_filter": True,
    }
    if set(Request.attributes) != set(BASE_ATTRIBUTES):
        return False
    return all(_state(_rebuild_directly(f)) == _state(rebuild(Request, f)) for f in (bare, full))


def _rebuild_by_constructor(fields: dict[str, Any]) -> Request:
    return rebuild(Request, fields)


rebuild_plain: Final[Callable[[dict[str, Any]], Request]] = (
    _rebuild_directly if directly_is_right() else _rebuild_by_constructor
)
