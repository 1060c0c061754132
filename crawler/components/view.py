"""The one place that reads Scrapy's private state: what the engine still has of a request, and how to wake it.

Checked on Scrapy 2.14.2 and 2.19.0: ``ExecutionEngine._slot`` (``_Slot.inprogress``, ``nextcall``, ``closing``,
``_maybe_fire_closing``), ``Downloader.active``, ``Scraper.slot`` (``queue``, ``active``).
"""

from collections.abc import Hashable, Iterable
from typing import Any

from scrapy.crawler import Crawler


class EngineView:
    """Looks into one crawler's engine."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._given_up: set[Hashable] = set()

    @property
    def _slot(self) -> Any:
        engine: Any = self._crawler.engine
        return None if engine is None else engine._slot

    def has(self, request: Hashable) -> bool:
        """Whether the request is between being handed over and the end of its callback and pipelines."""
        slot = self._slot
        return slot is not None and request in slot.inprogress

    def is_downloading(self, request: Hashable) -> bool:
        """Whether the request takes, or waits for, a place in the downloader."""
        engine: Any = self._crawler.engine
        return engine is not None and request in engine.downloader.active

    def wake(self) -> None:
        """Makes the engine ask for requests, or notice that it is idle, at once and not at its next heartbeat."""
        slot = self._slot
        if slot is not None and slot.closing is None:
            slot.nextcall.schedule()

    @property
    def closing(self) -> bool:
        """Whether the engine has begun to close its spider."""
        slot = self._slot
        return slot is not None and slot.closing is not None

    @property
    def in_progress(self) -> int:
        """Requests that are being downloaded or scraped."""
        slot = self._slot
        return 0 if slot is None else len(slot.inprogress)

    def give_up(self, request: Hashable) -> None:
        """Notes a request that may never end."""
        self._given_up.add(request)

    @property
    def held_up(self) -> bool:
        """Whether the engine has nothing left but requests that may never end."""
        slot = self._slot
        return bool(self._given_up and slot is not None and slot.inprogress and self._given_up >= slot.inprogress)

    def mute(self, requests: Iterable[Any] | None = None) -> None:
        """Keeps errbacks, of these or of all that is in progress, from being called: it was handed back and has not
        failed.
        """
        slot = self._slot
        if requests is None:
            requests = () if slot is None else slot.inprogress
        for request in requests:
            request.errback = _ignore

    def abandon(self) -> None:
        """Lets a closing engine go on without what it still downloads or scrapes; the leases of that were handed
        back.
        """
        engine: Any = self._crawler.engine
        slot = self._slot
        if slot is None or slot.closing is None:
            return
        self.mute()
        scraper_slot = engine.scraper.slot
        if scraper_slot is not None:
            scraper_slot.queue.clear()
            scraper_slot.active.clear()
            scraper_slot.itemproc_size = 0
        slot.inprogress.clear()
        if not slot.closing.called:
            slot._maybe_fire_closing()


def _ignore(failure: Any) -> None:
    """Errback of a request that was handed back."""
