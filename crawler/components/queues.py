"""Which queue a request waits in, and with it whose pace, cap and blocks it shares."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import lru_cache

from scrapy import Request
from scrapy.utils.httpobj import urlparse_cached
from tldextract import TLDExtract

from crawler.frontier.identity import queue_of

KNOWN_HOSTS = 10_000

Learn = Callable[[str, str], Awaitable[str]]
"""Takes a host and an address of it; returns the one that the whole fleet goes by."""

_split = TLDExtract(cache_dir=None, suffix_list_urls=())  # the list that it brings along: workers must agree


class OwnSlot(str):
    """A ``download_slot`` that the downloader named by itself.

    Scrapy leaves it in ``meta``, where it would go on to redirects and to requests for which a callback copies it.
    """

    __slots__ = ()


@lru_cache(maxsize=KNOWN_HOSTS)
def registered_domain(host: str) -> str:
    """The part of a host that somebody registered, such as example.co.uk; the host itself where there is none."""
    parts = _split(host)
    return f"{parts.domain}.{parts.suffix}" if parts.domain and parts.suffix else host


class Queues:
    """Names of queues by CRAWLER_THROTTLE_SCOPE: ``host``, ``domain`` (registered), or ``ip``."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._addresses: dict[str, str] = {}

    def of(self, request: Request) -> str:
        """The queue of a request; with ``ip`` that of its host where the address is not known yet."""
        slot = request.meta.get("download_slot")
        if slot is not None and type(slot) is not OwnSlot:
            return queue_of(None, slot)
        return self.of_host(urlparse_cached(request).hostname)

    def of_host(self, hostname: str | None) -> str:
        """The queue of requests of a host that name no slot of their own."""
        host = queue_of(hostname)
        if self._scope == "host":
            return host
        return registered_domain(host) if self._scope == "domain" else self._addresses.get(host, host)

    async def find(self, request: Request, learn: Learn) -> str:
        """The same; an address that is not known is looked up first."""
        queue = self.of(request)
        host = queue_of(urlparse_cached(request).hostname)
        if self._scope != "ip" or queue != host or host in self._addresses or request.meta.get("proxy"):
            return queue
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return host
        if len(self._addresses) >= KNOWN_HOSTS:
            self._addresses.clear()
        self._addresses[host] = await learn(host, min(str(address[0]) for *_, address in found))
        return self._addresses[host]
