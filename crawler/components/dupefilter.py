"""The shared seen filter alone, as a DUPEFILTER_CLASS for Scrapy's own scheduler or scrapy-redis's."""

from typing import TYPE_CHECKING

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter

from crawler.components.node import REDIS_SETTINGS, config_of
from crawler.frontier.identity import digest
from crawler.frontier.store import SeenSpec
from crawler.redisdb.connect import RedisTarget, target_from
from crawler.redisdb.keys import Partition
from crawler.redisdb.scripts import Call, read_script, run_now

if TYPE_CHECKING:
    from scrapy.utils.request import RequestFingerprinterProtocol


class SeenDupeFilter(BaseDupeFilter):
    """``DUPEFILTER_CLASS = "crawler.components.dupefilter.SeenDupeFilter"``; CRAWLER_SEEN and its kin choose the
    filter.

    Scrapy asks for one request at a time and waits, so each costs a round trip; the frontier's own scheduler
    has none of that.
    The filter stays in Redis after the crawl, in the key ``trawlnet:{<spider>:0}:seen:0``.
    """

    def __init__(
        self, target: RedisTarget, crawl: str, spec: SeenSpec, fingerprinter: "RequestFingerprinterProtocol"
    ) -> None:
        self._target = target
        self._base = Partition(crawl).seen(0)
        self._spec = spec
        self._fingerprinter = fingerprinter
        self._script = read_script("frontier", "test_and_add", filter=spec.kind)
        self._client = target.client()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "SeenDupeFilter":
        """Builds the filter of a crawler."""
        assert crawler.request_fingerprinter is not None
        assert crawler.spider is not None
        config = config_of(crawler)
        target = target_from({name: crawler.settings.get(name) for name in REDIS_SETTINGS})
        crawl = config["CRAWLER_CRAWL"] or crawler.spider.name
        return cls(target, crawl, SeenSpec.of(config), crawler.request_fingerprinter)

    def request_seen(self, request: Request) -> bool:
        """Whether the request was seen by anyone; it is from now on."""
        key = self._spec.key(digest(self._fingerprinter.fingerprint(request)))
        call = Call(self._script, [self._base], [repr(self._spec.error_rate), self._spec.capacity, key])
        return bool(run_now(self._client, call) == b"0")

    def close(self, reason: str) -> None:
        """Closes the connection."""
        self._client.close()

    def log(self, request: Request, spider: Spider) -> None:
        """Filtered requests are counted, not logged one by one."""
        assert spider.crawler.stats is not None
        spider.crawler.stats.inc_value("dupefilter/filtered")
