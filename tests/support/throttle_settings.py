"""A project of plain Scrapy: of Trawlnet it has nothing but the throttle."""

BOT_NAME = "plain"
SPIDER_MODULES = ["tests.support.spiders"]
DOWNLOADER_MIDDLEWARES = {"crawler.components.throttle.ThrottleMiddleware": 950}
ROBOTSTXT_OBEY = False
CONCURRENT_REQUESTS_PER_DOMAIN = 8
DOWNLOAD_DELAY = 0
LOG_LEVEL = "INFO"
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False
