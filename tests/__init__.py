"""Tests, the lab that they crawl, and the commands that measure."""
