"""Crawls in which something is killed, and the count of what is lost."""
