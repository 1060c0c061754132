"""Callbacks and errbacks by name: the methods of one spider, which every worker of its crawl has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

from scrapy import Spider

from crawler.errors import UnknownCallback


class SpiderMethods:
    """Finds a spider's methods by name, and names by method."""

    def __init__(self, spider: Spider) -> None:
        """Take the methods of this spider, now and later."""
        self._spider = spider
        self._methods: dict[str, Callable[..., Any]] = {}
        self._names: dict[Callable[..., Any], str] = {}

    def named(self, name: str) -> Callable[..., Any]:
        """The spider's method of that name; raises UnknownCallback if it has none."""
        found = self._methods.get(name)
        if found is None:
            found = _method(self._spider, name)
            if found is None:
                raise UnknownCallback(
                    f"the entry names the callback {name!r}, which {type(self._spider).__qualname__} lacks; "
                    "deploy the version that has it, or purge the entry"
                )
            self._methods[name] = found
        return found

    def name_of(self, function: Callable[..., Any]) -> str | None:
        """Name by which `named` finds the function again; None if it is no method of the spider."""
        try:
            known = self._names.get(function)
        except TypeError:  # an unhashable callable
            return None
        if known is not None:
            return known
        for name in (getattr(function, "__name__", ""), *dir(self._spider)):
            if _method(self._spider, name) == function:
                self._names[function] = name
                return name
        return None


def _method(spider: Spider, name: str) -> Callable[..., Any] | None:
    if name.startswith("__") and name.endswith("__"):
        return None
    found = inspect.getattr_static(spider, name, None)
    if name in vars(spider):
        return found if isinstance(found, MethodType) and found.__self__ is spider else None
    if isinstance(found, classmethod) or (callable(found) and hasattr(type(found), "__get__")):
        method = getattr(spider, name)
        return method if callable(method) else None
    return None
