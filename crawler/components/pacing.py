"""Rules of hosts as a project's settings have them."""

from dataclasses import replace
from typing import Any

import scrapy.core.downloader
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings

from crawler.config import Config
from crawler.errors import ConfigError
from crawler.throttle.rules import FREE, Rule, RuleSet, read_rules

DEFAULT_JITTER = 0.5
CAP = "CONCURRENT_REQUESTS_PER_DOMAIN"


def rules_of(crawler: Crawler, config: Config) -> RuleSet:
    """The rules of CRAWLER_THROTTLE, and those that follow from DOWNLOAD_DELAY, DOWNLOAD_SLOTS and, where the project
    sets it, CONCURRENT_REQUESTS_PER_DOMAIN; Scrapy's own default of that stays each worker's.

    Raises:
        ConfigError: a rule that cannot be used.
    """
    settings = crawler.settings
    delay, jitter = settings.getfloat("DOWNLOAD_DELAY"), _jitter(settings)
    if hasattr(scrapy.core.downloader, "_get_concurrency_delay"):
        # Scrapy 2.14 reads this of the spider too.
        delay = float(getattr(crawler.spider, "download_delay", delay))
    cap = settings.getint(CAP) if settings.getpriority(CAP) else 0
    names = {
        str(host).lower(): _rule(
            _number(host, slot, "delay", delay),
            _slot_jitter(slot, jitter),
            int(_number(host, slot, "concurrency", cap)),
        )
        for host, slot in settings.getdict("DOWNLOAD_SLOTS").items()
    }
    rules = read_rules(config["CRAWLER_THROTTLE"], _rule(delay, jitter, cap), names)
    start = settings.getfloat("AUTOTHROTTLE_START_DELAY") if latency_target(settings) else 0.0
    return replace(rules, start_seconds=start)


def latency_target(settings: BaseSettings) -> float:
    """Requests that a host should have under way on average; 0 where AutoThrottle is off."""
    if not settings.getbool("AUTOTHROTTLE_ENABLED"):
        return 0.0
    target = settings.getfloat("AUTOTHROTTLE_TARGET_CONCURRENCY")
    if target <= 0:
        raise ConfigError(f"AUTOTHROTTLE_TARGET_CONCURRENCY must be above 0, got {target:g}; Scrapy's default is 1")
    return target


def _rule(delay: float, jitter: float, cap: int) -> Rule:
    rule = Rule(rate=1 / delay, jitter=jitter) if delay > 0 else FREE
    return replace(rule, concurrency=max(0, cap))


def _number(host: str, slot: dict[str, Any], name: str, default: float) -> float:
    value = slot.get(name, default)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"DOWNLOAD_SLOTS[{host!r}] has the {name} {value!r}; it must be a number") from None


def _jitter(settings: BaseSettings) -> float:
    """As Scrapy's downloader reads it: the older setting where it has the higher priority, or is the only one."""
    randomize = settings.getpriority("RANDOMIZE_DOWNLOAD_DELAY") or 0
    if randomize > (settings.getpriority("DOWNLOAD_DELAY_JITTER") or 0):
        return DEFAULT_JITTER if settings.getbool("RANDOMIZE_DOWNLOAD_DELAY") else 0.0
    return settings.getfloat("DOWNLOAD_DELAY_JITTER", DEFAULT_JITTER)


def _slot_jitter(slot: dict[str, Any], default: float) -> float:
    if "jitter" in slot:
        return float(slot["jitter"])
    if "randomize_delay" in slot:
        return DEFAULT_JITTER if slot["randomize_delay"] else 0.0
    return default
