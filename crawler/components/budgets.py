"""What a crawl takes of hosts, of paths on them, and of calendars."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from crawler.config import Config
from crawler.errors import ConfigError
from crawler.frontier.plan import Budget
from crawler.frontier.traps import Suspicion, calendar_budget
from crawler.throttle.rules import RuleSet, glob_pattern

KNOWN_HOSTS = 10_000


class Budgets:
    """Budgets of URLs, by the rules of hosts and CRAWLER_BUDGET_PATHS.

    Raises:
        ConfigError: a path or number that cannot be used.
    """

    def __init__(self, rules: RuleSet, paths: Mapping[str, Any], dates_most: int) -> None:
        self._rules = rules
        self._by_host = rules.has_budgets
        self._paths = sorted((_path(place, most) for place, most in paths.items()), key=lambda it: -len(it[1]))
        self._dates_most = dates_most
        self._of_host = lru_cache(maxsize=KNOWN_HOSTS)(lambda host: rules.of(host).budget)

    def of(self, url: str, host: str, suspicion: Suspicion | None) -> tuple[Budget, ...]:
        """The budgets that a URL counts in: of its host, of the longest path that it begins with, of its calendar."""
        if not (self._by_host or self._paths or (suspicion is not None and suspicion.name)):
            return ()
        found = []
        if self._by_host and (most := self._of_host(host)):
            found.append(Budget(host, most, most))
        if self._paths:
            path = "/" + url.partition("//")[2].partition("/")[2]
            for pattern, prefix, most in self._paths:
                if path.startswith(prefix) and _matches(pattern, host):
                    found.append(Budget(host + prefix, most, most))
                    break
        if suspicion is not None and suspicion.name:
            found.append(calendar_budget(suspicion, self._dates_most))
        return tuple(found)


def budgets_of(rules: RuleSet, config: Config) -> Budgets:
    """The budgets of a project's settings; raises ConfigError for those that cannot be used."""
    return Budgets(rules, config["CRAWLER_BUDGET_PATHS"], config["CRAWLER_TRAPS_DATES_MAX"])


def _matches(pattern: str, host: str) -> bool:
    return host == pattern or host.endswith("." + pattern) or bool(glob_pattern(pattern).fullmatch(host))


def _path(place: str, most: Any) -> tuple[str, str, int]:
    host, slash, path = str(place).strip().partition("/")
    if not host or not slash:
        raise ConfigError(
            f"CRAWLER_BUDGET_PATHS has {place!r}; write a host, domain or glob and a path, as in 'example.com/news/'; "
            "the budget of a whole host is a field of its rule in CRAWLER_THROTTLE"
        )
    try:
        number = int(most)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ConfigError(f"CRAWLER_BUDGET_PATHS[{place!r}] is {most!r}; it must be a whole number of URLs")
    return host.lower(), "/" + path, number
