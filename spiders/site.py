"""Crawls one site: follows its links, stays on its hosts, and keeps title, description and status of each page."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from scrapy import Request, Spider
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor


class SiteSpider(Spider):
    """``scrapy crawl site -a url=https://example.com/ -a pages=200``; several URLs are separated by commas.

    The page limit counts links queued by each worker: it is a brake for trying a site, not an exact number.
    """

    name = "site"

    def __init__(self, url: str = "", pages: str = "0", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [part.strip() for part in url.split(",") if part.strip()]
        hosts = {urlsplit(part).hostname or "" for part in self.start_urls}
        self.allowed_domains = sorted(host.removeprefix("www.") for host in hosts if host)
        self._left = int(pages) or None
        self._links = LinkExtractor()

    def parse(self, response: Response) -> Iterator[Any]:
        """Yields the page's record, then its links."""
        if not isinstance(response, HtmlResponse):
            yield {"url": response.url, "status": response.status, "bytes": len(response.body)}
            return
        yield {
            "url": response.url,
            "status": response.status,
            "title": (response.css("title::text").get() or "").strip(),
            "description": response.xpath("//meta[@name='description']/@content").get(),
            "bytes": len(response.body),
        }
        for link in self._links.extract_links(response):
            if not self._is_on_site(link.url):
                continue
            if self._left is not None:
                if self._left <= 0:
                    return
                self._left -= 1
            yield Request(link.url)

    def _is_on_site(self, url: str) -> bool:
        host = urlsplit(url).hostname or ""
        return any(host == domain or host.endswith(f".{domain}") for domain in self.allowed_domains)
