"""A crawl's life: who runs the start requests, when it is finished, and what a new run of it takes over."""

from collections.abc import Callable

import pytest

from crawler.errors import ClashError, StaleSession
from crawler.frontier.store import Claimed, SeenSpec
from tests.support.frontier import (
    IDENTITY,
    LAPSE_SECONDS,
    FilterOnServer,
    FleetOnServer,
    Member,
    bodies,
    digests_of,
    leases,
    page,
    retry,
    unfiltered,
)

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")


def _through(worker: Member) -> None:
    """All start requests are in."""
    worker.start("take")
    worker.start("done")


def _finished(fleet: FleetOnServer, name: str = "first", *, feeder: str = "") -> Member:
    """A worker that has crawled one page to the end of the crawl, and left."""
    worker = fleet.member(name)
    worker.open(feeder=feeder)
    _through(worker)
    worker.put(page("http://a.test/"), unfiltered("http://a.test/"))
    worker.settle(done=leases(worker.claim()))
    assert worker.finish() == "finished"
    worker.leave()
    return worker


# The start requests.


@both
def test_one_worker_runs_the_start_requests(fleet: FleetOnServer) -> None:
    one, other = fleet.worker("one"), fleet.worker("other")
    assert one.session.opened.start == ""
    assert [one.start("take"), other.start("take"), one.start("take")] == ["mine", "other", "mine"]
    assert other.start("done") == "other"
    assert one.start("done") == "done"
    assert [other.start("take"), one.start("take"), other.start("done")] == ["done"] * 3
    assert fleet.worker("late").session.opened.start == "done"


@both
def test_another_worker_runs_them_when_that_one_dies(fleet: FleetOnServer) -> None:
    dead, other = fleet.worker("dead"), fleet.worker("other")
    dead.start("take")
    fleet.advance(LAPSE_SECONDS)
    other.beat()
    assert other.start("take") == "mine"
    # The first was only slow; it may not say that all are in.
    assert dead.start("done") == "other"
    assert other.finish() == "open"
    assert other.start("done") == "done"


def test_another_worker_runs_them_when_that_one_leaves(fleet: FleetOnServer) -> None:
    one, other = fleet.worker("one"), fleet.worker("other")
    one.start("take")
    one.leave()
    assert fleet.worker("late").session.opened.start == ""
    assert other.start("take") == "mine"


def test_who_leaves_after_them_takes_nothing_back(fleet: FleetOnServer) -> None:
    one, other = fleet.worker("one"), fleet.worker("other")
    _through(one)
    one.leave()
    assert other.start("take") == "done"


# The end.


def _claimed(worker: Member) -> Claimed:
    worker.put(page("http://b.test/"))
    return worker.claim()[0]


def _leave_a_suspect(fleet: FleetOnServer, worker: Member) -> None:
    _claimed(fleet.worker("dead"))
    fleet.pass_time(LAPSE_SECONDS, alive=[(worker, [])])
    assert fleet.redis.llen(fleet.key("suspects")) == 1


UNFINISHED: dict[str, Callable[[FleetOnServer, Member], object]] = {
    "an entry waits": lambda fleet, worker: worker.put(page("http://b.test/")),
    "an entry is delayed": lambda fleet, worker: worker.settle(retries=[retry(_claimed(worker), 10_000)]),
    "an entry is leased": lambda fleet, worker: _claimed(worker),
    "an entry is suspected": _leave_a_suspect,
    "a feeder is at work": lambda fleet, worker: fleet.member("feeder").open(feeder="feeder"),
}


@both
@pytest.mark.parametrize("left", UNFINISHED)
def test_a_crawl_is_open_while(fleet: FleetOnServer, left: str) -> None:
    worker = fleet.worker()
    _through(worker)
    UNFINISHED[left](fleet, worker)
    assert worker.finish() == "open"
    assert fleet.redis.hget(fleet.key("state"), "phase") == b"open"


