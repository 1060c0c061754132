"""Trawlnet: distributed crawling on Scrapy and Redis that loses nothing."""

__version__ = "0.1.0"
