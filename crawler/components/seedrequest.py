"""Makes the request of a seed, for a spider whose methods it may name."""

from __future__ import annotations

import json
import logging
from typing import Any
from weakref import WeakKeyDictionary

from scrapy import FormRequest, Request, Spider

from crawler.components.callbacks import SpiderMethods
from crawler.errors import BadSeed
from crawler.seeds.parse import Seed

log = logging.getLogger(__name__)

_warned: WeakKeyDictionary[Spider, set[str]] = WeakKeyDictionary()


def request_of_seed(seed: Seed, spider: Spider) -> Request:
    """The request that a seed describes; its unknown keys are in meta, and warned about once a name.

    With `body`, `json` or `form` the method is POST unless the seed has one. Raises UnknownCallback if the
    spider lacks a method that the seed names, BadSeed if Scrapy refuses a field.
    """
    methods = SpiderMethods(spider)
    fields: dict[str, Any] = {
        "method": seed.method or "GET",
        "headers": dict(seed.headers),
        "cookies": seed.cookies,
        "meta": {**seed.unknown, **seed.meta},
        "cb_kwargs": dict(seed.cb_kwargs),
        "callback": None if seed.callback is None else methods.named(seed.callback),
        "errback": None if seed.errback is None else methods.named(seed.errback),
        "priority": seed.priority,
        "dont_filter": bool(seed.dont_filter),
        "encoding": seed.encoding,
        "flags": list(seed.flags),
    }
    if seed.unknown:
        _warn(spider, set(seed.unknown))
    try:
        return _request(seed, fields)
    except (ValueError, TypeError) as error:
        raise BadSeed(f"the seed of {seed.url!r:.100} makes no request ({error}); correct that field") from error


def _request(seed: Seed, fields: dict[str, Any]) -> Request:
    if seed.form is not None:
        return FormRequest(seed.url, formdata=seed.form, **{**fields, "method": seed.method or "POST"})
    if seed.body is None and seed.json is None:
        return Request(seed.url, **fields)
    body = seed.body
    if body is None:
        body = json.dumps(seed.json)
    request = Request(seed.url, body=body, **{**fields, "method": seed.method or "POST"})
    if seed.body is None:
        request.headers.setdefault("Content-Type", "application/json")
    return request


def _warn(spider: Spider, names: set[str]) -> None:
    warned = _warned.setdefault(spider, set())
    if names - warned:
        warned |= names
        log.warning(
            'Seeds have unknown keys: %s. They are kept in meta; move them into "meta", or set '
            "CRAWLER_SEEDS_FORM = True if they are form data",
            ", ".join(sorted(names)),
        )
