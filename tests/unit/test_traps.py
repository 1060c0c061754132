"""Shapes of URLs that sites make without end, and shapes that only look like them."""

import pytest

from crawler.components.budgets import Budgets
from crawler.errors import ConfigError
from crawler.frontier.traps import suspicion_of
from crawler.throttle.rules import Rule, RuleSet

ORDINARY = [
    "https://example.com",
    "https://example.com/",
    "https://example.com/page/2/",
    "https://example.com/en/en/",
    "https://example.com/v1/v1/items",
    "https://example.com/2024/05/05/a-title",
    "https://example.com/news/2024-05-12-a-title.html",
    "https://example.com/2024/05/12/a-title/?utm_source=a",
    "https://example.com/search?q=a&color=red&color=blue&size=m&size=l&brand=b&page=3&sort=price",
    "https://example.com/a/b/c/d/e/f/g/h/i/j",
    "https://example.com/item?id=20240512",
    "https://example.com/item/20240599",
    "https://example.com/models/2024",
    "https://example.com/tel/2012-13-14",
    "https://example.com/files/report-2024-05.pdf",
    "https://example.com/tiles/0/0/1.png",
]


@pytest.mark.parametrize("url", ORDINARY)
def test_ordinary_urls_are_not_suspicious(url: str) -> None:
    assert suspicion_of(url) is None


@pytest.mark.parametrize(
    ("url", "reason", "stop"),
    [
        ("https://example.com/a/b/a/b/a/b", "repeating_segments", False),
        ("https://example.com/a/b/a/b/a/b/a/b/a/b/a/b", "repeating_segments", True),
        ("https://example.com/x/x/x/x/", "repeating_segments", False),
        ("https://example.com/?" + "&".join(f"p{n}=1" for n in range(25)), "growing_query", False),
        ("https://example.com/?" + "&".join(f"p{n}=1" for n in range(60)), "growing_query", True),
        ("https://example.com/?" + "&".join(["page=1"] * 6), "growing_query", False),
        ("https://example.com/?" + "&".join(["page=1"] * 15), "growing_query", True),
    ],
)
def test_traps_are_put_off_first_and_refused_later(url: str, reason: str, stop: bool) -> None:
    found = suspicion_of(url)
    assert found is not None
    assert (found.reason, found.stop) == (reason, stop)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://a.test/calendar/2026/1", "http://a.test/calendar/2031/12"),
        ("http://a.test/events/2026-05-12", "http://a.test/events/2027-06-01"),
        ("http://a.test/events/2026-05-12/list/", "http://a.test/events/2027-06-01/list/"),
        ("http://a.test/day/20260512", "http://a.test/day/20270601"),
        ("http://a.test/cal?date=2026-05-12&view=day", "http://a.test/cal?date=2030-05-12&view=day"),
        ("http://a.test/cal?month=5&year=2026", "http://a.test/cal?month=12&year=2040"),
    ],
)
def test_dates_of_one_calendar_share_a_budget(one: str, other: str) -> None:
    first, second = suspicion_of(one), suspicion_of(other)
    assert first is not None
    assert second is not None
    assert first.reason == "calendar"
    assert first.name == second.name
    elsewhere = suspicion_of(one.replace("a.test", "b.test"))
    assert elsewhere is not None
    assert elsewhere.name != first.name


RULES = RuleSet(Rule(budget=20), {"a.test": Rule(rate=1, budget=5), "free.test": Rule()})
PATHS = {"a.test/news/": 3, "a.test/news/old/": 2, "*.b.*/x": 1}


@pytest.mark.parametrize(
    ("url", "host", "budgets"),
    [
        ("http://c.test/", "c.test", [("c.test", 20)]),
        ("http://www.a.test/", "www.a.test", [("www.a.test", 5)]),
        ("http://a.test/news/1?q=2", "a.test", [("a.test", 5), ("a.test/news/", 3)]),
        ("http://a.test/news/old/1", "a.test", [("a.test", 5), ("a.test/news/old/", 2)]),
        ("http://a.test/news", "a.test", [("a.test", 5)]),
        ("http://www.b.org/xyz", "www.b.org", [("www.b.org", 20), ("www.b.org/x", 1)]),
        ("http://free.test/", "free.test", []),
    ],
)
def test_what_a_url_counts_in(url: str, host: str, budgets: list[tuple[str, int]]) -> None:
    assert [(name, most) for name, most, _ in Budgets(RULES, PATHS, 100).of(url, host, None)] == budgets


def test_a_calendar_has_a_soft_part() -> None:
    url = "http://a.test/calendar/2026/1"
    [budget] = Budgets(RuleSet(), {}, 100).of(url, "a.test", suspicion_of(url))
    assert (budget.most, budget.soft) == (100, 10)


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ({"a.test": 3}, "write a host, domain or glob and a path"),
        ({"/x": 3}, "write a host, domain or glob and a path"),
        ({"a.test/": "many"}, "must be a whole number"),
        ({"a.test/": -1}, "must be a whole number"),
    ],
)
def test_wrong_budgets_are_refused(paths: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Budgets(RuleSet(), paths, 100)
