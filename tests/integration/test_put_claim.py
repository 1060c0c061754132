"""Which entries go in, and in which order they come out."""

import pytest

from crawler.frontier.plan import Put
from tests.support.frontier import FleetOnServer, bodies, leases, page, redirect, retry, unfiltered

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")


@both
def test_higher_priorities_come_first_and_equal_ones_in_order(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    bands = [0, -3, 5, 0, 100, 5, -3, -100]
    worker.put(*(page(f"http://a.test/{at}", band) for at, band in enumerate(bands)))
    in_order = sorted(range(len(bands)), key=lambda at: (-bands[at], at))
    assert bodies(worker.claim(3)) + bodies(worker.claim(1)) + bodies(worker.claim()) == [
        f"http://a.test/{at}" for at in in_order
    ]


@both
def test_a_claim_is_spread_over_hosts(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(*(page(f"http://{host}.test/{n}") for host in "abc" for n in range(4)))
    assert bodies(worker.claim(6)) == [f"http://{host}.test/{n}" for host in "abc" for n in (0, 1)]
    assert len(worker.claim(100)) == 6


def test_hosts_take_turns(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(*(page(f"http://a.test/{n}") for n in range(9)))
    fleet.advance(0.01)
    worker.put(page("http://late.test/"))
    hosts = []
    for _ in range(3):
        fleet.advance(0.01)
        hosts += [claimed.host for claimed in worker.claim(1)]
    assert hosts == ["a.test", "late.test", "a.test"]


def test_a_host_keeps_its_turn_when_more_of_it_is_put(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    for url in ("http://first.test/1", "http://a.test/", "http://first.test/2"):
        fleet.advance(0.01)
        worker.put(page(url))
    assert bodies(worker.claim(1)) == ["http://first.test/1"]


@both
def test_a_busy_host_gives_no_more_than_its_room(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(*(page(f"http://{host}.test/{n}") for host in "abc" for n in range(9)))
    claimed = worker.claim(12, room=3, rooms={"a.test": 0, "b.test": 1})
    assert [one.host for one in claimed] == ["b.test", *["c.test"] * 3]


def test_hosts_without_room_do_not_hide_the_others(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(*(page(f"http://a{n}.test/") for n in range(9)), page("http://z.test/"))
    assert bodies(worker.claim(1, rooms={f"a{n}.test": 0 for n in range(9)})) == ["http://z.test/"]


@both
def test_an_entry_with_a_due_time_waits_for_it(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(page("http://a.test/1"), page("http://a.test/2"))
    one, other = worker.claim()
    worker.settle(retries=[retry(one, 5_000), retry(other, 3_000)])
    assert worker.claim() == []
    assert worker.left.delayed == 2
    assert 2 < worker.left.due_seconds <= 3
    fleet.advance(3.001)
    assert bodies(worker.claim()) == ["http://a.test/2"]
    fleet.advance(2)
    assert bodies(worker.claim()) == ["http://a.test/1"]


@both
def test_a_url_is_queued_once(fleet: FleetOnServer) -> None:
    one, other = fleet.worker("one"), fleet.worker("other")
    a, b = page("http://a.test/a"), page("http://a.test/b", band=7)
    assert one.put(a, b, a, b) == "1100"
    assert other.put(b, a, page("http://a.test/c")) == "001"
    assert sorted(fleet.queued()) == ["http://a.test/a", "http://a.test/b", "http://a.test/c"]
    assert fleet.counters() == {"put": 3, "seen": 3, "waiting": 3, "duplicate": 4}


@both
def test_unfiltered_requests_are_queued_once_for_each_time_that_their_parent_asks(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    polled = "http://a.test/"
    assert worker.put(page(polled)) == "1"
    assert worker.put(unfiltered(polled), unfiltered(polled), unfiltered(polled, 1)) == "101"
    assert worker.put(unfiltered(polled), unfiltered(polled, 1), unfiltered(polled, 2)) == "001"
    assert worker.put(unfiltered(polled, parent=b"another")) == "1"
    assert fleet.counters() == {"put": 5, "seen": 1, "waiting": 5, "duplicate": 3}


def test_an_unfiltered_request_marks_its_url_as_seen(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    assert worker.put(unfiltered("http://a.test/1"), page("http://a.test/1")) == "10"
    assert worker.put(unfiltered("http://a.test/2")) == "1"
    assert worker.put(page("http://a.test/2")) == "0"


@both
def test_a_redirect_asks_for_its_target_and_queues_nothing(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    target, other = redirect("http://b.test/", b"page 1"), redirect("http://b.test/", b"page 2")
    assert worker.put(target) == "1"
    assert fleet.queued() == []
    assert worker.put(page("http://b.test/")) == "0", "the redirect fetches it"
    assert worker.put(other) == "0", "so does no other redirect"
    # Its worker died before it had fetched the target: the next one that fetches the page asks again.
    assert worker.put(target) == "1"


def test_a_redirect_to_what_was_queued_is_known(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    assert worker.put(page("http://b.test/")) == "1"
    target = redirect("http://b.test/", b"page")
    assert [worker.put(target), worker.put(target)] == ["0", "0"]


def test_a_link_and_a_redirect_to_one_url_in_one_batch_are_one(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    assert worker.put(page("http://a.test/"), redirect("http://a.test/", b"page")) == "10"
    assert worker.put(redirect("http://b.test/", b"page"), page("http://b.test/")) == "10"
    assert fleet.queued() == ["http://a.test/"]


@both
@pytest.mark.parametrize("host", ["a.test:8080", "münchen.test", "[::1]:80", "a{b}c", "q:x:1", "-"])
def test_any_host_and_any_bytes_come_out_as_they_went_in(fleet: FleetOnServer, host: str) -> None:
    worker = fleet.worker()
    body = bytes(range(256)) * 30
    assert worker.put(Put(host, -1, b"k" * 16, b"", body)) == "1"
    [claimed] = worker.claim()
    assert (claimed.host, claimed.body, claimed.deliveries, claimed.deaths) == (host, body, 0, 0)
    worker.settle(back=[claimed.lease])
    [again] = worker.claim()
    assert (again.host, again.body, again.deliveries) == (host, body, 1)


def test_a_full_batch_goes_in_and_comes_out(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    urls = [f"http://{n % 7}.test/{'x' * 7000}{n}" for n in range(128)]
    assert worker.put(*map(page, urls)) == "1" * 128
    assert sorted(bodies(worker.claim(128))) == sorted(urls)


def test_nothing_is_left_of_queues_that_are_empty(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(*(page(f"http://{host}.test/{band}", band) for host in "ab" for band in (-2, 0, 3)))
    worker.settle(done=leases(worker.claim()))
    worker.claim()
    names = fleet.names()
    assert {name.split(":")[0] for name in names} == {"state", "counters", "session", "workers", "seen", "idle"}
    assert fleet.counters() == {"put": 6, "seen": 6, "done": 6}


@both
def test_lease_ids_grow_also_past_a_loss_of_all_keys(fleet: FleetOnServer) -> None:
    one, other = fleet.worker("one"), fleet.worker("other")
    one.put(*(page(f"http://a.test/{n}") for n in range(4)))
    ids = [int(lease) for worker in (one, other, one, other) for lease in leases(worker.claim(1))]
    assert ids == sorted(set(ids))
    fleet.redis.delete(*(fleet.key(name) for name in fleet.names()))
    later = fleet.worker()
    later.put(page("http://a.test/"))
    assert int(later.claim()[0].lease) > ids[-1]


def test_a_worker_that_found_nothing_is_told_of_what_comes(fleet: FleetOnServer) -> None:
    idle, busy = fleet.worker("idle"), fleet.worker("busy")
    busy.put(page("http://a.test/1"))
    assert not fleet.redis.exists(fleet.key("wake")), "nobody waits"
    assert busy.claim()
    assert idle.claim() == []
    busy.put(page("http://a.test/1"))
    assert not fleet.redis.exists(fleet.key("wake")), "nothing new came"
    busy.put(page("http://a.test/2"))
    assert fleet.redis.get(fleet.key("wake")) == b"1"
    assert 0 < fleet.redis.ttl(fleet.key("wake")) <= 60
    busy.put(page("http://a.test/3"))
    assert fleet.redis.get(fleet.key("wake")) == b"1", "it was told already"


def test_a_claim_of_nothing_takes_nothing_and_tells_what_is_left(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(page("http://a.test/"))
    assert worker.claim(0) == []
    assert (worker.left.waiting, worker.left.in_flight) == (1, 0)
    assert fleet.redis.scard(fleet.key("idle")) == 0
