"""Turns Scrapy requests into entries of the frontier and back, without losing a field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from scrapy import Request, Spider
from scrapy.http.headers import Headers
from scrapy.http.request import NO_CALLBACK
from scrapy.http.request.form import FormRequest
from scrapy.http.request.json_request import JsonRequest
from scrapy.http.request.rpc import XmlRpcRequest

from crawler.components.callbacks import SpiderMethods
from crawler.components.queues import OwnSlot
from crawler.components.rebuild import BASE_ATTRIBUTES, rebuild, rebuild_plain
from crawler.errors import UnknownCallback, UnserialisableRequest, WireError
from crawler.frontier.classes import class_path, loaded_class
from crawler.frontier.identity import DIGEST_BYTES, INSTANCE_BYTES
from crawler.frontier.wire import SCALARS, Unpackable, explain, pack_entry, plain, unpack_entry

# The order in these tables, and that of the slots, is the wire format: add at the end only.
_META_KEYS: Final = (
    *("depth", "rule", "link_text", "download_timeout", "download_slot", "retry_times", "max_retry_times"),
    *("redirect_times", "redirect_ttl", "redirect_urls", "redirect_reasons", "handle_httpstatus_list"),
    *("handle_httpstatus_all", "dont_redirect", "dont_retry", "dont_cache", "dont_merge_cookies"),
    *("dont_obey_robotstxt", "cookiejar", "proxy", "_auth_proxy", "_scheme_proxy", "bindaddress"),
    *("download_maxsize", "download_warnsize", "is_start_request", "allow_offsite", "referrer_policy"),
    *("verbatim_url", "item", "page"),
)
_HEADER_NAMES: Final = (
    *(b"Referer", b"User-Agent", b"Accept", b"Accept-Language", b"Accept-Encoding", b"Content-Type"),
    *(b"Authorization", b"Proxy-Authorization", b"Cookie", b"Origin", b"X-Requested-With"),
    *(b"If-None-Match", b"If-Modified-Since"),
)
_URL_STARTS: Final = ("", "https://www.", "https://", "http://www.", "http://")
_REQUEST_CLASSES: Final = (Request, FormRequest, JsonRequest, XmlRpcRequest)
_SLOTS: Final[dict[str, Any]] = {
    "url": str,
    "instance": (int, bytes),
    "callback": (str, bool),
    "meta": (int, list, dict),
    "referer": bytes,
    "errback": (str, bool),
    "priority": int,
    "dont_filter": bool,
    "cb_kwargs": dict,
    "headers": list,
    "method": str,
    "body": bytes,
    "cookies": (dict, list),
    "flags": list,
    "encoding": str,
    "class": (int, str),
    "further": dict,
}
_PLAIN: Final = (None, None)
# Scrapy's, about the last download only.
_OF_ONE_FETCH: Final = frozenset({"download_latency", "cached_response"})
_LONGEST_SHARED: Final = 255  # what a Referer has in common with its URL is counted in one byte

_META_CODES: Final = {name: code for code, name in enumerate(_META_KEYS)}
_META_NAMES: Final = dict(enumerate(_META_KEYS))
_HEADER_CODES: Final = {name: code for code, name in enumerate(_HEADER_NAMES)}
_HEADERS_BY_CODE: Final = dict(enumerate(_HEADER_NAMES))
_CLASS_CODES: Final[dict[type, int]] = {cls: code for code, cls in enumerate(_REQUEST_CLASSES)}


class Decoded(NamedTuple):
    """A request as it was put, and the identity that it was put with (empty if its fingerprint tells it)."""

    request: Request
    instance: bytes


class RequestCodec:
    """Writes and reads the requests of one spider; callbacks and errbacks are its methods and go by name."""

    def __init__(self, spider: Spider) -> None:
        """Take callbacks from this spider."""
        self._methods = SpiderMethods(spider)
        self._spider_class = type(spider).__qualname__

    def encode(self, request: Request, instance: bytes = b"") -> bytes:
        """Bytes of an entry; raises UnserialisableRequest that names what cannot travel, and its type.

        Args:
            request: of any imported class that Scrapy could copy by its `attributes`.
            instance: 8 bytes that name this instance of the request, 16 where it is fetched in place of the page
                whose digest these are, or none.
        """
        try:
            return pack_entry(self._slots(request, instance))
        except Unpackable as error:
            raise UnserialisableRequest(_explanation(request)) from error
        except WireError as error:
            raise UnserialisableRequest(f"{request!r} cannot be queued: {error}") from error

    def decode(self, body: bytes) -> Decoded:
        """The request of an entry.

        Raises UnknownCallback if the spider lacks its callback or errback, NewerWire if a newer version wrote
        it, WireError if it is no entry or its class is not imported here.
        """
        slots = unpack_entry(body)
        try:
            for slot, kind in zip(slots, _SLOTS.values(), strict=False):
                if slot is not None and not isinstance(slot, kind):
                    raise TypeError(f"a slot is {slot!r:.80}")
            return self._decoded(slots)
        except UnknownCallback as error:
            error.url = _whole_url(slots[0])
            raise
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise WireError(f"got an entry with a wrong field ({error}): {body[:80]!r}; discard it") from error

    def _slots(self, request: Request, instance: bytes) -> list[Any]:
        cls = type(request)
        url = request.url
        referer, headers = _headers_slots(request.headers, url)
        return [
            _shorter_url(url),
            _instance_slot(instance),
            self._name(request, request.callback),
            _meta_slot(request.meta),
            referer,
            self._name(request, request.errback),
            int(request.priority) or None,
            True if request.dont_filter else None,
            _filled(request.cb_kwargs),
            headers,
            None if request.method == "GET" else request.method,
            request.body or None,
            _filled(request.cookies),
            _filled(request.flags),
            None if request.encoding == "utf-8" else request.encoding,
            *(_PLAIN if cls is Request else _class_slots(request, cls)),
        ]

    def _name(self, request: Request, function: Callable[..., Any] | None) -> str | bool | None:
        if function is None:
            return None
        if function is NO_CALLBACK:
            return False
        name = self._methods.name_of(function)
        if name is None:
            raise UnserialisableRequest(
                f"{request!r} cannot be queued: its callback or errback {function!r} is no method of "
                f"{self._spider_class}; make it one, and pass its values in cb_kwargs"
            )
        return name

    def _function(self, name: str | bool | None) -> Callable[..., Any] | None:
        if name is None:
            return None
        return NO_CALLBACK if name is False else self._methods.named(str(name))

    def _decoded(self, slots: list[Any]) -> Decoded:
        slots += [None] * (len(_SLOTS) - len(slots))
        url, instance, callback, meta, referer, errback, priority, dont_filter, cb_kwargs = slots[:9]
        headers, method, body, cookies, flags, encoding, cls, further = slots[9:]
        url = _whole_url(url)
        encoding = encoding or "utf-8"
        fields = {
            "url": url,
            "callback": self._function(callback),
            "method": method or "GET",
            "headers": _headers_of(referer, headers, url, encoding),
            "body": body or b"",
            "cookies": cookies,
            "meta": _meta_of(meta),
            "encoding": encoding,
            "priority": priority or 0,
            "dont_filter": bool(dont_filter),
            "errback": self._function(errback),
            "flags": flags,
            "cb_kwargs": cb_kwargs,
        }
        if cls is None and further is None:
            request = rebuild_plain(fields)
        else:
            request = rebuild(_request_class(cls), {**fields, **(further or {})})
        return Decoded(request, _instance_of(instance))


def _shorter_url(url: str) -> str:
    for code, start in ((2, "https://"), (4, "http://")):
        if url.startswith(start):
            if url.startswith("www.", len(start)):
                return chr(code - 1) + url[len(start) + 4 :]
            return chr(code) + url[len(start) :]
    return "\0" + url


def _whole_url(slot: str) -> str:
    return _URL_STARTS[ord(slot[0])] + slot[1:]


def _instance_slot(instance: bytes) -> int | bytes | None:
    if not instance:
        return None
    if len(instance) == DIGEST_BYTES:
        return instance
    if len(instance) != INSTANCE_BYTES:
        raise ValueError(f"got an instance id of {len(instance)} bytes; make it with identity.instance_id")
    return int.from_bytes(instance, "big")


def _instance_of(slot: int | bytes | None) -> bytes:
    if slot is None:
        return b""
    return slot if isinstance(slot, bytes) else slot.to_bytes(INSTANCE_BYTES, "big")


def _filled(value: object) -> Any:
    return plain(value) if value else None


def _meta_slot(meta: dict[Any, Any]) -> Any:
    if len(meta) == 1:
        depth = meta.get("depth")
        if type(depth) is int and depth >= 0:
            return depth
    flat: list[Any] = []
    for key, value in meta.items():
        if type(key) is not str:
            return plain({k: v for k, v in meta.items() if k not in _OF_ONE_FETCH and type(v) is not OwnSlot})
        if key not in _OF_ONE_FETCH and type(value) is not OwnSlot:
            flat.append(_META_CODES.get(key, key))
            flat.append(value if type(value) in SCALARS else plain(value))
    return flat or None


def _meta_of(slot: Any) -> dict[Any, Any] | None:
    if slot is None or type(slot) is dict:
        return slot
    if type(slot) is int:
        return {"depth": slot}
    keys = iter(slot)
    return {_META_NAMES[key] if type(key) is int else key: value for key, value in zip(keys, keys, strict=True)}


def _headers_slots(headers: dict[bytes, list[bytes]], url: str) -> tuple[bytes | None, list[Any] | None]:
    """The Referer as what differs from the URL, if it is the last header, and the others as name, value, …"""
    names = list(headers)
    referer = None
    if names and names[-1] == b"Referer":
        values = dict.__getitem__(headers, b"Referer")
        if len(values) == 1:
            names.pop()
            referer = _shorter_referer(values[0], url.encode("utf-8", "surrogatepass"))
    flat: list[Any] = []
    for name in names:
        values = dict.__getitem__(headers, name)
        flat.append(_HEADER_CODES.get(name, name))
        flat.append(values[0] if len(values) == 1 else list(values))
    return referer, flat or None


def _shorter_referer(referer: bytes, url: bytes) -> bytes:
    size = min(len(referer), len(url), _LONGEST_SHARED)
    differing = int.from_bytes(referer[:size], "big") ^ int.from_bytes(url[:size], "big")
    shared = size - (differing.bit_length() + 7) // 8
    return bytes((shared,)) + referer[shared:]


def _headers_of(referer: bytes | None, slot: list[Any] | None, url: str, encoding: str) -> Headers | None:
    if referer is None and slot is None:
        return None
    headers = Headers(encoding=encoding)
    names = iter(slot or ())
    for name, values in zip(names, names, strict=True):
        key = _HEADERS_BY_CODE[name] if type(name) is int else bytes(name)
        dict.__setitem__(headers, key, [values] if type(values) is bytes else [bytes(value) for value in values])
    if referer is not None:
        shared = url.encode("utf-8", "surrogatepass")[: referer[0]]
        dict.__setitem__(headers, b"Referer", [shared + referer[1:]])
    return headers


def _class_slots(request: Request, cls: type[Request]) -> tuple[int | str | None, dict[str, Any] | None]:
    path = _CLASS_CODES.get(cls) or class_path(cls)
    if path is None:
        raise UnserialisableRequest(
            f"{request!r} cannot be queued: other workers would not find {cls!r}; define it in a module"
        )
    return path, {name: plain(value) for name, value in _further_fields(request)} or None


def _further_fields(request: Request) -> list[tuple[str, Any]]:
    return [(name, getattr(request, name)) for name in request.attributes if name not in BASE_ATTRIBUTES]


def _request_class(slot: int | str | None) -> type[Request]:
    cls = loaded_class(slot) if isinstance(slot, str) else _REQUEST_CLASSES[slot or 0]
    if not issubclass(cls, Request):
        raise WireError(f"got class {slot!r}, which is no Request; discard the entry")
    return cls


def _explanation(request: Request) -> str:
    fields: dict[str, Any] = {
        "meta": {key: value for key, value in request.meta.items() if key not in _OF_ONE_FETCH},
        **{name: getattr(request, name) for name in ("cb_kwargs", "cookies", "flags")},
        **dict(_further_fields(request)),
    }
    for name, value in fields.items():
        try:
            plain(value)
        except Unpackable:
            return (
                f"{request!r} cannot be queued: {name}{explain(value)}; pass plain data, dates or items, "
                "such as the text of a Selector or the URL of a Response"
            )
    return f"{request!r} cannot be queued: one of its fields changed while it was written; put it again"
