"""Reads one start URL entry, a plain URL or a JSON object, and checks each of its fields."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from crawler.errors import BadSeed

MAX_SEED_BYTES: Final = 1 << 20
SCHEMES: Final = ("http", "https", "ftp", "s3")
_SHOWN: Final = 100
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NEWLINE: Final = re.compile(r"[\r\n\x00]")
_SCALAR: Final = (str, int, float)


@dataclass(frozen=True, slots=True)
class Seed:
    """A start URL and how to ask for it; `None` and empty stand for what the entry does not say.

    At most one of `body`, `json` and `form` is set. `unknown` holds keys that are none of these fields.
    """

    url: str
    method: str | None = None
    headers: Mapping[str, str | list[str]] = field(default_factory=dict)
    cookies: Mapping[str, Any] | list[dict[str, Any]] = field(default_factory=dict)
    body: str | None = None
    json: Any = None
    form: tuple[tuple[str, str], ...] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    cb_kwargs: Mapping[str, Any] = field(default_factory=dict)
    callback: str | None = None
    errback: str | None = None
    priority: int = 0
    dont_filter: bool | None = None
    encoding: str = "utf-8"
    flags: tuple[str, ...] = ()
    unknown: Mapping[str, Any] = field(default_factory=dict)


def parse_seed(raw: bytes, encoding: str = "utf-8", *, form: bool = False) -> Seed:
    """The seed that an entry describes; raises BadSeed that says what is wrong, was found and is to be done.

    Args:
        raw: the entry as it was pushed.
        encoding: of the entry.
        form: as scrapy-redis has it, all keys but `url`, `method` and `meta` are form data, which goes into
            the query of a GET (the default) and into the body of a POST.
    """
    if len(raw) > MAX_SEED_BYTES:
        raise BadSeed(f"the seed has over {MAX_SEED_BYTES} bytes; keep large data elsewhere")
    try:
        text = raw.decode(encoding).strip("\ufeff \t\r\n")
    except UnicodeDecodeError as error:
        raise BadSeed(
            f"the seed {raw[:_SHOWN]!r} is not {encoding} ({error.reason} at byte {error.start}); recode it"
        ) from error
    if not text.startswith("{"):
        return Seed(_url(text))
    content = _json_object(text)
    if "url" not in content:
        raise BadSeed(f'the seed {_shown(text)} lacks "url"; add it, as in {{"url": "https://example.com/"}}')
    fields: dict[str, Any] = {"url": _url(content.pop("url"))}
    if form:
        fields |= _checked({key: content.pop(key) for key in ("method", "meta") if key in content})
        return Seed(**{"method": "GET", **fields}, form=_form(content) or None)
    fields |= _checked({key: content.pop(key) for key in _CHECKS if key in content})
    bodies = [key for key in ("body", "json", "form") if key in fields]
    if len(bodies) > 1:
        raise BadSeed(f"the seed of {fields['url']} has {' and '.join(bodies)}; keep one of them")
    return Seed(**fields, unknown=content)


def _json_object(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadSeed(f"the seed {_shown(text)} is not JSON ({error}); correct it or push a plain URL") from error
    except (ValueError, RecursionError) as error:
        raise BadSeed(f"the seed {_shown(text)} is JSON out of bounds ({error}); simplify it") from error
    assert isinstance(content, dict)  # the text starts with a brace
    return content


def _checked(content: dict[str, Any]) -> dict[str, Any]:
    return {key: _CHECKS[key](value) for key, value in content.items() if value is not None}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _bad(name: str, value: object, wanted: str) -> BadSeed:
    return BadSeed(f'"{name}" of a seed is {_shown(value)} ({type(value).__name__}); give {wanted}')


def _url(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _bad("url", value, "a URL, as in https://example.com/")
    url = value.strip()
    if _CONTROL.search(url):
        raise _bad("url", value, "one URL without line breaks or control characters")
    try:
        parts = urlsplit(url)
        scheme, host, _ = parts.scheme, parts.hostname, parts.port
    except ValueError as error:
        raise BadSeed(f"the URL {_shown(url)} cannot be read ({error}); correct it") from error
    if "://" not in url:
        raise BadSeed(f"the URL {_shown(url)} lacks a scheme; push it as https://{url[:_SHOWN]}")
    if scheme not in SCHEMES:
        raise BadSeed(f"the URL {_shown(url)} has the scheme {scheme!r}; use one of {', '.join(SCHEMES)}")
    if not host:
        raise BadSeed(f"the URL {_shown(url)} has no host; push it as {scheme}://example.com/path")
    return url


def _method(value: object) -> str:
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise _bad("method", value, "an HTTP method, as in POST")
    return value.upper()


def _text(name: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str):
            raise _bad(name, value, "a string")
        return value

    return check


def _object(name: str) -> Callable[[object], dict[str, Any]]:
    def check(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _bad(name, value, "a JSON object")
        return value

    return check


def _name(name: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or not value.isidentifier():
            raise _bad(name, value, "the name of a method of the spider")
        return value

    return check


def _headers(value: object) -> dict[str, str | list[str]]:
    if not isinstance(value, dict):
        raise _bad("headers", value, "a JSON object of names and values")
    return {_header_name(name): _header_value(content) for name, content in value.items()}


def _header_name(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise _bad("headers", name, "header names, as in X-Token")
    return name


def _header_value(value: object) -> str | list[str]:
    if isinstance(value, list):
        return [_header_line(line) for line in value]
    return _header_line(value)


def _header_line(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, _SCALAR) or _NEWLINE.search(str(value)):
        raise _bad("headers", value, "values that are strings without line breaks, or numbers")
    return str(value)


def _cookies(value: object) -> dict[str, Any] | list[dict[str, Any]]:
    if isinstance(value, dict):
        for content in value.values():
            if not isinstance(content, _SCALAR):
                raise _bad("cookies", content, "values that are strings, numbers or booleans")
        return value
    if isinstance(value, list) and all(isinstance(one, dict) and {"name", "value"} <= one.keys() for one in value):
        return value
    raise _bad("cookies", value, 'an object of names and values, or a list of objects with "name" and "value"')


def _priority(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad("priority", value, "a whole number")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _bad("dont_filter", value, "true or false")
    return value


def _encoding(value: object) -> str:
    if not isinstance(value, str):
        raise _bad("encoding", value, "the name of an encoding, as in utf-8")
    try:
        codecs.lookup(value)
    except LookupError as error:
        raise _bad("encoding", value, "the name of an encoding, as in utf-8") from error
    return value


def _flags(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _bad("flags", value, "a list of strings")
    return tuple(value)


def _form(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise _bad("form", value, "a JSON object of names and values")
    pairs: list[tuple[str, str]] = []
    for name, content in value.items():
        contents = content if isinstance(content, list) else [content]
        pairs += [(name, _form_text(one)) for one in contents if one is not None]
    return tuple(pairs)


def _form_text(value: object) -> str:
    if not isinstance(value, _SCALAR):
        raise _bad("form", value, "values that are strings, numbers, booleans or lists of these")
    return value if isinstance(value, str) else json.dumps(value)


_CHECKS: Final[dict[str, Callable[[object], Any]]] = {
    "method": _method,
    "headers": _headers,
    "cookies": _cookies,
    "body": _text("body"),
    "json": lambda value: value,
    "form": _form,
    "meta": _object("meta"),
    "cb_kwargs": _object("cb_kwargs"),
    "callback": _name("callback"),
    "errback": _name("errback"),
    "priority": _priority,
    "dont_filter": _flag,
    "encoding": _encoding,
    "flags": _flags,
}
