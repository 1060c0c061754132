"""Rules: how often a host may be asked, by name, domain or glob; and the form in which scripts read them."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import msgpack

from crawler.errors import ConfigError

STRATEGIES = ("token_bucket", "sliding_window", "fixed_window")

MARGIN = 0.01
"""Share by which requests are further apart than a rate says: clocks of servers differ."""

SINGLE_MARGIN = 0.045
SINGLE_SLACK_SHARE = 0.01
SINGLE_SLACK_SECONDS = 0.01
"""The same where a host has no burst, and how late a request may be sent there: by a share of the interval, or by this
time where intervals are so short that the share could not be kept. A late request comes closer to the next one.
"""

WINDOW_JITTER_SHARE = 0.05
BYTES_SLACK_SECONDS = 1.0
LEAST_RATE = 1e-6
HIGHEST_RATE = 1e5
HIGHEST_BURST = 10_000
HIGHEST_BYTE_RATE = HIGHEST_BUDGET = 1e12


@dataclass(frozen=True, slots=True)
class Rule:
    """What one host may be asked: ``rate`` requests a second (0: any number), ``burst`` of them at once.

    Args:
        rate: requests a second over a long time.
        burst: with ``token_bucket``, requests in any time t are at most ``rate * t + burst``; with the windows,
            requests in each window of ``burst / rate`` seconds.
        jitter: random share by which the time between two requests of a token bucket differs, 0 to 1.
        strategy: one of STRATEGIES.
        concurrency: requests that the fleet has under way at a time; 0: any number.
        byte_rate: bytes a second that answers may have over a long time, with a token bucket; 0: any number.
        budget: URLs that a crawl takes of the host; 0: any number.
    """

    rate: float = 0.0
    burst: int = 1
    jitter: float = 0.0
    strategy: str = "token_bucket"
    concurrency: int = 0
    byte_rate: float = 0.0
    budget: int = 0

    @property
    def paced(self) -> bool:
        """Whether requests have to wait for turns."""
        return bool(self.rate or self.byte_rate)

    @property
    def slack_seconds(self) -> float:
        """How late a request may be sent without breaking the promise; what comes later takes its turn anew."""
        if not self.rate:
            return BYTES_SLACK_SECONDS
        if self.strategy != "token_bucket":
            return WINDOW_JITTER_SHARE * self.burst / self.rate
        # Of a burst one request is kept back for what is late: that gives an interval, of which half is for the way.
        interval = 1 / self.rate
        return interval / 2 if self.burst > 1 else max(SINGLE_SLACK_SHARE * interval, SINGLE_SLACK_SECONDS)

    def packed(self) -> list[Any]:
        """The rule as lib/host.lua reads it; empty where it limits nothing.

        It has: strategy, interval or window (us), burst, jitter, slack (ms), cap, bytes a second.
        """
        # 0 would be without end.
        slack_ms = max(1, round(self.slack_seconds * 1e3))
        if not self.rate:
            if not self.byte_rate:
                return ["n", 0, 0, 0, 0, self.concurrency, 0] if self.concurrency else []
            return ["t", 0, 1, 0, slack_ms, self.concurrency, self.byte_rate]
        span = self.burst / self.rate + self.slack_seconds
        burst = self.burst
        if self.strategy == "token_bucket":
            margin = MARGIN if self.burst > 1 else SINGLE_MARGIN
            span, burst = (1 + margin) / self.rate, max(1, self.burst - 1)
        return [self.strategy[0], round(span * 1e6), burst, self.jitter, slack_ms, self.concurrency, self.byte_rate]


FREE = Rule()
"""No limit."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of a crawl. The longest name that is the host or a domain above it decides, then the first glob, then
    ``default``. ``start_seconds`` is the interval of hosts of which it is not known yet how long their answers take,
    where that decides; else 0.
    """

    default: Rule = FREE
    names: Mapping[str, Rule] = field(default_factory=dict)
    globs: tuple[tuple[str, Rule], ...] = ()
    start_seconds: float = 0.0

    def of(self, host: str) -> Rule:
        """The rule of a host."""
        name = host
        while name:
            if name in self.names:
                return self.names[name]
            name = name.partition(".")[2]
        return next((rule for glob, rule in self.globs if glob_pattern(glob).fullmatch(host)), self.default)

    @property
    def has_budgets(self) -> bool:
        """Whether any rule has a budget."""
        rules = (self.default, *self.names.values(), *(rule for _, rule in self.globs))
        return any(rule.budget for rule in rules)

    @property
    def counts_bytes(self) -> bool:
        """Whether any rule has a byte rate."""
        rules = (self.default, *self.names.values(), *(rule for _, rule in self.globs))
        return any(rule.byte_rate for rule in rules)

    def arguments(self) -> list[bytes | str]:
        """What limits.lua takes: digest, default, globs, then names and their rules."""
        default = _pack(self.default.packed()) if self.default.packed() else b""
        globs = [[_lua_pattern(glob), rule.packed()] for glob, rule in self.globs]
        arguments: list[bytes | str] = [default, _pack(globs) if globs else b""]
        for name, rule in sorted(self.names.items()):
            arguments += (name, _pack(rule.packed()))
        if self.start_seconds:
            arguments += ("", str(round(self.start_seconds * 1e6)))
        digest = hashlib.blake2b(digest_size=8)
        for argument in arguments:
            digest.update(argument if isinstance(argument, bytes) else argument.encode())
            digest.update(b"\0")
        return [digest.hexdigest(), *arguments]


def read_rules(given: Any, default: Rule = FREE, names: Mapping[str, Rule] | None = None) -> RuleSet:
    """Reads CRAWLER_THROTTLE.

    Args:
        given: a mapping of host, domain or glob to a rate, or to a mapping of the fields of Rule; ``*`` is every host.
        default: the rule where none matches.
        names: rules from elsewhere, which those given replace.

    Raises:
        ConfigError: names the pattern, what it has and what it may have.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"CRAWLER_THROTTLE must map hosts to rules, got {type(given).__name__}; "
            "write it as in {'example.com': {'rate': 2, 'burst': 4}}"
        )
    exact, globs = dict(names or {}), []
    for pattern, value in given.items():
        name = str(pattern).strip().lower().rstrip(".")
        if not name or re.search(r"[\s/@]", name):
            raise ConfigError(f"CRAWLER_THROTTLE has the host {pattern!r}; write a host, a domain or a glob, no URL")
        rule = _rule(name, value)
        if name == "*":
            default = rule
        elif "*" in name or "?" in name:
            globs.append((name, rule))
        else:
            exact[name] = rule
    return RuleSet(default, exact, tuple(globs))


