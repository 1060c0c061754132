"""The places that an operator names as sources of seeds, read one after the other."""

import logging
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from crawler import __version__
from crawler.errors import ConfigError
from crawler.seeds.sitemap import SitemapReader
from crawler.seeds.sources import seeds_in_file, seeds_in_stream

log = logging.getLogger(__name__)

FETCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Places:
    """URLs, files ('-' is standard input) and sitemaps (URLs or files)."""

    urls: Sequence[str] = ()
    files: Sequence[str] = ()
    sitemaps: Sequence[str] = ()

    @property
    def name(self) -> str:
        """A text that is the same for the same places."""
        return "\n".join([*self.urls, *self.files, *self.sitemaps])


def places_of(urls: Sequence[str], files: Sequence[str], sitemaps: Sequence[str]) -> Places:
    """Checks the places before anything is fed.

    Raises:
        ConfigError: none is given, or a file is not there.
    """
    if not (urls or files or sitemaps):
        raise ConfigError("nothing to feed: give URLs, --file FILE (- for standard input) or --sitemap URL")
    for name in [*files, *(sitemap for sitemap in sitemaps if not _is_url(sitemap))]:
        if name != "-" and not Path(name).is_file():
            raise ConfigError(f"there is no file {name!r} to read seeds from; give its path, or - for standard input")
    return Places(tuple(urls), tuple(files), tuple(sitemaps))


def seeds_of(places: Places) -> Iterator[tuple[str, bytes]]:
    """Place and raw seed of each seed; what cannot be read of a sitemap is logged, and the rest goes on.

    Raises:
        BadSeed: a file is damaged.
    """
    for at, url in enumerate(places.urls, 1):
        yield f"URL {at}", url.encode()
    for name in places.files:
        numbered = seeds_in_stream(sys.stdin.buffer) if name == "-" else seeds_in_file(Path(name))
        for line, raw in numbered:
            yield f"{name} line {line}", raw
    reader = SitemapReader(_open, lambda error: log.warning("%s", error))
    for name in places.sitemaps:
        for number, raw in reader.seeds(name):
            yield f"{name} entry {number}", raw


def _is_url(text: str) -> bool:
    return urlsplit(text).scheme in {"http", "https"}


def _open(name: str) -> IO[bytes]:
    if not _is_url(name):
        return Path(name).open("rb")
    request = urllib.request.Request(name, headers={"User-Agent": f"trawlnet/{__version__}"})  # noqa: S310 - only http and https reach this line
    opened: IO[bytes] = urllib.request.urlopen(request, timeout=FETCH_SECONDS)  # noqa: S310 - as above
    return opened
