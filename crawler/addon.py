"""The one line of a project's ADDONS that makes its spiders members of a fleet."""

import contextlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.extensions.throttle import AutoThrottle
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from crawler.components.budgets import budgets_of
from crawler.components.node import REDIS_SETTINGS, config_of, exit_code
from crawler.components.pacing import rules_of
from crawler.components.refusal import refuse
from crawler.components.starts import check_start, let_seeds_be_fed
from crawler.config import read_config
from crawler.download.retries import RetryPolicy
from crawler.errors import ConfigError
from crawler.redisdb.connect import target_from
from crawler.storage.backends import open_storage

log = logging.getLogger(__name__)

COMPONENTS = "crawler.components."
SCHEDULER = COMPONENTS + "scheduler.FrontierScheduler"
DOWNLOADER = COMPONENTS + "downloader.PacedDownloader"
REFUSING = COMPONENTS + "refusal.RefusingScheduler"
ASYNCIO_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
ADDON_PRIORITY = 15
FOREIGN = {
    "SCHEDULER": SCHEDULER,
    "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter",
    "STATS_CLASS": "scrapy.statscollectors.MemoryStatsCollector",
}
"""What stands in for scrapy-redis's classes."""

SCRAPY_DOWNLOADER = "scrapy.core.downloader.Downloader"
OWN_SCHEDULERS = {SCHEDULER, "scrapy.core.scheduler.Scheduler"}
SINGLE_COMMANDS = {"shell", "parse", "check", "fetch", "view", "bench"}
"""Commands that fetch by themselves and must not join a crawl."""


def _path_of(value: Any) -> str:
    return value if isinstance(value, str) else f"{value.__module__}.{value.__qualname__}"


def _fetches_alone(arguments: Sequence[str]) -> bool:
    """Whether a command line is that of one of SINGLE_COMMANDS: the first word after ``scrapy`` or ``-m scrapy``."""
    words = iter(arguments)
    if not any(Path(word).stem == "scrapy" for word in words):
        return False
    return next((word for word in words if not word.startswith("-")), "") in SINGLE_COMMANDS


def _check_reactor(settings: BaseSettings) -> None:
    reactor = settings["TWISTED_REACTOR"]
    if settings.getbool("TWISTED_REACTOR_ENABLED", True) and reactor != ASYNCIO_REACTOR:
        raise ConfigError(
            f"TWISTED_REACTOR is {reactor!r}, and the frontier needs asyncio; remove that setting or "
            f"set it to {ASYNCIO_REACTOR!r}"
        )


