"""What tests that break a crawl of the lab have in common: extensions, waiting with logs, and the exact count."""

import json
import subprocess
import time
from collections.abc import Callable

from redis import Redis

from crawler.control.crawls import Crawls
from tests.support.labcrawl import LabCrawl
from tests.support.waiting import wait_until

START_SECONDS = 60.0
END_SECONDS = 100.0
SHOWN_LINES = 25

Process = subprocess.Popen[bytes]


def extension(*classes: type) -> str:
    """The setting that installs extensions of tests before all others."""
    return "EXTENSIONS=" + json.dumps({f"{each.__module__}.{each.__qualname__}": -1 for each in classes})


def let_pass(seconds: float) -> None:
    """Lets a time pass that is itself the case, such as how long a server is away."""
    ends = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= ends, seconds + START_SECONDS, f"{seconds:g} s to pass")


def logs(crawl: LabCrawl) -> str:
    """The end of each worker's log."""
    ends = (
        f"-- worker {number}, exit code {worker.poll()}\n" + "\n".join(crawl.log(number).splitlines()[-SHOWN_LINES:])
        for number, worker in enumerate(crawl.workers)
    )
    return "\n".join(ends)


def wait_with_logs(crawl: LabCrawl, condition: Callable[[], object], what: str, limit_seconds: float) -> None:
    """Waits; where that is in vain the error shows the ends of the workers' logs."""
    try:
        wait_until(condition, limit_seconds, what)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{logs(crawl)}") from None


def wait_for_end(crawl: LabCrawl, *workers: Process, code: int = 0) -> None:
    """Waits until the workers have ended, and checks with which exit code."""
    wait_with_logs(
        crawl, lambda: all(worker.poll() is not None for worker in workers), "the end of the workers", END_SECONDS
    )
    codes = [worker.poll() for worker in workers]
    assert codes == [code] * len(workers), f"exit codes {codes}\n{logs(crawl)}"


def assert_exact(crawl: LabCrawl) -> None:
    """All is there, once; the crawl is finished, and the frontier put, marked as seen and settled each page once."""
    try:
        crawl.assert_complete()
        with Redis.from_url(crawl.server.url) as client:
            status = Crawls(client, crawl.spider).status()
        assert (status.state, status.dead, status.unread) == ("finished", 0, 0), f"the crawl ended as {status}"
        counters = crawl.counters()
        counted = {name: counters.get(name) for name in ("put", "seen", "done")}
        assert counted == dict.fromkeys(counted, crawl.lab.spec.pages), f"of {crawl.lab.spec.pages} pages"
    except AssertionError as error:
        raise AssertionError(f"{error}\n{logs(crawl)}") from None


def hits_of_pages(crawl: LabCrawl) -> int:
    """How often pages were fetched."""
    return sum(crawl.page_hits().values())
