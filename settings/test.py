"""Crawls of the lab on loopback addresses: no delay, and short leases so that recovery is seen quickly."""

from settings.base import *

CRAWLER_TARGETS_PRIVATE_ALLOWED = True
CRAWLER_FRONTIER_LEASE_SECONDS = 5
CRAWLER_MEMBERSHIP_BEAT_SECONDS = 0.5
CRAWLER_MEMBERSHIP_LAPSE_SECONDS = 2

CONCURRENT_REQUESTS_PER_DOMAIN = 32
DOWNLOAD_DELAY = 0
DOWNLOAD_TIMEOUT = 20
LOG_LEVEL = "INFO"
