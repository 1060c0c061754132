"""A spider that is called like one of Scrapy's commands."""

from tests.support.spiders.lab import LabSpider


class FetchSpider(LabSpider):
    """``scrapy crawl fetch``."""

    name = "fetch"