def _rule(name: str, value: Any) -> Rule:
    where = f"CRAWLER_THROTTLE[{name!r}]"
    known = [item.name for item in fields(Rule)]
    parts = dict(value) if isinstance(value, Mapping) else {"rate": value}
    if unknown := sorted(set(parts) - set(known)):
        raise ConfigError(f"{where} has {unknown[0]!r}; known are {', '.join(known)}")
    strategy = parts.get("strategy", "token_bucket")
    if strategy not in STRATEGIES:
        raise ConfigError(f"{where} has the strategy {strategy!r}; known are {', '.join(STRATEGIES)}")
    no_rate = 0 if {"concurrency", "byte_rate", "budget"} & set(parts) else None
    rate = _between(where, "rate", parts.get("rate", no_rate), 0, HIGHEST_RATE)
    if 0 < rate < LEAST_RATE:
        raise ConfigError(f"{where} has the rate {rate:g}; it must be 0 (no limit) or at least {LEAST_RATE:g} a second")
    burst = _between(where, "burst", parts.get("burst", 1), 1, HIGHEST_BURST)
    jitter = _between(where, "jitter", parts.get("jitter", 0), 0, 1)
    concurrency = _between(where, "concurrency", parts.get("concurrency", 0), 0, HIGHEST_BURST)
    byte_rate = _between(where, "byte_rate", parts.get("byte_rate", 0), 0, HIGHEST_BYTE_RATE)
    if byte_rate and strategy != "token_bucket":
        raise ConfigError(f"{where} has a byte_rate and the strategy {strategy!r}; a byte_rate needs token_bucket")
    budget = _between(where, "budget", parts.get("budget", 0), 0, HIGHEST_BUDGET)
    return Rule(rate, int(burst), jitter, strategy, int(concurrency), byte_rate, int(budget))


def _between(where: str, name: str, value: Any, least: float, most: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not least <= number <= most:
        raise ConfigError(f"{where} has the {name} {value!r}; it must be a number from {least:g} to {most:g}")
    return number


def packed_order(kind: str, rule: Rule | None = None) -> bytes:
    """An operator's order as lib/host.lua reads it: ``pause``, ``block``, or ``slow`` with a rule."""
    return _pack([kind, rule.packed()] if rule else [kind])


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


@lru_cache(maxsize=1024)
def glob_pattern(glob: str) -> re.Pattern[str]:
    """The pattern that a glob's whole hosts match."""
    return re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in glob), re.DOTALL)


def _lua_pattern(glob: str) -> str:
    return "^" + "".join({"*": ".*", "?": "."}.get(char, char if char.isalnum() else "%" + char) for char in glob) + "$"
