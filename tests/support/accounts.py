"""That no URL of a crawl is missing, whatever a test did to it."""

from typing import Any

from crawler.frontier.account import Audit, audit_call, read_audit
from crawler.redisdb.keys import Partition
from crawler.redisdb.scripts import run_now


def audit(redis: Any, crawl: str) -> Audit:
    """Where the crawl's URLs are."""
    return read_audit(run_now(redis, audit_call(Partition(crawl))))


def check_account(redis: Any, crawl: str) -> None:
    """Fails where what came in is not what is there."""
    found = audit(redis, crawl)
    assert not found.differences, "; ".join(map(str, found.differences))
