"""What a user's project may have of its own: filter, fingerprinter, scheduler, middleware."""

import os
import signal
from pathlib import Path
from typing import Self

from scrapy import Request
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.request import fingerprint


class LanguageFingerprinter:
    """Takes pages in several languages for several pages."""

    def fingerprint(self, request: Request) -> bytes:
        return fingerprint(request, include_headers=["Accept-Language"])


class NoThirdLeaf(BaseDupeFilter):
    """Takes one page for seen from the start."""

    def request_seen(self, request: Request) -> bool:
        return request.url.endswith("/leaf/2")


class OwnScheduler(Scheduler):
    """A scheduler of another kind."""


class OwnRobots(RobotsTxtMiddleware):
    """Its own way to robots.txt."""


class TroubleOnce:
    """The first request for the path TROUBLE_PATH fails, or kills its worker: a file tells that it was.

    Innermost, so that nothing was sent yet.
    """

    def __init__(self, path: str, kind: str, file: Path) -> None:
        self._path = path
        self._kind = kind
        self._file = file

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        settings = crawler.settings
        return cls(settings["TROUBLE_PATH"], settings["TROUBLE_KIND"], Path(settings["TROUBLE_FILE"]))

    def process_request(self, request: Request) -> None:
        if not request.url.endswith(self._path) or self._file.exists():
            return
        self._file.touch()
        if self._kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("the connection broke, says the test")
