"""The worker benchmark on the shared frontier."""

from tests.support.bench_settings import *  # noqa: F403 - a settings module is the names it holds

ADDONS = {"crawler.addon.DistributedCrawl": 100}
CRAWLER_TARGETS_PRIVATE_ALLOWED = True
