"""The fixtures ``lab`` and ``project``; a plugin, so that tests of several folders share them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.support.accounts import check_account
from tests.support.commands import UserProject
from tests.support.lab import Lab, LabSpec


@pytest.fixture(scope="session")
def small_lab() -> Iterator[Lab]:
    """A lab of 60 pages on six hosts, shared by the tests of a process; each resets its hits."""
    with Lab(LabSpec(pages=60, hosts=6, links=8)) as lab:
        yield lab


@pytest.fixture
def lab(small_lab: Lab) -> Lab:
    """The lab, which nobody has hit yet."""
    small_lab.reset()
    return small_lab


@pytest.fixture
def project(redis_url: str, prefix: str, tmp_path: Path) -> Iterator[UserProject]:
    """The tests' own project, for one crawl."""
    with Redis.from_url(redis_url) as redis:
        made = UserProject(redis, redis_url, prefix, tmp_path)
        yield made
        made.close()
        check_account(redis, made.crawl)
