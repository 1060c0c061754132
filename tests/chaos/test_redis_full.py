"""Redis is full in the middle of a crawl: it refuses writes, the workers keep what they have, and nothing is lost."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.support.crawling import let_pass
from tests.support.lab import Lab
from tests.support.labcrawl import LabCrawl
from tests.support.outage import SPEC, survive

FULL_SECONDS = 60.0 if os.environ.get("LONG_OUTAGES") else 3.0

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(SPEC) as lab:
        yield lab


def _full(crawl: LabCrawl) -> None:
    with Redis.from_url(crawl.server.url) as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"])
        let_pass(FULL_SECONDS)
        refused = client.info("errorstats")
        client.config_set("maxmemory", 0)
    assert refused["errorstat_OOM"]["count"], "the server was never full"


def test_a_full_server_stalls_nobody_and_drops_nothing(lab: Lab, tmp_path: Path) -> None:
    survived = survive(lab, tmp_path, _full)
    assert survived.hits == SPEC.pages
    assert survived.silence_seconds > FULL_SECONDS / 2, "the workers claimed work from a full server"
    assert survived.gap_seconds < survived.gap_limit_seconds
