"""The fixture ``fleet``; a plugin, so that tests of several folders share it."""

from collections.abc import Iterator

import pytest
from redis import Redis

from tests.support.accounts import check_account
from tests.support.frontier import FleetOnServer


@pytest.fixture
def fleet(request: pytest.FixtureRequest, prefix: str) -> Iterator[FleetOnServer]:
    """A crawl without workers; with ``usefixtures("each_server")`` on a server of each kind."""
    url: str = request.getfixturevalue("each_server" if "each_server" in request.fixturenames else "redis_url")
    with Redis.from_url(url) as redis:
        fleet = FleetOnServer(redis, prefix, url)
        yield fleet
        if not fleet.tampered:
            check_account(redis, prefix)
