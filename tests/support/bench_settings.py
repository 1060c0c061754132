"""What all sides of the worker benchmark have in common; which scheduler they run comes with ``-s``."""

BOT_NAME = "bench"
SPIDER_MODULES = ["tests.support.spiders"]
ROBOTSTXT_OBEY = False
CONCURRENT_REQUESTS = 32
CONCURRENT_REQUESTS_PER_DOMAIN = 32
LOG_LEVEL = "INFO"
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False
