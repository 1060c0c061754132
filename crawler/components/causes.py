"""Why a download has to be tried again, as CRAWLER_RETRY names it.

By the names of exception classes, whichever download handler raises them: Twisted's, Scrapy's own (2.15 and later) and
those of the standard library. Checked on Scrapy 2.14.2 and 2.19.0.
"""

from crawler.download.retries import CONNECTION, DNS, REFUSAL, STATUS, TIMEOUT

PATIENCE_CODES = {429, 503}
ERROR_CODES = range(400, 600)

_NAMES = {
    "DNSLookupError": DNS,
    "CannotResolveHostError": DNS,
    "gaierror": DNS,
    "TimeoutError": TIMEOUT,
    "DownloadTimeoutError": TIMEOUT,
    "UserTimeoutError": TIMEOUT,
    "TCPTimedOutError": TIMEOUT,
}


def cause_of_exception(error: BaseException) -> str:
    """``dns``, ``timeout``, or for all else ``connection``."""
    for kind in type(error).__mro__:
        if kind.__name__ in _NAMES:
            return _NAMES[kind.__name__]
    return CONNECTION


def cause_of_status(status: int) -> str:
    """``refusal`` where the answer asks for patience, so that its host waits anyway; empty where it is no error."""
    if status in PATIENCE_CODES:
        return REFUSAL
    return STATUS if status in ERROR_CODES else ""
