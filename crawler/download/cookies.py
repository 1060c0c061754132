"""Cookies that a fleet shares: kept in Redis by jar and domain, and as far as needed in each worker."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from crawler.redisdb.scripts import Call, read_script

COOKIES_MOST = 180
"""Of a domain, at most; as many as browsers keep."""

CHANGES_MOST = 500
"""Changes of others that a worker looks through; after more it loads all anew."""

PLACES_MOST = 50_000


class SharedCookie(NamedTuple):
    """A cookie on the wire; ``value`` None removes it, ``expires`` is in seconds of the epoch, 0 without end."""

    name: str
    value: str | None
    path: str
    expires: int
    secure: bool
    domain_specified: bool
    path_specified: bool
    version: int


Cookies = Mapping[str, Sequence[SharedCookie]]
"""Cookies by domain, as http.cookiejar names it: with a dot where it holds for the hosts below too."""


@dataclass(frozen=True, slots=True)
class CookieScripts:
    """Builds the calls; ``keys`` are the partition's."""

    keys: Sequence[str]
    lifetime_seconds: float

    def keep(self, jar: str, cookies: Cookies) -> Call:
        """Keeps cookies for the fleet; answered with the version of the change, or 0 if nothing changed."""
        args: list[bytes | str | int] = [jar, round(self.lifetime_seconds * 1000), COOKIES_MOST]
        for domain, given in cookies.items():
            args += (domain, _pack(given))
        return Call(_KEEP, self.keys, args)

    def load(self, known: int, jar: str, missing: Sequence[str], loaded: Sequence[str]) -> Call:
        """Asks what changed since a version, and for cookies: of missing domains, and of loaded ones that changed."""
        return Call(_LOAD, self.keys, [known, CHANGES_MOST, jar, _pack(missing), _pack(loaded)])


_KEEP = read_script("download", "keep")
_LOAD = read_script("download", "load")


class CookieStore:
    """One worker's view of the fleet's cookies. Used by one coroutine at a time.

    ``newest`` tells the newest version that this worker has heard of; with each claim it hears of one that is no older
    than the cookies of the pages that the claimed links were found on.
    """

    def __init__(
        self, scripts: CookieScripts, ask: Callable[[Call], Awaitable[Any]], newest: Callable[[], int]
    ) -> None:
        self._scripts = scripts
        self._ask = ask
        self._newest = newest
        self._version = 0
        self._loaded: set[tuple[str, str]] = set()

    def is_current(self, jar: str, domains: Sequence[str]) -> bool:
        """Whether what this worker has of a jar and these domains is all that it has heard of."""
        newest = self._newest()
        return newest == 0 or (newest <= self._version and all((jar, domain) in self._loaded for domain in domains))

    async def load(self, jar: str, domains: Sequence[str]) -> Cookies:
        """Cookies of a jar in these domains; without those domains that have not changed since they were loaded."""
        missing = [domain for domain in domains if (jar, domain) not in self._loaded]
        loaded = [domain for domain in domains if (jar, domain) in self._loaded]
        reply = await self._ask(self._scripts.load(self._version, jar, missing, loaded))
        version, changes, found = msgpack.unpackb(reply, unicode_errors="surrogateescape")
        if changes is False or len(self._loaded) > PLACES_MOST:
            self._loaded.clear()
        else:
            self._loaded.difference_update((of, domain) for of, domain in changes)
        self._loaded.update((jar, domain) for domain in domains)
        self._version = version
        parts = iter(found)
        return {
            domain: [SharedCookie(*cookie) for cookie in _unpack(packed)] if packed else []
            for domain, packed in zip(parts, parts, strict=True)
        }

    async def keep(self, jar: str, cookies: Cookies) -> None:
        """Shares changes that this worker made; returns when they are in Redis."""
        version = await self._ask(self._scripts.keep(jar, cookies))
        if version == self._version + 1:
            self._version = version
            self._loaded.update((jar, domain) for domain in cookies)


def _pack(value: Any) -> bytes:
    # The server's decoder knows no separate type for bytes.
    packed: bytes = msgpack.packb(value, use_bin_type=False, unicode_errors="surrogateescape")
    return packed


def _unpack(packed: str | bytes) -> Any:
    body = packed.encode(errors="surrogateescape") if isinstance(packed, str) else packed
    return msgpack.unpackb(body, unicode_errors="surrogateescape")
