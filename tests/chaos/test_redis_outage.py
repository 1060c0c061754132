"""Redis goes away in the middle of a crawl by three workers: none ends, none stalls, and nothing is lost."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.support.crawling import let_pass
from tests.support.lab import Lab
from tests.support.labcrawl import LabCrawl
from tests.support.loopgap import Gap, GapMeter
from tests.support.outage import SPEC, survive

AWAY_SECONDS = 15.0 if os.environ.get("LONG_OUTAGES") else 5.0
PAUSE_SECONDS = 5.0
LOST_SECONDS = 1.0
"""Writes that the append-only file loses at its end: what ``everysec`` may lose when the machine goes down."""

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(SPEC) as lab:
        yield lab


def _killed(crawl: LabCrawl) -> None:
    crawl.server.kill()
    let_pass(AWAY_SECONDS)
    crawl.server.start()


def _paused(crawl: LabCrawl) -> None:
    with Redis.from_url(crawl.server.url) as client:
        client.client_pause(int(PAUSE_SECONDS * 1000))
    let_pass(PAUSE_SECONDS)


def _stopped(crawl: LabCrawl) -> None:
    os.kill(crawl.server.pid, signal.SIGSTOP)
    try:
        let_pass(AWAY_SECONDS)
    finally:
        os.kill(crawl.server.pid, signal.SIGCONT)


def _killed_with_its_tail_lost(crawl: LabCrawl) -> None:
    (tail,) = crawl.server.data_dir.glob("appendonlydir/*.incr.aof")
    kept_bytes = tail.stat().st_size
    let_pass(LOST_SECONDS)
    crawl.server.kill()
    assert tail.stat().st_size > kept_bytes
    os.truncate(tail, kept_bytes)
    crawl.server.start()


@pytest.mark.parametrize("outage", [_killed, _paused, _stopped])
def test_an_outage_stalls_nobody_and_loses_nothing(
    lab: Lab, tmp_path: Path, outage: Callable[[LabCrawl], None]
) -> None:
    survived = survive(lab, tmp_path, outage)
    assert survived.silence_seconds > PAUSE_SECONDS / 2, "the outage was not felt"
    assert survived.hits == SPEC.pages
    assert survived.gap_seconds < survived.gap_limit_seconds


def test_what_redis_forgot_is_found_again(lab: Lab, tmp_path: Path) -> None:
    survived = survive(lab, tmp_path, _killed_with_its_tail_lost)
    assert any("joining again and putting again what it holds" in log for log in survived.logs)
    assert survived.hits > SPEC.pages, "nothing was lost that had to be fetched again"
    assert survived.gap_seconds < survived.gap_limit_seconds


def test_the_meter_sees_a_call_that_blocks() -> None:
    async def block() -> list[Gap]:
        meter = GapMeter()
        meter.start()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.settimeout(0.3)
            with pytest.raises(TimeoutError):
                silent.accept()
        while not meter.gaps:
            await asyncio.sleep(0)
        meter.stop()
        return meter.gaps

    (gap,) = asyncio.run(block())
    assert gap.seconds > 0.25
    assert gap.cpu_seconds < 0.1
