"""Scrapy's cookies, shared by the fleet.

Checked on Scrapy 2.14.2 and 2.19.0: ``CookiesMiddleware.jars``, and that ``process_request`` and ``process_response``
touch nothing but the jar of the request's ``cookiejar``; ``CookieJar._cookies`` (domain -> path -> name -> cookie).
"""

import asyncio
from collections import defaultdict
from hashlib import blake2b
from http.cookiejar import Cookie
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.http.cookies import CookieJar, potential_domain_matches
from scrapy.utils.httpobj import urlparse_cached

from crawler.components.node import Node
from crawler.download.cookies import Cookies, SharedCookie

EXPIRY_GRAIN_SECONDS = 60
"""A cookie that only lasts a little longer than before is no change: some sites send it with every answer."""

LONG_JAR = 64

Places = dict[tuple[str, str, str], Cookie]
"""Cookies by domain, path and name."""


class SharedCookiesMiddleware(CookiesMiddleware):
    """Scrapy's middleware with the jars of the fleet in its own."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler.settings.getbool("COOKIES_DEBUG"))
        self.crawler = crawler
        self._store = Node.of(crawler).worker.cookies
        # Changes of a jar and loads of it, one after the other: else a load could undo a change that is on its way.
        self._turn = asyncio.Lock()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "SharedCookiesMiddleware":
        """Builds the middleware of a crawler; raises NotConfigured without COOKIES_ENABLED."""
        if not crawler.settings.getbool("COOKIES_ENABLED"):
            raise NotConfigured
        return cls(crawler)

    async def process_request(self, request: Request) -> None:  # type: ignore[override]
        """Sends the cookies of the fleet; those that the request brings along are the fleet's from now on."""
        if request.meta.get("dont_merge_cookies"):
            return
        key, domains = _jar_key(request.meta.get("cookiejar")), _domains(request)
        if request.cookies or not self._store.is_current(key, domains):
            async with self._turn:
                if not self._store.is_current(key, domains):
                    _merge(self._jar(request), await self._store.load(key, domains))
                if request.cookies:
                    before = _places(self._jar(request), domains)
                    super().process_request(request)
                    await self._share(key, before, _places(self._jar(request), domains))
                    return
        super().process_request(request)

    async def process_response(self, request: Request, response: Response) -> Response:  # type: ignore[override]
        """Takes the cookies of a response; its page is not parsed before the fleet has them."""
        if request.meta.get("dont_merge_cookies") or "Set-Cookie" not in response.headers:
            super().process_response(request, response)
            return response
        key, domains = _jar_key(request.meta.get("cookiejar")), _domains(request)
        async with self._turn:
            before = _places(self._jar(request), domains)
            super().process_response(request, response)
            await self._share(key, before, _places(self._jar(request), domains))
        return response

    def _jar(self, request: Request) -> CookieJar:
        return self.jars[request.meta.get("cookiejar")]

    async def _share(self, key: str, before: Places, after: Places) -> None:
        changed: dict[str, list[SharedCookie]] = defaultdict(list)
        for place, cookie in after.items():
            if place not in before or _told(before[place]) != _told(cookie):
                changed[place[0]].append(_shared(cookie))
        for place, cookie in before.items():
            if place not in after:
                changed[place[0]].append(_shared(cookie)._replace(value=None))
        if changed:
            await self._store.keep(key, changed)


def _jar_key(jar: Any) -> str:
    """A jar's name in Redis: that of None, of texts and of numbers are told apart."""
    if jar is None:
        return ""
    name = f"{type(jar).__name__}:{jar!r}"
    return name if len(name) <= LONG_JAR else blake2b(name.encode(errors="replace"), digest_size=16).hexdigest()


def _domains(request: Request) -> list[str]:
    """The domains whose cookies may go with a request, as http.cookiejar names them."""
    host = (urlparse_cached(request).hostname or "").lower()
    names = potential_domain_matches(host)
    return names if "." in host else [*names, *potential_domain_matches(host + ".local")]


def _places(jar: CookieJar, domains: list[str]) -> Places:
    return {
        (domain, path, name): cookie
        for domain in domains
        for path, names in jar._cookies.get(domain, {}).items()
        for name, cookie in names.items()
    }


def _told(cookie: Cookie) -> tuple[Any, ...]:
    return cookie.value, (cookie.expires or 0) // EXPIRY_GRAIN_SECONDS, cookie.secure


def _shared(cookie: Cookie) -> SharedCookie:
    return SharedCookie(
        cookie.name,
        cookie.value or "",
        cookie.path,
        int(cookie.expires or 0),
        bool(cookie.secure),
        cookie.domain_specified,
        cookie.path_specified,
        cookie.version or 0,
    )


def _merge(jar: CookieJar, cookies: Cookies) -> None:
    """Makes the domains of a jar what the fleet has of them."""
    for domain, shared in cookies.items():
        if domain in jar._cookies:
            jar.clear(domain)
        for each in shared:
            jar.set_cookie(_cookie(domain, each))


def _cookie(domain: str, shared: SharedCookie) -> Cookie:
    return Cookie(
        version=shared.version,
        name=shared.name,
        value=shared.value,
        port=None,
        port_specified=False,
        domain=domain,
        domain_specified=shared.domain_specified,
        domain_initial_dot=domain.startswith("."),
        path=shared.path,
        path_specified=shared.path_specified,
        secure=shared.secure,
        expires=shared.expires or None,
        discard=not shared.expires,
        comment=None,
        comment_url=None,
        rest={},
    )
