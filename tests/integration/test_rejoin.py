"""A worker that joins again gives back what Redis takes for its own and it does not know."""

import pytest

from crawler.redisdb.scripts import run_now
from tests.support.frontier import IDENTITY, LAPSE_SECONDS, FleetOnServer, Member, bodies, leases, page

pytest_plugins = ("tests.support.fleet",)
pytestmark = pytest.mark.usefixtures("each_server")

URLS = [f"http://a.test/{n}" for n in range(5)]


def _join_again(fleet: FleetOnServer, worker: Member, held: list[str]) -> None:
    worker.session.read_opened(
        run_now(fleet.redis, worker.session.open(IDENTITY, int(LAPSE_SECONDS * 1000), held=held))
    )


def test_unknown_leases_come_back_at_once_in_order_and_without_suspicion(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(*map(page, URLS))
    claimed = worker.claim(4)
    held = leases(claimed)[1:2]

    _join_again(fleet, worker, held)

    assert worker.beat(held) == []
    assert fleet.counters()["returned"] == 3
    again = fleet.worker("other").claim()
    assert bodies(again) == [URLS[0], URLS[2], URLS[3], URLS[4]]
    assert [one.deaths for one in again] == [0, 0, 0, 0]
    assert [one.deliveries for one in again] == [1, 1, 1, 0]
    assert worker.settle(done=held).stale == []


def test_a_worker_that_is_new_gives_nothing_back(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(*map(page, URLS))
    held = leases(worker.claim(2))
    fleet.worker("other")
    assert worker.beat(held) == []
    assert worker.settle(done=held).stale == []


def test_more_leases_than_one_call_of_lua_takes_come_back(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    urls = [f"http://a.test/{n}" for n in range(9000)]
    for at in range(0, len(urls), 1000):
        worker.put(*map(page, urls[at : at + 1000]))
        worker.claim(1000, room=1000)
    assert fleet.redis.scard(fleet.partition.held("w1")) == len(urls)

    _join_again(fleet, worker, [])

    assert fleet.counters()["waiting"] == len(urls)
    assert fleet.redis.exists(fleet.partition.held("w1"), fleet.key("inflight"), fleet.key("lease")) == 0
