"""Where a spider's first requests come from: its start(), and the seeds that people push into Redis."""

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any

import scrapy
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings
from scrapy_redis.spiders import RedisMixin

from crawler.components.budgets import Budgets
from crawler.components.codec import RequestCodec
from crawler.components.queues import Queues
from crawler.components.seedrequest import request_of_seed
from crawler.config import Config
from crawler.errors import BadSeed, ConfigError, UnknownCallback, UnserialisableRequest
from crawler.frontier.identity import band_of, digest, instance_id
from crawler.frontier.plan import Letter, Put
from crawler.seeds.parse import parse_seed

log = logging.getLogger(__name__)

START_REQUESTS_GONE = (2, 16)
"""From this version on Scrapy does not call ``start_requests()`` any more."""


def check_start(spider_class: type[Spider]) -> None:
    """Refuses a spider whose own ``start_requests()`` this Scrapy would ignore without a word, or whose own
    ``next_requests()`` we would.

    Raises:
        ConfigError: names the spider and what to write instead.
    """
    theirs = RedisMixin.next_requests
    if issubclass(spider_class, RedisMixin) and getattr(spider_class, "next_requests", theirs) is not theirs:
        raise ConfigError(
            f"spider {spider_class.name!r} overrides next_requests(), which is not called here: start URLs stay in "
            "Redis until they are in the frontier; override make_request_from_data(data), which is called for each"
        )
    if scrapy.version_info[:2] < START_REQUESTS_GONE or _overrides_start(spider_class):
        return
    for base in spider_class.__mro__:
        if base in {Spider, RedisMixin}:
            return
        if "start_requests" in vars(base):
            raise ConfigError(
                f"spider {spider_class.name!r} overrides start_requests(), which Scrapy "
                f"{scrapy.__version__} does not call; "
                "rename it to 'async def start(self)' (yield works as before)"
            )


def _overrides_start(spider_class: type[Spider]) -> bool:
    return spider_class.start is not Spider.start


def let_seeds_be_fed(crawler: Crawler) -> None:
    """Disconnects scrapy-redis's idle handler, which reads seeds blocking and closes by a clock that starts at
    import.
    """
    spider = crawler.spider
    if isinstance(spider, RedisMixin):
        crawler.signals.disconnect(spider.spider_idle, signals.spider_idle)


async def start_of(spider: Spider, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The start requests of a spider. scrapy-redis's own start would take seeds out of Redis, blocking: it is not
    run.
    """
    if isinstance(spider, RedisMixin) and not _overrides_start(type(spider)):
        for url in spider.start_urls:
            yield Request(url, dont_filter=True)
        return
    async for output in start:
        yield output


class SeedMaker:
    """Makes entries of raw seeds; one that is malformed becomes a dead letter and the rest go on."""

    def __init__(
        self,
        crawler: Crawler,
        spider: Spider,
        codec: RequestCodec,
        fingerprint: Callable[[Request], bytes],
        config: Config,
        budgets: Budgets,
    ) -> None:
        settings = crawler.settings
        self._budgets = budgets
        self._queues = Queues(config["CRAWLER_THROTTLE_SCOPE"])
        self.start_key = start_key_of(spider, spider.name, settings)
        self._spider = spider
        self._codec = codec
        self._fingerprint = fingerprint
        self._encoding = getattr(spider, "redis_encoding", None) or settings.get("REDIS_ENCODING") or "utf-8"
        self._form: bool = config["CRAWLER_SEEDS_FORM"]
        own = getattr(type(spider), "make_request_from_data", None)
        self._own = own is not None and own is not RedisMixin.make_request_from_data

    def make(self, seed_id: str, raw: bytes) -> list[Put | Letter]:
        """Entries of a seed, or letters that say why there is none."""
        made: list[Put | Letter] = []
        try:
            for at, request in enumerate(self._requests(raw)):
                made.append(
                    seed_put(request, f"{seed_id}/{at}", self._codec, self._fingerprint, self._queues, self._budgets)
                )
        except (BadSeed, UnknownCallback, UnserialisableRequest) as error:
            log.error("bad seed: %s", error)
            made.append(self._letter(raw, "bad_seed", str(error)))
        except Exception as error:
            log.error("bad seed: make_request_from_data() of %r raised", self._spider.name, exc_info=True)
            made.append(
                self._letter(raw, "bad_seed", f"make_request_from_data() raised {type(error).__name__}: {error}")
            )
        return made

    def _letter(self, raw: bytes, kind: str, reason: str) -> Letter:
        shown = raw[:2000].decode(self._encoding, errors="replace")
        return {"kind": "seed", "class": kind, "reason": reason, "url": shown, "seed": shown}

    def _requests(self, raw: bytes) -> Iterable[Request]:
        if not self._own:
            seed = parse_seed(raw, self._encoding, form=self._form)
            # A pushed seed is fetched whether or not its URL was seen, unless it says otherwise.
            return [request_of_seed(replace(seed, dont_filter=seed.dont_filter is not False), self._spider)]
        made = self._spider.make_request_from_data(raw)  # type: ignore[attr-defined]
        if made is None:
            return []
        return [made] if isinstance(made, Request) else list(made)


def start_key_of(spider: Spider | type[Spider], name: str, settings: BaseSettings) -> str:
    """Name of the key of a spider's start URLs."""
    key = getattr(spider, "redis_key", None) or settings.get("REDIS_START_URLS_KEY") or "%(name)s:start_urls"
    return str(key) % {"name": name}


def seed_put(
    request: Request,
    seed: str,
    codec: RequestCodec,
    fingerprint: Callable[[Request], bytes],
    queues: Queues,
    budgets: Budgets,
) -> Put:
    """The entry of a seed's request; ``seed`` names this very seed. It is recorded as seen, so that a link to it
    is not new.

    Raises:
        UnserialisableRequest: it holds something that cannot travel.
    """
    key = digest(fingerprint(request))
    instance = instance_id(seed.encode(), key, 1) if request.dont_filter else b""
    host, body = queues.of(request), codec.encode(request, instance)
    return Put(host, band_of(request.priority), key, instance, body, budgets.of(request.url, host, None))
