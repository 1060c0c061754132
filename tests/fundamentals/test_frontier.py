"""What the frontier does, to be read first: a crawl from its first URL to its end, and a worker that dies on it."""

import pytest

from tests.support.frontier import LAPSE_SECONDS, FleetOnServer, bodies, leases, page, retry

pytest_plugins = ("tests.support.fleet",)
pytestmark = pytest.mark.usefixtures("each_server")


def test_a_crawl_from_its_first_url_to_its_end(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    assert worker.start("take") == "mine"
    assert worker.put(page("http://a.test/"), page("http://b.test/")) == "11"
    assert worker.start("done") == "done"

    first, second = worker.claim()
    assert bodies([first, second]) == ["http://a.test/", "http://b.test/"]
    assert worker.claim() == [], "what is leased is nobody else's"
    assert worker.finish() == "open", "pages are still being fetched"

    # Links go in as their page goes out; the home page was seen.
    links = [page("http://a.test/1"), page("http://a.test/")]
    assert worker.settle(*links, done=[first.lease]).new == "10"
    # A page that failed comes back later; one that never will is a dead letter with its reason.
    assert worker.settle(retries=[retry(second, 30_000)]).stale == []
    [link] = worker.claim()
    worker.settle(dead=[(link.lease, {"kind": "page", "reason": "status 404"})])
    assert worker.left.delayed == 1
    assert worker.finish() == "open", "one page is tried again later"

    fleet.advance(31)
    [again] = worker.claim()
    assert (again.body, again.deliveries) == (b"http://b.test/", 1)
    worker.settle(done=[again.lease])
    assert worker.finish() == "finished"
    assert fleet.counters() == {"put": 3, "seen": 3, "done": 2, "dead": 1, "retried": 1, "duplicate": 1}
    assert [letter["reason"] for letter in fleet.letters()] == [b"status 404"]


def test_what_a_dead_worker_held_is_crawled_by_others(fleet: FleetOnServer) -> None:
    dying, other = fleet.worker("dying"), fleet.worker("other")
    dying.put(*(page(f"http://a.test/{n}") for n in range(3)))
    held = leases(dying.claim())

    returned, letters = fleet.pass_time(LAPSE_SECONDS, alive=[(other, [])])
    assert (returned, letters) == (3, 0)
    for _ in range(3):
        # Each could be the one that killed the worker, so they are tried one at a time.
        [suspect] = other.claim()
        other.settle(done=[suspect.lease])
    assert fleet.counters()["done"] == 3
    assert dying.name not in fleet.redis.zrange(fleet.key("workers"), 0, -1)
    assert not set(held) & set(fleet.redis.hkeys(fleet.key("inflight")))


def test_the_settle_of_a_worker_that_was_only_slow_is_refused(fleet: FleetOnServer) -> None:
    slow, other = fleet.worker("slow"), fleet.worker("other")
    slow.put(page("http://a.test/"))
    [held] = slow.claim()
    # It beats, but has stopped to renew this lease.
    fleet.pass_time(60, alive=[(slow, []), (other, [])])
    [taken] = other.claim()
    assert taken.body == held.body
    assert int(taken.lease) > int(held.lease), "lease ids order the fetches of a page"
    assert slow.settle(done=[held.lease]).stale == [held.lease]
    assert other.settle(done=[taken.lease]).stale == []
    assert fleet.counters()["done"] == 1


def test_a_crawl_that_is_run_again_starts_over_unless_told_to_remember(fleet: FleetOnServer) -> None:
    first = fleet.worker()
    first.put(page("http://a.test/"))
    first.settle(done=leases(first.claim()))
    first.start("take")
    first.start("done")
    assert first.finish() == "finished"
    first.leave()

    remembering = fleet.member()
    assert remembering.open(keep_seen=True).generation == 2
    assert remembering.put(page("http://a.test/")) == "0"
    remembering.start("take")
    remembering.start("done")
    remembering.finish()
    remembering.leave()

    afresh = fleet.worker()
    assert afresh.session.opened.generation == 3
    assert afresh.put(page("http://a.test/")) == "1"
