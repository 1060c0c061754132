"""The worker benchmark on scrapy-redis."""

from tests.support.bench_settings import *  # noqa: F403 - a settings module is the names it holds

SCHEDULER = "scrapy_redis.scheduler.Scheduler"
DUPEFILTER_CLASS = "scrapy_redis.dupefilter.RFPDupeFilter"
