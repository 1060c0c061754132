"""Fixtures of all tests: servers, and crawl names whose keys are checked."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import KINDS, crawl_name, no_foreign_keys, own_server

ON_OLDEST = ("unit", "fundamentals", "integration")
"""Folders whose tests run on the oldest supported versions too."""

NEWEST_ONLY = {
    "test_ending.py",
    "test_hosts_live.py",
    "test_leases_live.py",
    "test_pace_live.py",
    "test_seeding_live.py",
    "test_storage_live.py",
    "test_workers_live.py",
    "test_workers_seed.py",
    "test_workers_slow.py",
    "test_workers_stop.py",
}
"""Long tests of what does not depend on the version of Scrapy: leases, limits, the end and the feed of a fleet."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = {Path(__file__).parent / name for name in ON_OLDEST}
    for item in items:
        if folders.intersection(item.path.parents) and item.path.name not in NEWEST_ONLY:
            item.add_marker(pytest.mark.oldest)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the server of this test process: REDIS_URL, else an embedded one that nothing else uses."""
    url = os.environ.get("REDIS_URL")
    if url:
        yield url
        return
    with own_server(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture(scope="session", params=KINDS)
def each_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server of each kind in turn."""
    kind: str = request.param
    with own_server(tmp_path_factory.mktemp(kind), kind=kind) as server:
        yield server.url


@pytest.fixture
def declared_keys() -> set[str]:
    """Keys beside the crawl's own that a test leaves on purpose; it adds their names."""
    return set()


@pytest.fixture
def prefix(request: pytest.FixtureRequest, declared_keys: set[str]) -> Iterator[str]:
    """A crawl name of this test alone; keys outside it that the test leaves behind make it fail."""
    server = "each_server" if "each_server" in request.fixturenames else "redis_url"
    crawl = crawl_name()
    with no_foreign_keys(request.getfixturevalue(server), crawl, declared_keys):
        yield crawl
