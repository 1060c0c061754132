"""Requests and answers as HTTP/1.1 has them on the wire: parsing the one, encoding the other."""

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

HEAD_LIMIT_BYTES = 65_536
BODY_LIMIT_BYTES = 64 * 1024 * 1024
HTML = "text/html; charset=utf-8"
BODILESS = (204, 304)

_REASONS = {status.value: status.phrase for status in HTTPStatus}


@dataclass(slots=True)
class Request:
    """One request; header names are in lower case, the values of a repeated one joined."""

    host: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool


@dataclass(slots=True)
class Answer:
    """One response, and how long to wait before it is sent; ``head`` lacks its closing empty line."""

    status: int
    head: bytes
    body: bytes
    delay_seconds: float = 0.0

    def encoded(self, *, with_body: bool, keep_alive: bool) -> bytes:
        """The bytes to send."""
        end = b"\r\n" if keep_alive else b"Connection: close\r\n\r\n"
        return self.head + end + self.body if with_body else self.head + end


class BadRequest(Exception):
    """The bytes are no request that the lab reads; ``status`` is the answer to it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def answer_of(status: int, body: bytes, content_type: str = HTML, headers: Iterable[tuple[str, str]] = ()) -> Answer:
    """An answer with its length; header values are sent as UTF-8, as they are."""
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Odd')}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in headers]
    if status in BODILESS:
        return Answer(status, "".join(lines).encode(), b"")
    lines.append(f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n")
    return Answer(status, "".join(lines).encode(), body)


def read_request(unread: bytes, host: int) -> tuple[Request, int] | None:
    """The first request in these bytes and how many of them it took, or None while it is incomplete.

    Raises BadRequest for what is not HTTP/1, is too large, or has a chunked body.
    """
    head_size = unread.find(b"\r\n\r\n")
    if head_size < 0:
        if len(unread) > HEAD_LIMIT_BYTES:
            raise BadRequest(431, f"headers over {HEAD_LIMIT_BYTES} bytes")
        return None
    first, *lines = unread[:head_size].decode("latin-1").split("\r\n")
    method, target, version = _request_line(first)
    headers = _headers(lines)
    start = head_size + 4
    end = start + _body_size(headers)
    if len(unread) < end:
        return None
    connection = headers.get("connection", "").lower()
    keep_alive = connection == "keep-alive" if version == "HTTP/1.0" else connection != "close"
    return Request(host, method, target, headers, unread[start:end], keep_alive), end


def _request_line(line: str) -> tuple[str, str, str]:
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(400, f"request line must be METHOD TARGET HTTP/1.1, got {line[:80]!r}")
    method, target, version = words
    if not target.startswith("/"):
        scheme, _, rest = target.partition("://")
        if not rest or scheme not in ("http", "https"):
            raise BadRequest(400, f"target must be a path or a URL, got {target[:80]!r}")
        target = "/" + rest.partition("/")[2]
    return method, target, version


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest(400, f"header must be NAME: VALUE, got {line[:80]!r}")
        key, value = name.lower(), value.strip()
        if key in headers:
            value = headers[key] + ("; " if key == "cookie" else ", ") + value
        headers[key] = value
    return headers


def _body_size(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequest(501, "chunked bodies are not read; send Content-Length")
    length = headers.get("content-length")
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit()):
        raise BadRequest(400, f"Content-Length must be a number, got {length[:80]!r}")
    if int(length) > BODY_LIMIT_BYTES:
        raise BadRequest(413, f"body over {BODY_LIMIT_BYTES} bytes")
    return int(length)
