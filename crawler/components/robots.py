"""robots.txt by RFC 9309, asked once for the whole fleet; what cannot be had now puts pages off.

Checked on Scrapy 2.14.2 and 2.19.0: ``RobotsTxtMiddleware.robot_parser`` (the one method that fetches and keeps
parsers), ``DOWNLOAD_PRIORITY``, ``_parserimpl``, ``_robotstxt_useragent`` and ``_default_useragent``.
"""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import urljoin

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.robotstxt import RobotParser
from scrapy.utils.httpobj import urlparse_cached

from crawler.clock import monotonic
from crawler.components.node import Node
from crawler.components.outcomes import HostBlocked, RobotsUnreachable, lease_of
from crawler.throttle.robots import FAILED, FETCH, FREE, LIMIT_BYTES, RULES, WAIT, Fetched, Known

log = logging.getLogger(__name__)

REDIRECTS_MOST = 5
"""Followed in a row (RFC 9309, 2.3.1.2)."""

META = {
    "dont_obey_robotstxt": True,
    "dont_redirect": True,
    "dont_retry": True,
    "allow_offsite": True,
    "download_maxsize": 64 * 1024 * 1024,
}
"""Redirects, also to other hosts, and new tries are this module's. Of a long text the first part is read, so that
only what a compressed one unpacks to needs a limit.
"""

SITES_KNOWN = 5_000
FIRST_LOOK_SECONDS = 0.1
LONGEST_LOOK_SECONDS = 1.0
DELAY_LOST_SECONDS = 60.0
"""A page without a turn so long after the delay of its host was set shows that Redis has lost it."""

DELAY_OVERLAP_SECONDS = 600.0
"""A delay is kept for so long after the robots.txt that asked for it is to be fetched again."""


@dataclass(slots=True)
class SiteRules:
    """What this worker keeps to of a site; ``failing_seconds`` where its robots.txt cannot be had.

    ``paced`` has since when the delay holds, by host.
    """

    until: float
    parser: RobotParser | None = None
    delay_seconds: float = 0.0
    paced: dict[str, float] = field(default_factory=dict)
    failing_seconds: float | None = None
    reason: str = ""


