"""The heartbeat's thread: keeps a worker and its leases alive, hears of changes at once, and survives a restart."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from crawler.membership.heartbeat import Acts, Heartbeat, Listener, Rhythm
from crawler.redisdb.connect import RedisTarget
from tests.support.frontier import DEATHS_MAX, FleetOnServer, Member, leases, page
from tests.support.servers import KINDS, own_server
from tests.support.waiting import wait_until

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")

QUICK = Rhythm(beat_seconds=0.05, lapse_seconds=2.0, reap_seconds=0.04, lease_seconds=1.5)
SELDOM = Rhythm(beat_seconds=300, lapse_seconds=660, reap_seconds=300, lease_seconds=3600)
LIMIT_SECONDS = 10


class Heard:
    """What a heartbeat told, with the times at which it heard of changes."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.stale = 0
        self.failures: list[BaseException] = []
        self.changes: list[tuple[float, str]] = []

    def listener(self) -> Listener:
        """Notes everything."""
        return Listener(
            lost=self.lost.extend,
            stale=self._count_stale,
            changed=lambda key: self.changes.append((time.monotonic(), key)),
            failed=self.failures.append,
        )

    def _count_stale(self) -> None:
        self.stale += 1

    def changed_since(self, at: float, key: str) -> list[float]:
        """Seconds after ``at`` of the changes of a key since then."""
        return [when - at for when, name in list(self.changes) if name == key and when >= at]


@contextmanager
def _beating(
    member: Member, rhythm: Rhythm, held: Callable[[], list[str]] = list, watched: tuple[str, ...] = ()
) -> Iterator[tuple[Heartbeat, Heard]]:
    session, heard = member.session, Heard()
    lapse_ms, lease_ms = int(rhythm.lapse_seconds * 1000), int(rhythm.lease_seconds * 1000)
    acts = Acts(
        beat=lambda: session.beat(lapse_ms, lease_ms, {"pages": 3}, held()),
        reap=lambda: session.reap(int(rhythm.reap_seconds * 1000), lapse_ms, DEATHS_MAX),
        sweep=session.sweep,
    )
    heartbeat = Heartbeat(RedisTarget(member.fleet.url), acts, rhythm, heard.listener(), watched)
    heartbeat.start()
    try:
        yield heartbeat, heard
    finally:
        heartbeat.stop()
        heartbeat.join(LIMIT_SECONDS)
        assert not heartbeat.is_alive(), "it did not stop"


@both
@pytest.mark.parametrize("kind", ["list", "set", "zset"])
def test_a_seed_is_heard_of_in_under_half_a_second(fleet: FleetOnServer, kind: str) -> None:
    start = f"{fleet.crawl}:start_urls"
    push: dict[str, Callable[[str], object]] = {
        "list": lambda url: fleet.redis.lpush(start, url),
        "set": lambda url: fleet.redis.sadd(start, url),
        "zset": lambda url: fleet.redis.zadd(start, {url: 1}),
    }
    with _beating(fleet.worker(), SELDOM, watched=(start, fleet.key("wake"))) as (heartbeat, heard):
        wait_until(lambda: heartbeat.watching, LIMIT_SECONDS, "the watch to begin")
        for number in range(5):
            pushed = time.monotonic()
            push[kind](f"http://a.test/{number}")
            wait_until(lambda at=pushed: heard.changed_since(at, start), LIMIT_SECONDS, "a seed to be heard of")  # type: ignore[misc]
            assert heard.changed_since(pushed, start)[0] < 0.5


@both
def test_work_for_an_idle_worker_is_heard_of_in_under_half_a_second(fleet: FleetOnServer) -> None:
    idle, other, wake = fleet.worker("idle"), fleet.worker("other"), fleet.key("wake")
    with _beating(idle, SELDOM, watched=(wake,)) as (heartbeat, heard):
        wait_until(lambda: heartbeat.watching, LIMIT_SECONDS, "the watch to begin")
        idle.claim()
        put = time.monotonic()
        other.put(page("http://a.test/"))
        wait_until(lambda: heard.changed_since(put, wake), LIMIT_SECONDS, "the wake key to be heard of")
        assert heard.changed_since(put, wake)[0] < 0.5


def test_who_watches_nothing_hears_of_nothing(fleet: FleetOnServer) -> None:
    member = fleet.worker()
    with _beating(member, QUICK) as (heartbeat, heard):
        began = heartbeat.last_beat
        fleet.worker("other").put(page("http://a.test/"))
        wait_until(lambda: heartbeat.last_beat > began + 0.2, LIMIT_SECONDS, "some beats")
        assert heard.changes == []


@both
def test_it_keeps_the_worker_and_its_leases_alive(fleet: FleetOnServer) -> None:
    member = fleet.worker()
    member.put(page("http://a.test/"))
    held = leases(member.claim(lease_seconds=QUICK.lease_seconds))
    with _beating(member, QUICK, held=lambda: held) as (heartbeat, heard):
        began = time.monotonic()
        wait_until(lambda: heartbeat.last_beat > began + 1.5 * QUICK.lease_seconds, LIMIT_SECONDS, "many beats")
        assert heartbeat.age_seconds() < QUICK.lapse_seconds
        # Without it both would be gone: the worker has lapsed by now, and the lease has run out.
        assert member.settle(done=held).stale == []
        assert (heard.lost, heard.stale, heard.failures) == ([], 0, [])


