"""scrapy-redis's spiders as they should run on today's Scrapy: start URLs once for the fleet, seeds without
blocking.
"""

from scrapy_redis.spiders import RedisCrawlSpider as _RedisCrawlSpider
from scrapy_redis.spiders import RedisSpider as _RedisSpider

__all__ = ["RedisCrawlSpider", "RedisSpider"]


class RedisSpider(_RedisSpider):  # type: ignore[misc]  # scrapy-redis ships no types
    """Spider that waits for start URLs in Redis; attributes and settings are those of scrapy-redis."""


class RedisCrawlSpider(_RedisCrawlSpider):  # type: ignore[misc]  # as above
    """CrawlSpider that waits for start URLs in Redis; attributes and settings are those of scrapy-redis."""
