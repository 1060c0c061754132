"""Crawls from a developer's machine: gentle, and easy to follow in the log."""

from settings.base import *

DOWNLOAD_DELAY = 0.25
LOG_LEVEL = "INFO"