@both
def test_it_tells_of_lost_leases(fleet: FleetOnServer) -> None:
    fleet.tampered = True
    member = fleet.worker()
    member.put(page("http://a.test/1"), page("http://a.test/2"))
    kept, lost = leases(member.claim())
    held = [kept, lost]
    with _beating(member, QUICK, held=lambda: held) as (_, heard):
        fleet.redis.zadd(fleet.key("lease"), {lost: 1}, xx=True)
        fleet.redis.zrem(fleet.key("lease"), lost)
        wait_until(lambda: heard.lost, LIMIT_SECONDS, "the loss to be told")
        assert set(heard.lost) == {lost}


@both
def test_it_tells_that_the_session_is_gone(fleet: FleetOnServer) -> None:
    with _beating(fleet.worker(), QUICK) as (_, heard):
        wait_until(lambda: fleet.redis.hget(fleet.partition.session("w1"), "report"), LIMIT_SECONDS, "a report")
        assert heard.stale == 0
        fleet.redis.delete(fleet.partition.session("w1"))
        wait_until(lambda: heard.stale, LIMIT_SECONDS, "the stale session to be told")


@both
@pytest.mark.parametrize("living", [1, 2, 5])
def test_fleets_of_any_size_bring_back_what_a_dead_worker_held(fleet: FleetOnServer, living: int) -> None:
    rhythm = Rhythm(beat_seconds=0.5, lapse_seconds=1.05, reap_seconds=0.2, lease_seconds=60)
    dead = fleet.worker("dead")
    dead.put(page("http://a.test/"))
    dead.claim()
    with ExitStack() as beating:
        for number in range(living):
            beating.enter_context(_beating(fleet.worker(f"w{number}"), rhythm))
        fleet.redis.zadd(fleet.key("workers"), {"dead": fleet.now_ms() + 1050})
        wait_until(lambda: fleet.redis.llen(fleet.key("suspects")), 4, "the lease to come back")
        assert fleet.redis.zcard(fleet.key("workers")) == living


def test_it_sweeps_old_generations(fleet: FleetOnServer) -> None:
    first = fleet.worker("first")
    first.put(page("http://a.test/"))
    first.settle(done=leases(first.claim()))
    first.start("take")
    first.start("done")
    first.finish()
    first.leave()
    with _beating(fleet.worker("again"), QUICK):
        wait_until(lambda: not fleet.redis.exists(fleet.partition.seen(1)), LIMIT_SECONDS, "the old filter to go")
        wait_until(lambda: not fleet.redis.exists(fleet.key("garbage")), LIMIT_SECONDS, "nothing to be left to sweep")


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_after_a_restart_of_the_server(tmp_path: Path, kind: str) -> None:
    with own_server(tmp_path, kind=kind) as server, Redis.from_url(server.url) as redis:
        fleet = FleetOnServer(redis, "restarted", server.url)
        start = "restarted:start_urls"
        with _beating(fleet.worker(), QUICK, watched=(start,)) as (heartbeat, heard):
            wait_until(lambda: heartbeat.watching, LIMIT_SECONDS, "the watch to begin")
            server.kill()
            wait_until(lambda: not heartbeat.watching, LIMIT_SECONDS, "the loss to be seen")
            restarted = time.monotonic()
            server.start()
            wait_until(lambda: heartbeat.watching, LIMIT_SECONDS, "the watch to begin again")
            assert heard.changed_since(restarted, start), "what changed meanwhile is looked at"
            wait_until(lambda: heartbeat.last_beat > restarted, LIMIT_SECONDS, "a beat")
            pushed = time.monotonic()
            with Redis.from_url(server.url) as other:
                other.lpush(start, "http://a.test/")
            wait_until(lambda: heard.changed_since(pushed, start), LIMIT_SECONDS, "a seed to be heard of")
            assert (heard.stale, heard.failures) == (0, [])


def test_it_waits_for_a_server_that_is_not_there(tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        with Redis.from_url(server.url) as redis:
            member = FleetOnServer(redis, "late", server.url).worker()
        server.stop()
        with _beating(member, QUICK) as (heartbeat, heard):
            assert not heartbeat.watching
            server.start()
            began = heartbeat.last_beat
            wait_until(lambda: heartbeat.last_beat > began, LIMIT_SECONDS, "a beat")
            assert heard.failures == []


def test_a_failure_of_its_own_is_told(fleet: FleetOnServer, monkeypatch: pytest.MonkeyPatch) -> None:
    member = fleet.worker()

    def fail() -> list[str]:
        raise LookupError("no such lease")

    with _beating(member, QUICK, held=fail) as (heartbeat, heard):
        heartbeat.join(LIMIT_SECONDS)
        assert [type(error) for error in heard.failures] == [LookupError]
    assert not any(thread.name == "trawlnet-heartbeat" for thread in threading.enumerate())
    assert not isinstance(heard.failures[0], RedisError)
