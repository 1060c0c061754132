"""Outermost downloader middleware: sees what is left of a fetch when all others are through, and which targets are
private.
"""

import asyncio
import ipaddress
import logging
import socket
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.httpobj import urlparse_cached

from crawler.components.node import Node
from crawler.dispatch import current_lease
from crawler.frontier.held import Lease

log = logging.getLogger(__name__)

KNOWN_HOSTS = 10_000
RULES = {
    "scrapy.downloadermiddlewares.offsite": "offsite",
    "scrapy.downloadermiddlewares.robotstxt": "robots",
    "scrapy.downloadermiddlewares.httpcache": "cache",
}
"""Modules that refuse to fetch a page, by raising IgnoreRequest."""


class OutcomeMiddleware:
    """Marks the page at hand as failed when no middleware handled its error, or its retries are used up."""

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._codes = frozenset(int(code) for code in settings.getlist("RETRY_HTTP_CODES"))
        self._allow_all = settings.getbool("HTTPERROR_ALLOW_ALL")
        self._allowed = frozenset(int(code) for code in settings.getlist("HTTPERROR_ALLOWED_CODES"))
        self._spider = crawler.spider

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "OutcomeMiddleware":
        """Builds the middleware of a crawler."""
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        """A status that is retried and came back all the same is a failure, unless the spider handles it."""
        lease = lease_of(request)
        if lease is not None and response.status in self._codes and not self._handled(request, response.status):
            tries = request.meta.get("retry_times", 0) + 1
            reason = f"status {response.status} after {tries} tries"
            lease.fail("status", reason, url=request.url, attempts=str(tries), status=str(response.status))
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        """An exception that no middleware handled is a failure; an ignored request is not."""
        lease = lease_of(request)
        if lease is None or isinstance(exception, HostBlocked):
            return
        if isinstance(exception, PrivateTarget):
            lease.fail("private_target", str(exception), url=request.url)
        elif isinstance(exception, RefusedTarget):
            lease.fail("host_refused", str(exception), url=request.url)
        elif isinstance(exception, RobotsUnreachable):
            lease.fail("robots_unreachable", str(exception), url=request.url)
        elif isinstance(exception, IgnoreRequest):
            lease.filtered = _rule_of(exception)
        else:
            tries = request.meta.get("retry_times", 0) + 1
            name = type(exception).__name__
            lease.fail(
                "download",
                f"{name} after {tries} tries: {exception}",
                url=request.url,
                attempts=str(tries),
                error=name,
            )

    def _handled(self, request: Request, status: int) -> bool:
        meta = request.meta
        if self._allow_all or status in self._allowed or meta.get("handle_httpstatus_all"):
            return True
        listed: Any = meta.get("handle_httpstatus_list", getattr(self._spider, "handle_httpstatus_list", ()))
        return status in listed


def lease_of(request: Request) -> Lease | None:
    """The lease that the request was handed out under; one that a callback or pipeline downloads by itself has none."""
    lease = current_lease.get()
    if lease is None or not any(held is request for held in lease.requests):
        return None
    return lease


def _rule_of(error: IgnoreRequest) -> str:
    """The rule of Scrapy's that raised it, or ``other``: a middleware of the user's."""
    traceback, module = error.__traceback__, ""
    while traceback is not None:
        module, traceback = str(traceback.tb_frame.f_globals.get("__name__")), traceback.tb_next
    return RULES.get(module, "other")


class HostBlocked(IgnoreRequest):
    """The page went back to the frontier, since its host may not be asked for a while."""


class RefusedTarget(IgnoreRequest):
    """An operator refuses the request's host."""


class RobotsUnreachable(IgnoreRequest):
    """The robots.txt of the page's site could not be had for longer than pages wait for it."""


class PrivateTarget(IgnoreRequest):
    """The request goes to a loopback, private or link-local address."""


class TargetGuardMiddleware:
    """Refuses private targets, also after redirects and name look-ups; innermost, so that it sees what is sent."""

    def __init__(self, node: Node) -> None:
        self._known: dict[str, str] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "TargetGuardMiddleware":
        """Builds the middleware of a crawler."""
        return cls(Node.of(crawler))

    async def process_request(self, request: Request) -> None:
        """Raises PrivateTarget for a host whose address is not public; a proxy's target is the proxy's business."""
        if request.meta.get("proxy"):
            return
        host = urlparse_cached(request).hostname or ""
        private = self._known.get(host)
        if private is None:
            private = await self._private_address(host)
            if len(self._known) >= KNOWN_HOSTS:
                self._known.clear()
            self._known[host] = private
        if private:
            raise PrivateTarget(
                f"{host} is at the private address {private}; set CRAWLER_TARGETS_PRIVATE_ALLOWED = True to crawl it"
            )

    async def _private_address(self, host: str) -> str:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            # No such name: the download says so, and that it is retried or fails is not this middleware's to decide.
            return ""
        for *_, address in found:
            ip = ipaddress.ip_address(str(address[0]).split("%")[0])
            if not ip.is_global:
                return str(ip)
        return ""
