"""Streams the URLs of sitemaps and sitemap indexes, in flat memory and within bounds."""

from __future__ import annotations

import io
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import IO, Any, Final, cast
from urllib.parse import urljoin, urlsplit

from lxml import etree

from crawler.errors import BadSeed
from crawler.seeds.sources import seeds_in_stream, uncompressed

_PEEKED: Final = 256


@dataclass(frozen=True, slots=True)
class SitemapLimits:
    """How far a sitemap may lead; the protocol allows 50 MB a file, 50,000 in an index, no nesting."""

    depth: int = 3
    sitemaps: int = 50_000
    bytes_each: int = 64 << 20


class SitemapReader:
    """Reads a sitemap with all that it refers to."""

    def __init__(
        self,
        fetch: Callable[[str], IO[bytes]],
        refuse: Callable[[BadSeed], None],
        limits: SitemapLimits = SitemapLimits(),
    ) -> None:
        """Make a reader.

        Args:
            fetch: opens a URL; raises OSError or BadSeed if it cannot.
            refuse: told of each sitemap or location that cannot be read, after which reading goes on.
            limits: what is refused because it leads too far.
        """
        self._fetch = fetch
        self._refuse = refuse
        self._limits = limits

    def seeds(self, url: str) -> Iterator[tuple[int, bytes]]:
        """Number and raw seed of each page that the sitemap at this URL names, sitemap by sitemap."""
        waiting = deque([(url, 1)])
        known = {url}
        number = 0
        while waiting:
            sitemap, depth = waiting.popleft()
            for kind, location in self._locations(sitemap):
                if kind == "url":
                    number += 1
                    yield number, location.encode()
                elif location not in known and self._may_follow(location, depth, len(known)):
                    known.add(location)
                    waiting.append((location, depth + 1))

    def _may_follow(self, location: str, depth: int, known: int) -> bool:
        limits = self._limits
        if urlsplit(location).scheme not in ("http", "https"):
            self._refuse(BadSeed(f"the sitemap {location!r:.200} is not on the web; name it itself if you trust it"))
        elif depth >= limits.depth:
            self._refuse(BadSeed(f"the sitemap {location!r:.200} is {depth} indexes deep; name it itself"))
        elif known >= limits.sitemaps:
            self._refuse(BadSeed(f"the sitemap {location!r:.200} is beyond {known} others; name it itself"))
        else:
            return True
        return False

    def _locations(self, sitemap: str) -> Iterator[tuple[str, str]]:
        count = 0
        try:
            with closing(self._fetch(sitemap)) as fetched:
                for kind, location in self._parsed(sitemap, fetched):
                    count += 1
                    yield kind, location
        except (OSError, EOFError, zlib.error, etree.XMLSyntaxError, BadSeed) as error:
            reason = f"{error}" or type(error).__name__
            self._refuse(BadSeed(f"the sitemap {sitemap} ends after {count} locations: {reason}; repair or split it"))

    def _parsed(self, sitemap: str, fetched: IO[bytes]) -> Iterator[tuple[str, str]]:
        bounded = _Bounded(uncompressed(fetched), self._limits.bytes_each)
        content = io.BufferedReader(bounded)
        if not content.peek(_PEEKED).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
            for _, seed in seeds_in_stream(content, sitemap):
                yield "url", seed.decode("utf-8", "replace")
            return
        for kind, text in _elements(content):
            if text:
                yield kind, urljoin(sitemap, text)
            else:
                self._refuse(BadSeed(f"the sitemap {sitemap} has a <loc> that is no text; correct it there"))


def _elements(content: IO[bytes]) -> Iterator[tuple[str, str]]:
    """What the text of each location is to the sitemap ("url" or "sitemap"), and that text."""
    parser = etree.iterparse(
        cast("Any", content),
        events=("end",),
        resolve_entities=False,
        no_network=True,
        remove_comments=True,
        remove_pis=True,
    )
    for _, element in parser:
        parent = element.getparent()
        if parent is None:
            continue
        if _name(element) == "loc" and _name(parent) in ("url", "sitemap"):
            yield _name(parent), "" if len(element) else (element.text or "").strip()
        if parent.getparent() is None:
            element.clear()
            while element.getprevious() is not None:
                del parent[0]


def _name(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more than so many bytes."""

    def __init__(self, stream: IO[bytes], limit_bytes: int) -> None:
        self._stream = stream
        self._limit_bytes = limit_bytes
        self._left = limit_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise BadSeed(f"got more than {self._limit_bytes} bytes")
        buffer[: len(data)] = data
        return len(data)
