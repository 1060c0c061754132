"""Settings of this project's own crawls; SCRAPY_PROJECT=production, or test, chooses another module."""
