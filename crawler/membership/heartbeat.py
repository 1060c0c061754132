"""Keeps a worker alive in Redis from a thread of its own, so that a blocking callback costs no lease; and hears
wake-ups.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
from redis.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError, ResponseError

from crawler.clock import Monotonic
from crawler.config import Config
from crawler.loop import guarded
from crawler.redisdb.connect import RedisTarget
from crawler.redisdb.scripts import Call

log = logging.getLogger(__name__)


REAPS_A_BEAT = 0.4


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Times of the heartbeat, in seconds; a worker counts as dead ``lapse`` after its last beat."""

    beat_seconds: float = 5.0
    lapse_seconds: float = 10.5
    reap_seconds: float = 2.0
    lease_seconds: float = 60.0

    @classmethod
    def of(cls, config: Config) -> "Rhythm":
        """The times that the settings ask for; silent workers are looked for more often than beats go out."""
        beat = config["CRAWLER_MEMBERSHIP_BEAT_SECONDS"]
        lapse, lease = config["CRAWLER_MEMBERSHIP_LAPSE_SECONDS"], config["CRAWLER_FRONTIER_LEASE_SECONDS"]
        return cls(beat, lapse, beat * REAPS_A_BEAT, lease)


@dataclass(frozen=True, slots=True)
class Acts:
    """The script calls that the thread sends."""

    beat: Callable[[], Call]
    reap: Callable[[], Call]
    sweep: Callable[[], Call]


@dataclass(frozen=True, slots=True)
class Listener:
    """What the thread tells; every function is called on the thread and must not block."""

    lost: Callable[[list[str]], None]
    stale: Callable[[], None]
    changed: Callable[[str], None]
    failed: Callable[[BaseException], None]


class Heartbeat(threading.Thread):
    """Beats, renews leases, reaps, and passes on changes of the watched keys. A daemon: it never keeps the process."""

    def __init__(
        self,
        target: RedisTarget,
        acts: Acts,
        rhythm: Rhythm,
        listener: Listener,
        watched: Sequence[str],
        clock: Monotonic = time.monotonic,
    ) -> None:
        super().__init__(
            name="trawlnet-heartbeat", daemon=True, target=guarded("heartbeat", self._keep, listener.failed)
        )
        self._redis = target
        self._acts = acts
        self._rhythm = rhythm
        self._listener = listener
        self._watched = watched
        self._clock = clock
        self._stopped = threading.Event()
        self._beat_at = 0.0
        self._reap_at = 0.0
        self._members = 1
        self.last_beat = clock()
        self.watching = False

    def stop(self) -> None:
        """Ends the thread after what it is doing; a beat under way still goes out."""
        self._stopped.set()

    def age_seconds(self) -> float:
        """Time since Redis last took a heartbeat."""
        return self._clock() - self.last_beat

    def _keep(self) -> None:
        """Beats until stopped; a lost connection is made again with growing delays."""
        delay = 0.1
        while not self._stopped.is_set():
            client = self._redis.client(
                protocol=3, socket_timeout=max(2.0, self._rhythm.beat_seconds), max_connections=1
            )
            try:
                connection = client.connection_pool.get_connection()
                self._watch(connection)
                while not self._stopped.is_set():
                    self._turn(connection)
                    delay = 0.1
            except (RedisError, OSError) as error:
                log.debug("heartbeat: %s", error)
                self._stopped.wait(delay)
                delay = min(delay * 2, 1.0)
            finally:
                self.watching = False
                client.connection_pool.disconnect()
                client.close()

    def _watch(self, connection: AbstractConnection) -> None:
        # redis-py has no public way to hear invalidations on a connection that also runs commands (checked on 6.4
        # and 8.1).
        connection._parser.set_invalidation_push_handler(self._hear)
        if not self._watched:
            # Without a prefix the server would tell of every key that anyone writes.
            return
        prefixes = [part for key in self._watched for part in ("PREFIX", key)]
        connection.send_command("CLIENT", "TRACKING", "ON", "BCAST", *prefixes)
        try:
            connection.read_response()
            self.watching = True
        except ResponseError as error:
            log.warning("this server cannot tell of changed keys (%s): idle workers look every second instead", error)
        for key in self._watched:
            self._listener.changed(key)

    def _turn(self, connection: AbstractConnection) -> None:
        now = self._clock()
        if now >= self._beat_at:
            self._beat(connection)
            self._beat_at = self._clock() + self._rhythm.beat_seconds
        if now >= self._reap_at:
            self._reap(connection)
            self._reap_at = self._clock() + self._rhythm.reap_seconds * self._share()
        wait = min(self._beat_at, self._reap_at) - self._clock()
        # Bounded, so that stop() is heard without a signal of its own.
        if connection.can_read(timeout=max(0.0, min(wait, 0.5))):
            connection.read_response(push_request=True)

    def _share(self) -> int:
        """How many times longer a member of a fleet waits between its looks for silent ones.

        With 2 the looks stay less than half a lapse apart, also where all members look at once; a longer gap is an
        outage to reap.lua.
        """
        return 1 if self._members <= 1 else 2

    def _beat(self, connection: AbstractConnection) -> None:
        status, *rest = msgpack.unpackb(self._run(connection, self._acts.beat()), raw=True)
        if status == b"stale":
            self._listener.stale()
            return
        self.last_beat = self._clock()
        self._members = rest[1]
        if rest[0]:
            self._listener.lost([lease.decode() for lease in rest[0]])

    def _reap(self, connection: AbstractConnection) -> None:
        returned, letters, _, old = msgpack.unpackb(self._run(connection, self._acts.reap()))
        if returned or letters:
            log.info("reaped %d leases of silent workers, %d of them are dead letters now", returned, letters)
        if old:
            self._run(connection, self._acts.sweep())

    def _run(self, connection: AbstractConnection, call: Call) -> Any:
        connection.send_command(*call.command())
        try:
            return connection.read_response()
        except NoScriptError:
            connection.send_command("EVAL", call.script.text, len(call.keys), *call.keys, *call.args)
            return connection.read_response()

    def _hear(self, push: Sequence[Any]) -> None:
        for key in push[1] or ():
            self._listener.changed(key.decode(errors="replace"))