class FleetRobotsMiddleware(RobotsTxtMiddleware):
    """Scrapy's middleware with the robots.txt, and what it was last time, from the fleet."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._node = Node.of(crawler)
        config = self._node.config
        self._lifetime: float = config["CRAWLER_ROBOTS_LIFETIME_SECONDS"]
        self._delay_most: float = config["CRAWLER_ROBOTS_DELAY_MAX_SECONDS"]
        self._patience: float = config["CRAWLER_ROBOTS_UNREACHABLE_MAX_SECONDS"]
        self._look_again_seconds: float = config["CRAWLER_MEMBERSHIP_LAPSE_SECONDS"] / 3
        self._sites: OrderedDict[str, SiteRules] = OrderedDict()
        self._asking: dict[str, asyncio.Task[SiteRules | None]] = {}
        self._left: dict[Request, int] = {}

    async def robot_parser(self, request: Request) -> RobotParser | None:
        """The rules that the request is to obey; None if all is allowed.

        Raises:
            HostBlocked: the page went back to the frontier, to be asked for later or in its turn.
            RobotsUnreachable: the robots.txt could not be had for too long.
            IgnoreRequest: it cannot be had now, and the request is no page of the frontier.
        """
        url = urlparse_cached(request)
        if url.scheme not in {"http", "https"}:
            return await super().robot_parser(request)
        site = f"{url.scheme}://{url.netloc.rpartition('@')[2].lower()}"
        rules = self._sites.get(site)
        if rules is None or rules.until <= monotonic():
            rules = await self._learn(site, request)
        if rules is None:
            self._put_off(request, "this worker stops")
        if rules.failing_seconds is not None:
            reason = f"{site}/robots.txt cannot be had ({rules.reason})"
            if rules.failing_seconds >= self._patience:
                raise RobotsUnreachable(f"{reason} for {rules.failing_seconds:.0f} s")
            self._put_off(request, reason)
        if rules.delay_seconds:
            await self._keep_delay(request, rules)
        return rules.parser

    async def _learn(self, site: str, request: Request) -> SiteRules | None:
        """What the fleet knows, in one asking for all requests of a site; None where this worker stops before."""
        task = self._asking.get(site)
        if task is None:
            task = self._asking[site] = asyncio.get_running_loop().create_task(self._ask(site, request))
            task.add_done_callback(lambda _: self._asking.pop(site))
        return await asyncio.shield(task)

    async def _ask(self, site: str, request: Request) -> SiteRules | None:
        pause = FIRST_LOOK_SECONDS
        parsed: tuple[bytes, RobotParser] | None = None
        while True:
            known = await self._node.worker.robots.look(site)
            if known.state not in {FETCH, WAIT}:
                rules = await self._read(known, request, parsed)
                self._sites[site] = rules
                self._sites.move_to_end(site)
                if len(self._sites) > SITES_KNOWN:
                    self._sites.popitem(last=False)
                return rules
            if self._node.view.closing:
                return None
            if known.state == FETCH:
                parsed = await self._fetch(site, request)
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_LOOK_SECONDS)

    async def _read(self, known: Known, request: Request, parsed: tuple[bytes, RobotParser] | None) -> SiteRules:
        rules = SiteRules(known.until)
        if known.state == FAILED:
            rules.failing_seconds, rules.reason = known.age_seconds, known.text.decode(errors="replace")
        elif known.state == RULES:
            parser = parsed[1] if parsed is not None and parsed[0] == known.text else self._parsed(known.text)
            rules.parser, rules.delay_seconds = parser, self._delay_of(parser, request)
            if rules.delay_seconds:
                rules.paced[self._node.queues.of_host(urlparse_cached(request).hostname)] = (
                    monotonic() - known.age_seconds
                )
            if hasattr(signals, "robots_parsed"):  # since Scrapy 2.18
                await self.crawler.signals.send_catch_log_async(
                    signal=signals.robots_parsed, robotparser=parser, request=request
                )
        return rules

    def _parsed(self, text: bytes) -> RobotParser:
        return self._parserimpl.from_crawler(self.crawler, text)

    def _delay_of(self, parser: RobotParser, request: Request) -> float:
        """The Crawl-delay for this crawler, in seconds; 0 if there is none. RobotParser has it since Scrapy 2.18."""
        asked: Any = getattr(parser, "crawl_delay", None) or getattr(
            getattr(parser, "rp", None), "crawl_delay", lambda agent: None
        )
        agent: Any = self._robotstxt_useragent or request.headers.get(b"User-Agent", self._default_useragent)
        delay = asked(agent.decode("latin-1") if isinstance(agent, bytes) else agent)
        seconds = 0.0 if delay is None else float(delay)
        return min(seconds, self._delay_most) if seconds > 0 else 0.0

    # Fetching.

    async def _fetch(self, site: str, request: Request) -> tuple[bytes, RobotParser] | None:
        """Fetches, and tells the fleet; the text and its parser if there are rules."""
        worker = self._node.worker
        task = asyncio.get_running_loop().create_task(self._fetched(site, self._node.queues.of(request)))
        try:
            while not (await asyncio.wait({task}, timeout=self._look_again_seconds))[0]:
                await worker.robots.look(site)
        finally:
            task.cancel()
        note = task.result()
        parsed = None
        if note.state == FAILED and self._node.view.closing:
            return None
        if note.state == RULES:
            parsed = note.text, self._parsed(note.text)
            # Before others hear of the rules, so that none of them asks the host in between.
            for host in {self._node.queues.of_host(urlparse_cached(request).hostname), self._node.queues.of(request)}:
                await self._set_delay(host, self._delay_of(parsed[1], request))
        blocked = await worker.robots.fetched(note)
        if blocked:
            worker.blocks.change()
            log.info("%s/robots.txt: %s; nobody asks the host for %.1f s", site, note.text.decode(), blocked)
        return parsed

    async def _fetched(self, site: str, host: str) -> Fetched:
        assert self.crawler.stats is not None
        stats = self.crawler.stats
        try:
            response = await self._download(site + "/robots.txt")
        except IgnoreRequest as error:
            # By a middleware that lets nobody ask for it.
            log.debug("%s/robots.txt is not asked for: %s", site, error)
            return Fetched(site, host, FREE)
        except Exception as error:
            stats.inc_value(f"robotstxt/exception_count/{type(error)}")
            return Fetched(site, host, FAILED, f"{type(error).__name__}: {error}"[:200].encode())
        finally:
            stats.inc_value("robotstxt/request_count")
        stats.inc_value("robotstxt/response_count")
        stats.inc_value(f"robotstxt/response_status_count/{response.status}")
        if response.status in range(200, 300):
            return Fetched(site, host, RULES, _whole_lines(response.body))
        if response.status == 429 or response.status >= 500:  # noqa: PLR2004 - statuses of "not now" (RFC 9309, 2.3.1.4)
            return Fetched(site, host, FAILED, f"status {response.status}".encode())
        return Fetched(site, host, FREE)

    async def _download(self, url: str) -> Response:
        """The answer to a robots.txt, or what is left after too many redirects or one that leads nowhere."""
        assert self.crawler.engine is not None
        for _ in range(1 + REDIRECTS_MOST):
            request = Request(url, priority=self.DOWNLOAD_PRIORITY, meta=dict(META), callback=NO_CALLBACK)
            if not self._left:
                self.crawler.signals.connect(self._received, signals.bytes_received)
            self._left[request] = LIMIT_BYTES
            try:
                response: Response = await self.crawler.engine.download_async(request)
            finally:
                del self._left[request]
                if not self._left:
                    self.crawler.signals.disconnect(self._received, signals.bytes_received)
            location = response.headers.get("Location")
            if response.status not in {301, 302, 303, 307, 308} or not location:
                break
            url = urljoin(response.url, location.decode("latin-1"))
            if not url.startswith(("http://", "https://")):
                break
        return response

    def _received(self, data: bytes, request: Request) -> None:
        if request in self._left:
            self._left[request] -= len(data)
            if self._left[request] < 0:
                raise StopDownload(fail=False)

    # Keeping to it.

    def _put_off(self, request: Request, reason: str) -> NoReturn:
        lease = lease_of(request)
        if lease is None:
            raise IgnoreRequest(f"{reason}, so that nothing may be asked there now")
        self._node.wait_in_frontier(lease, request)
        raise HostBlocked(f"{reason}; the page waits in the frontier")

    async def _keep_delay(self, request: Request, rules: SiteRules) -> None:
        """Gives a page back that was claimed before its host's delay was set: without a turn, or in one too early."""
        host, lease = self._node.queues.of(request), lease_of(request)
        if lease is not None and lease.requests[0] is not request:
            # It came by a redirect, and takes its turn in the downloader.
            lease = None
        since = rules.paced.get(host, 0.0)
        lost = lease is not None and not lease.turn_ends and monotonic() - since > DELAY_LOST_SECONDS
        if host not in rules.paced or lost:
            await self._set_delay(host, rules.delay_seconds)
            since = rules.paced[host] = monotonic()
        if lease is not None and lease.claimed_at < since:
            self._node.wait_in_frontier(lease, request)
            raise HostBlocked(f"{host} has a Crawl-delay; the page takes its turn")

    async def _set_delay(self, host: str, seconds: float) -> None:
        if seconds:
            lasts = self._lifetime + DELAY_OVERLAP_SECONDS
            await self._node.worker.hosts.crawl_delay(host, seconds, lasts)


def _whole_lines(body: bytes) -> bytes:
    """What is read of a robots.txt; a line that is cut off would say something else."""
    return body if len(body) <= LIMIT_BYTES else body[: body.rfind(b"\n", 0, LIMIT_BYTES) + 1]
