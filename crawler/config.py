"""Every CRAWLER_ setting: its default, its check, and the one place where it is read."""

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crawler.errors import ConfigError

Read = Callable[[str, Any], Any]

HIGHEST_ERROR_RATE = 0.5


def _flag(name: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text in {"true", "1", "yes"}:
        return True
    if text in {"false", "0", "no", "", "none"}:
        return False
    raise ConfigError(f"{name} must be True or False, got {value!r}")


def _number(least: float, *, whole: bool = False) -> Read:
    def read(name: str, value: Any) -> float | int:
        try:
            number = int(value) if whole else float(value)
        except (TypeError, ValueError):
            raise ConfigError(f"{name} must be a {'whole ' if whole else ''}number, got {value!r}") from None
        if number < least or not math.isfinite(number):
            raise ConfigError(f"{name} must be at least {least:g}, got {value!r}")
        return number

    return read


def _rate(name: str, value: Any) -> float:
    number = float(_number(0.0)(name, value))
    if not 0 < number < HIGHEST_ERROR_RATE:
        raise ConfigError(f"{name} must lie between 0 and 0.5, got {value!r}; the default is 1e-4")
    return number


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be text, got {type(value).__name__}")
    return value.strip()


def _filter(name: str, value: Any) -> str:
    if value not in {"bloom", "exact"}:
        raise ConfigError(f"{name} must be 'bloom' or 'exact', got {value!r}")
    return str(value)


def _scope(name: str, value: Any) -> str:
    if value not in {"host", "domain", "ip"}:
        raise ConfigError(f"{name} must be 'host', 'domain' or 'ip', got {value!r}")
    return str(value)


def _crawl(name: str, value: Any) -> str:
    text = _text(name, value)
    if set(text) & set("{}\r\n"):
        raise ConfigError(
            f"{name} must not hold braces or line ends, got {value!r}: it becomes part of Redis key names"
        )
    return text


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except ValueError as error:
            raise ConfigError(f"{name} must be a mapping or JSON of one, got {value!r}: {error}") from None
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be a mapping, got {type(value).__name__}")
    return value


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: default, reader and what it is for (the table in docs/settings.md is made from these)."""

    default: Any
    read: Read
    about: str


SETTINGS: dict[str, Setting] = {
    "CRAWLER_CRAWL": Setting("", _crawl, "Name of the crawl in Redis; empty: the spider's name."),
    "CRAWLER_SEEN": Setting(
        "bloom", _filter, "Seen filter: 'bloom' (about 4 bytes a URL) or 'exact' (about 9, loses none)."
    ),
    "CRAWLER_SEEN_ERROR_RATE": Setting(1e-4, _rate, "Share of new URLs that 'bloom' may take for seen ones, at most."),
    "CRAWLER_SEEN_CAPACITY": Setting(0, _number(0, whole=True), "URLs expected; 0: the filter grows from small."),
    "CRAWLER_SEEN_KEEP": Setting(False, _flag, "Keep the seen filter when a finished crawl is run again."),
    "CRAWLER_SEEN_LOCAL_ENTRIES": Setting(
        200_000, _number(0, whole=True), "URLs a worker remembers to have sent, so as not to ask Redis."
    ),
    "CRAWLER_FRONTIER_LEASE_SECONDS": Setting(
        60.0, _number(1), "A claimed URL comes back after this time without renewal."
    ),
    "CRAWLER_FRONTIER_LEASE_MAX_SECONDS": Setting(
        3600.0, _number(1), "A page that takes longer becomes a dead letter."
    ),
    "CRAWLER_FRONTIER_DEATHS_MAX": Setting(
        3, _number(1, whole=True), "Deaths of workers until the URL to blame is a dead letter."
    ),
    "CRAWLER_FRONTIER_PINNED": Setting(False, _flag, "Run requests that cannot be serialised on the same worker."),
    "CRAWLER_THROTTLE": Setting(
        {}, _mapping, "Requests a second by host, domain or glob, as in `{'*.example.com': {'rate': 2, 'burst': 4}}`."
    ),
    "CRAWLER_THROTTLE_BACKOFF_SECONDS": Setting(
        1.0, _number(0), "Wait after a 429 or 503 without Retry-After; doubles each time; 0: none."
    ),
    "CRAWLER_THROTTLE_CIRCUIT_FAILURES": Setting(
        5, _number(0, whole=True), "Failures of a host in a row after which nobody asks it for a while; 0: never."
    ),
    "CRAWLER_THROTTLE_CIRCUIT_MAX_SECONDS": Setting(
        600.0, _number(1), "A host that fails for so long is given up: its URLs become dead letters."
    ),
    "CRAWLER_THROTTLE_CIRCUIT_SECONDS": Setting(
        5.0, _number(0.1), "How long that is the first time; it doubles, up to five minutes."
    ),
    "CRAWLER_THROTTLE_RETRY_AFTER_MAX_SECONDS": Setting(
        86_400.0, _number(0), "Longest wait that a host may ask for with Retry-After."
    ),
    "CRAWLER_THROTTLE_SCOPE": Setting(
        "host", _scope, "What shares a pace: 'host', 'domain' (the registered one) or 'ip'; rules go by that name."
    ),
    "CRAWLER_BUDGET_PATHS": Setting(
        {}, _mapping, "URLs that a crawl takes below a path, as in `{'example.com/calendar/': 50}`."
    ),
    "CRAWLER_TRAPS": Setting(
        True, _flag, "Put off, and later refuse, links whose shape says that a site makes them without end."
    ),
    "CRAWLER_TRAPS_DATES_MAX": Setting(
        5000, _number(0, whole=True), "URLs taken that differ in nothing but a date; all but a tenth come last."
    ),
    "CRAWLER_COOKIES_LIFETIME_SECONDS": Setting(
        86_400.0, _number(0), "How long the fleet keeps cookies that do not change; 0: each worker has its own."
    ),
    "CRAWLER_RETRY": Setting(
        {}, _mapping, "Waits before new tries by cause, as in `{'timeout': {'base': 5, 'most': 600}}`; 0: none."
    ),
    "CRAWLER_ROBOTS_LIFETIME_SECONDS": Setting(
        86_400.0, _number(1), "How long a robots.txt counts before it is fetched again."
    ),
    "CRAWLER_ROBOTS_DELAY_MAX_SECONDS": Setting(
        30.0, _number(0), "Longest Crawl-delay that is kept to; longer ones are cut to it; 0: none is."
    ),
    "CRAWLER_ROBOTS_UNREACHABLE_MAX_SECONDS": Setting(
        600.0, _number(0), "How long pages wait for a robots.txt that cannot be had before they are dead letters."
    ),
    "CRAWLER_MEMBERSHIP_BEAT_SECONDS": Setting(5.0, _number(0.05), "Time between heartbeats."),
    "CRAWLER_MEMBERSHIP_LAPSE_SECONDS": Setting(
        10.5, _number(0.2), "A worker counts as dead this long after its last heartbeat."
    ),
    "CRAWLER_STORAGE": Setting(
        "", _text, "Where items go: sqlite:///items.db, jsonlines:DIR, a class path; empty: nowhere."
    ),
    "CRAWLER_STORAGE_KEY_FIELD": Setting(
        "", _text, "Item field that identifies an item; empty: its position on its page."
    ),
    "CRAWLER_STORAGE_BATCH_RECORDS": Setting(500, _number(1, whole=True), "Records a batch, at most."),
    "CRAWLER_STORAGE_BATCH_SECONDS": Setting(0.1, _number(0), "Age at which a batch is written."),
    "CRAWLER_STORAGE_RETRY_SECONDS": Setting(
        60.0, _number(0), "How long a failing write is tried before its pages are retried."
    ),
    "CRAWLER_STOP_GRACE_SECONDS": Setting(
        20.0, _number(0), "How long downloads may go on after the first SIGTERM or Ctrl-C."
    ),
    "CRAWLER_REDIS_WAIT_SECONDS": Setting(10.0, _number(0), "How long the start waits for Redis."),
    "CRAWLER_CLOSE_ON_FINISH": Setting(
        False, _flag, "Let a spider that waits for seeds end when all seeds so far are done."
    ),
    "CRAWLER_SEEDS_FORM": Setting(False, _flag, "Unknown keys of JSON seeds become form data, as scrapy-redis has it."),
    "CRAWLER_TARGETS_PRIVATE_ALLOWED": Setting(
        False, _flag, "Allow crawling of loopback, private and link-local addresses."
    ),
}
"""Every setting by name."""


@dataclass(frozen=True, slots=True)
class Config:
    """The settings as they were at the start."""

    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def read_config(given: Mapping[str, Any]) -> Config:
    """Checks the CRAWLER_ settings given and fills in the defaults.

    Raises:
        ConfigError: for a value that cannot be used, or a name that is none (with the nearest known one).
    """
    check_names(given)
    values = {name: setting.read(name, given.get(name, setting.default)) for name, setting in SETTINGS.items()}
    beat, lapse = values["CRAWLER_MEMBERSHIP_BEAT_SECONDS"], values["CRAWLER_MEMBERSHIP_LAPSE_SECONDS"]
    if lapse <= beat:
        raise ConfigError(
            f"CRAWLER_MEMBERSHIP_LAPSE_SECONDS ({lapse:g}) must be above CRAWLER_MEMBERSHIP_BEAT_SECONDS ({beat:g}), "
            "else every worker looks dead between its heartbeats; twice as long is the least that is sane"
        )
    return Config(values)


def check_names(names: Iterable[str]) -> None:
    """Refuses CRAWLER_ names that are not settings.

    Raises:
        ConfigError: names the first one and the nearest known one.
    """
    for name in sorted(names):
        if name.startswith("CRAWLER_") and name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{name} is not a setting of Trawlnet{hint}")