def test_a_crawl_is_open_until_all_start_requests_are_in(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    assert worker.finish() == "open"
    worker.start("take")
    assert worker.finish() == "open"
    worker.start("done")
    assert [worker.finish(), worker.finish()] == ["finished", "finished"]


@both
def test_without_its_dead_feeder_a_crawl_ends_unfinished(fleet: FleetOnServer) -> None:
    worker, feeder = fleet.worker(), fleet.member("feeder")
    _through(worker)
    feeder.open(feeder="feeder")
    worker.claim()
    assert (worker.left.feeding, worker.left.feeders, worker.left.quiet) == (1, 1, False)
    fleet.pass_time(LAPSE_SECONDS, alive=[(worker, [])])
    worker.claim()
    assert (worker.left.feeding, worker.left.feeders, worker.left.quiet) == (0, 1, True)
    assert worker.finish() == "unfed"
    worker.leave()
    # Started again, the feeder goes on in the same run of the crawl.
    assert feeder.open(feeder="feeder").generation == 1
    assert worker.open().generation == 1
    assert feeder.run(feeder.session.fed("feeder")) == 1
    assert worker.finish() == "finished"


def test_a_feeder_that_leaves_through_with_its_source_is_not_missed(fleet: FleetOnServer) -> None:
    worker, feeder = fleet.worker(), fleet.member("feeder")
    _through(worker)
    feeder.open(feeder="feeder")
    feeder.leave("feeder")
    assert worker.finish() == "finished"


@both
def test_whatever_comes_later_opens_a_finished_crawl_again(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    _through(worker)
    assert worker.finish() == "finished"
    assert worker.put(page("http://late.test/")) == "1"
    assert worker.finish() == "open"
    worker.leave()
    joined = fleet.worker("other")
    assert joined.session.opened.generation == 1
    assert bodies(joined.claim()) == ["http://late.test/"]


def test_idle_workers_hear_of_the_end(fleet: FleetOnServer) -> None:
    worker, idle = fleet.worker("w1"), fleet.worker("idle")
    _through(worker)
    idle.claim()
    worker.finish()
    assert fleet.redis.get(fleet.key("wake")) == b"1"
    worker.claim()
    assert worker.left.phase == "finished"


# Running again.


@both
def test_a_crawl_that_is_run_again_starts_over(fleet: FleetOnServer) -> None:
    _finished(fleet)
    again = fleet.member("again")
    opened = again.open()
    assert (opened.generation, opened.seen_generation, opened.start, opened.fresh) == (2, 2, "", True)
    assert fleet.counters() == {}
    assert again.start("take") == "mine"
    assert again.put(page("http://a.test/"), unfiltered("http://a.test/")) == "11"
    other = fleet.worker("other").session.opened
    assert (other.generation, other.fresh) == (2, False)


@both
def test_a_crawl_that_is_run_again_may_keep_what_it_has_seen(fleet: FleetOnServer) -> None:
    _finished(fleet)
    again = fleet.member("again")
    opened = again.open(keep_seen=True)
    assert (opened.generation, opened.seen_generation) == (2, 1)
    assert fleet.counters() == {"seen": 1}
    # A page that its spider wants each time is fetched each time.
    assert again.put(page("http://a.test/"), page("http://b.test/"), unfiltered("http://a.test/")) == "011"
    assert fleet.sweep() == 2
    assert again.put(page("http://a.test/"), page("http://b.test/")) == "00"


def test_a_worker_that_replaces_another_joins_the_run(fleet: FleetOnServer) -> None:
    dead = fleet.worker("dead")
    _through(dead)
    dead.put(page("http://a.test/"))
    dead.claim()
    fleet.pass_time(LAPSE_SECONDS)
    assert fleet.redis.zcard(fleet.key("workers")) == 0
    replacement = fleet.worker("replacement")
    assert (replacement.session.opened.generation, replacement.session.opened.start) == (1, "done")
    assert bodies(replacement.claim()) == ["http://a.test/"]


def test_a_crawl_is_not_started_over_while_a_worker_of_it_lives(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    _through(worker)
    worker.finish()
    assert fleet.worker("other").session.opened.generation == 1
    assert worker.put(page("http://a.test/")) == "1"


@both
def test_a_worker_that_was_suspended_past_the_end_does_not_start_it_over(fleet: FleetOnServer) -> None:
    suspended, other = fleet.worker("suspended"), fleet.worker("other")
    suspended.put(page("http://a.test/"))
    [held] = suspended.claim()
    fleet.pass_time(LAPSE_SECONDS, alive=[(other, [])])
    other.settle(page("http://a.test/1"), done=leases(other.claim()))
    other.settle(done=leases(other.claim()))
    _through(other)
    assert other.finish() == "finished"
    other.leave()

    with pytest.raises(StaleSession):
        suspended.settle(page("http://a.test/1"), done=[held.lease])
    opened = suspended.open()
    assert (opened.generation, opened.fresh, opened.start) == (1, False, "done")
    settled = suspended.settle(page("http://a.test/1"), done=[held.lease])
    assert (settled.new, settled.stale) == ("0", [held.lease])
    assert suspended.finish() == "finished"


@both
def test_a_worker_that_slept_through_a_new_run_must_join_it(fleet: FleetOnServer) -> None:
    asleep, other = fleet.worker("asleep"), fleet.worker("other")
    _through(other)
    other.finish()
    other.leave()
    fleet.advance(LAPSE_SECONDS)
    assert fleet.worker("again").session.opened.generation == 2
    assert fleet.redis.zrange(fleet.key("workers"), 0, -1) == [b"again"]
    with pytest.raises(StaleSession):
        asleep.put(page("http://a.test/"))
    assert asleep.open().generation == 2


@both
@pytest.mark.parametrize("kind", ["exact", "bloom"])
def test_every_key_of_an_old_filter_is_swept(fleet: FleetOnServer, kind: str) -> None:
    first = fleet.worker("w1", SeenSpec(kind, capacity=10**7))
    once = FilterOnServer(fleet, SeenSpec("exact"), fleet.partition.once(1))
    once.add(digests_of("once", 100_000))
    # Hundreds of keys each, more than two sweeps take.
    FilterOnServer(fleet, SeenSpec(kind, capacity=10**7)).add(digests_of("seen", 60_000))
    _through(first)
    first.finish()
    first.leave()
    old = {name for name in fleet.names() if name.startswith(("seen:", "once:"))}
    assert len(old) > 800
    again = fleet.worker("w2", SeenSpec(kind, capacity=10**7))
    again.put(page("http://a.test/"), unfiltered("http://b.test/"))
    assert fleet.sweep() == len(old)
    assert not old & fleet.names()
    assert again.put(page("http://a.test/"), unfiltered("http://b.test/")) == "00"


# Clashes.


@both
@pytest.mark.parametrize("name", ["project", "spider", "fingerprinter"])
def test_a_worker_of_another_crawl_is_refused(fleet: FleetOnServer, name: str) -> None:
    fleet.member().open(identity={**IDENTITY, "fingerprinter": "scrapy"})
    before = fleet.picture()
    with pytest.raises(ClashError) as error:
        fleet.member("w2").open(identity={**IDENTITY, "fingerprinter": "scrapy", name: "other"})
    for part in (fleet.crawl, name, "'other'", "CRAWLER_CRAWL", f"trawlnet purge {fleet.crawl}"):
        assert part in str(error.value)
    assert fleet.picture() == before


def test_a_worker_with_another_filter_is_refused(fleet: FleetOnServer) -> None:
    fleet.worker("w1", SeenSpec("exact"))
    with pytest.raises(ClashError, match=r"filter 'exact'.*'bloom'"):
        fleet.worker("w2", SeenSpec("bloom"))


@both
def test_a_worker_of_another_schema_is_refused(fleet: FleetOnServer) -> None:
    fleet.worker()
    fleet.redis.hset(fleet.key("state"), "schema", "0")
    with pytest.raises(ClashError, match="schema '0', this process has '1'"):
        fleet.worker("w2")


def test_a_feeder_need_not_know_what_workers_are(fleet: FleetOnServer) -> None:
    fleet.member("feeder").open(identity={}, feeder="feeder")
    fleet.member("w1").open(identity=IDENTITY)
    fleet.member("feeder 2").open(identity={}, feeder="feeder 2")
    with pytest.raises(ClashError, match="spider 'books'"):
        fleet.member("w2").open(identity={**IDENTITY, "spider": "shoes"})
