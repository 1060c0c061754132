"""Storage backends, one file for each technology; each sees only crawler.storage, crawler.items and crawler.errors."""
