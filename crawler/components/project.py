"""A Scrapy project seen from outside a crawl: which spider, and the entries that its seeds become."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.project import get_project_settings

from crawler.components.budgets import budgets_of
from crawler.components.codec import RequestCodec
from crawler.components.node import REDIS_SETTINGS, fingerprinter_path, foreign_queue_of
from crawler.components.pacing import rules_of
from crawler.components.queues import Queues
from crawler.components.seedrequest import request_of_seed
from crawler.components.starts import seed_put, start_key_of
from crawler.config import Config, read_config
from crawler.control.migrate import OldCrawl
from crawler.errors import ConfigError
from crawler.frontier.plan import Put
from crawler.redisdb.connect import RedisTarget, target_from
from crawler.seeds.parse import parse_seed

SCRAPY_FINGERPRINTER = "scrapy.utils.request.RequestFingerprinter"


class Project:
    """The settings of the project around the working directory, or Scrapy's defaults, with those given on top."""

    def __init__(self, overrides: Mapping[str, Any]) -> None:
        self.settings: Settings = get_project_settings()
        self.settings.setdict(dict(overrides), priority="cmdline")

    @property
    def config(self) -> Config:
        """The project's CRAWLER_ settings, checked."""
        return read_config({name: self.settings[name] for name in self.settings if name.startswith("CRAWLER_")})

    @property
    def target(self) -> RedisTarget:
        """Where the project's Redis is."""
        return target_from({name: self.settings.get(name) for name in REDIS_SETTINGS})

    def crawl_of(self, spider_name: str) -> str:
        """Name in Redis of a spider's crawl."""
        return str(self.config["CRAWLER_CRAWL"] or spider_name)

    def spiders(self) -> list[str]:
        """Names of the project's spiders."""
        return sorted(get_spider_loader(self.settings).list())

    def start_key(self, spider_name: str) -> str:
        """Name of the key of a spider's start URLs.

        Raises:
            ConfigError: the project has spiders, and none of that name.
        """
        return start_key_of(self._spider_class(spider_name), spider_name, self.settings)

    def start_key_if_known(self, spider_name: str) -> str:
        """The same; of a spider that the project lacks the one that it has by default."""
        known = spider_name in self.spiders()
        return start_key_of(self._spider_class(spider_name) if known else Spider, spider_name, self.settings)

    def old_crawl(self, spider_name: str) -> OldCrawl:
        """Keys that scrapy-redis has of a spider's crawl."""
        names = {"spider": spider_name}
        return OldCrawl(
            (self.settings.get("SCHEDULER_DUPEFILTER_KEY") or "%(spider)s:dupefilter") % names,
            foreign_queue_of(self.settings, spider_name),
        )

    def fingerprinter_identity(self, spider_name: str) -> dict[str, str]:
        """What a spider's workers must have in common with a filter that scrapy-redis filled.

        Raises:
            ConfigError: the spider computes fingerprints as Scrapy does, and so would know none of the filter.
        """
        settings = self.settings.copy()
        self._spider_class(spider_name).update_settings(settings)
        path = fingerprinter_path(settings)
        if path == SCRAPY_FINGERPRINTER:
            raise ConfigError(
                f"spider {spider_name!r} has Scrapy's fingerprints, of which scrapy-redis's filter knows none; set "
                'REQUEST_FINGERPRINTER_CLASS = "crawler.components.fingerprint.ScrapyRedisFingerprinter"'
            )
        return {"fingerprinter": path}

    def _spider_class(self, spider_name: str) -> type[Spider]:
        loader = get_spider_loader(self.settings)
        if spider_name in loader.list():
            found: type[Spider] = loader.load(spider_name)
            return found
        if loader.list():
            known = ", ".join(sorted(loader.list())[:10])
            raise ConfigError(f"there is no spider {spider_name!r} in this project; it has: {known}")
        return type("AnySpider", (Spider,), {"name": spider_name})

    def seed_maker(self, spider_name: str, *, again: bool) -> Callable[[bytes], Put]:
        """A function from a raw seed to its entry; ``again`` puts URLs that were seen before too.

        The function raises BadSeed, UnknownCallback or UnserialisableRequest for a seed that makes no entry.
        """
        spider_class = self._spider_class(spider_name)
        spider = spider_class(name=spider_name)
        crawler = Crawler(spider_class, self.settings.copy())
        fingerprinter = build_from_crawler(load_object(self.settings["REQUEST_FINGERPRINTER_CLASS"]), crawler)
        fingerprint: Callable[[Request], bytes] = fingerprinter.fingerprint
        codec, queues = RequestCodec(spider), Queues(self.config["CRAWLER_THROTTLE_SCOPE"])
        budgets = budgets_of(rules_of(crawler, self.config), self.config)
        form = self.config["CRAWLER_SEEDS_FORM"]
        count = 0

        def make(raw: bytes) -> Put:
            nonlocal count
            count += 1
            seed = replace(parse_seed(raw, form=form), dont_filter=again)
            return seed_put(request_of_seed(seed, spider), f"again/{count}", codec, fingerprint, queues, budgets)

        return make