class DistributedCrawl:
    """Installs the frontier's components; what the project has of its own stays."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "DistributedCrawl":
        """Builds the add-on of a crawler."""
        return cls(crawler)

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Checks project and command-line settings before anything starts; a wrong one ends the process with one
        line.
        """
        if _fetches_alone(sys.orig_argv):
            return
        try:
            read_config({name: settings[name] for name in settings if name.startswith("CRAWLER_")})
            _check_reactor(settings)
        except ConfigError as error:
            sys.stderr.write(f"trawlnet: {error}\n")
            sys.exit(exit_code(error))

    def update_settings(self, settings: BaseSettings) -> None:
        """Sets the scheduler and adds the middlewares, the extension and, where CRAWLER_STORAGE is set, the
        pipelines.
        """
        if _fetches_alone(sys.orig_argv):
            return
        scheduler = SCHEDULER
        try:
            self._check(settings)
            self._replace_foreign(settings)
            self._install(settings)
        except ConfigError as error:
            refuse(self._crawler, error)
            scheduler = REFUSING
            # On another reactor the refusal would not end the process.
            settings.set("TWISTED_REACTOR", ASYNCIO_REACTOR, settings.getpriority("TWISTED_REACTOR") or 0)
        settings.set("SCHEDULER", scheduler, priority=max(settings.getpriority("SCHEDULER") or 0, ADDON_PRIORITY))
        # Both run Python that is sent to them.
        settings.set("TELNETCONSOLE_ENABLED", False, "addon")
        settings.set("REMOTE_CONTROL_ENABLED", False, "addon")

    def _check(self, settings: BaseSettings) -> None:
        storage = config_of(self._crawler)["CRAWLER_STORAGE"]
        if storage:
            open_storage(storage)
        config = config_of(self._crawler)
        budgets_of(rules_of(self._crawler, config), config)
        RetryPolicy.read(config["CRAWLER_RETRY"])
        target_from({name: settings.get(name) for name in REDIS_SETTINGS})
        assert self._crawler.spider is not None
        check_start(type(self._crawler.spider))
        _check_reactor(settings)

    def _install(self, settings: BaseSettings) -> None:
        let_seeds_be_fed(self._crawler)
        self._pace(settings)
        if settings.getbool("ROBOTSTXT_OBEY"):
            self._stand_in(settings, RobotsTxtMiddleware, "robots.FleetRobotsMiddleware")
        if config_of(self._crawler)["CRAWLER_COOKIES_LIFETIME_SECONDS"]:
            self._stand_in(settings, CookiesMiddleware, "cookies.SharedCookiesMiddleware")
        add = settings.setdefault_in_component_priority_dict
        add("SPIDER_MIDDLEWARES", _load("spidermw.LeaseSpiderMiddleware"), -1000)
        add("DOWNLOADER_MIDDLEWARES", _load("outcomes.OutcomeMiddleware"), 10)
        add("EXTENSIONS", _load("lifecycle.LifecycleExtension"), 0)
        if not settings.getbool("CRAWLER_TARGETS_PRIVATE_ALLOWED"):
            add("DOWNLOADER_MIDDLEWARES", _load("outcomes.TargetGuardMiddleware"), 990)
        if settings.get("CRAWLER_STORAGE"):
            add("ITEM_PIPELINES", _load("pipeline.ItemPlacePipeline"), -1000)
            add("ITEM_PIPELINES", _load("pipeline.StoragePipeline"), 1000)

    def _pace(self, settings: BaseSettings) -> None:
        if settings.getbool("AUTOTHROTTLE_ENABLED"):
            # The fleet slows down as a whole; Scrapy's extension would slow each worker down again.
            settings.set_in_component_priority_dict("EXTENSIONS", AutoThrottle, None)
        if _path_of(settings["DOWNLOADER"]) == SCRAPY_DOWNLOADER:
            settings.set("DOWNLOADER", DOWNLOADER, ADDON_PRIORITY)
        else:
            log.warning(
                "DOWNLOADER is %s: requests are as far apart as it makes them, in each worker by itself",
                _path_of(settings["DOWNLOADER"]),
            )

    def _stand_in(self, settings: BaseSettings, scrapys: type[Any], ours: str) -> None:
        """Puts a middleware in the place of Scrapy's, unless the project has taken that out or has one of its own."""
        name = "DOWNLOADER_MIDDLEWARES"
        own = {load_object(path): place for path, place in settings.getdict(name).items()}
        if own.get(scrapys, 0) is None:
            return
        for each in (name, name + "_BASE"):
            with contextlib.suppress(KeyError):  # it is not in this one
                settings.replace_in_component_priority_dict(each, scrapys, _load(ours))

    def _replace_foreign(self, settings: BaseSettings) -> None:
        replaced = []
        for name, ours in FOREIGN.items():
            path = _path_of(settings[name])
            if path.startswith("scrapy_redis."):
                settings.set(name, ours, priority=settings.getpriority(name) or ADDON_PRIORITY)
                replaced.append(f"{name} = {path}")
            elif name == "SCHEDULER" and path not in OWN_SCHEDULERS:
                raise ConfigError(
                    f"SCHEDULER is {path}, but the frontier has to be the scheduler; remove that setting, "
                    "or this add-on from ADDONS"
                )
        if replaced:
            log.info("Trawlnet stands in for scrapy-redis: %s replaced", ", ".join(replaced))


def _load(name: str) -> type[Any]:
    loaded: type[Any] = load_object(COMPONENTS + name)
    return loaded
