"""Crawls of a fleet: addresses come from the environment, and a missing one stops the start."""

import os
import sys

from settings.base import *


def _required(name: str, example: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        sys.exit(f"trawlnet: settings.production needs {name}, and the environment has none; set {name}={example}")
    return value


REDIS_URL = _required("REDIS_URL", "rediss://crawler:PASSWORD@redis.internal:6379/0")
CRAWLER_STORAGE = _required("CRAWLER_STORAGE", "sqlite:////data/items.db")
USER_AGENT = _required("USER_AGENT", "'examplebot/1.0 (bot@example.com)'")

LOG_LEVEL = "INFO"
