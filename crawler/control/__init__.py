"""Looking at a crawl from outside, and steering it."""
