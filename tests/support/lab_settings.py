"""Settings of crawls of the lab."""

from settings.test import *  # noqa: F403 - a settings module is the names it holds

SPIDER_MODULES = ["tests.support.spiders"]
ROBOTSTXT_OBEY = False
CONCURRENT_REQUESTS = 16
