"""The Scrapy side: scheduler, middlewares, pipeline, extension, spiders; only here Scrapy is imported."""
