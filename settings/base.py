"""What all environments share; every CRAWLER_ name is explained in docs/settings.md."""

import os

BOT_NAME = "trawlnet"
SPIDER_MODULES = ["spiders"]
NEWSPIDER_MODULE = "spiders"

ADDONS = {"crawler.addon.DistributedCrawl": 100}

# Only where it is set: without it a worker looks on localhost, and trawlnet up starts a server of its own.
if os.environ.get("REDIS_URL"):
    REDIS_URL = os.environ["REDIS_URL"]

CRAWLER_STORAGE = "sqlite:///items.db"

# Sites decide by it whether to let a crawler in: add an address where its operator can be reached.
USER_AGENT = "trawlnet/0.1"
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS = 64
CONCURRENT_REQUESTS_PER_DOMAIN = 8
DOWNLOAD_TIMEOUT = 60

FEED_EXPORT_ENCODING = "utf-8"
