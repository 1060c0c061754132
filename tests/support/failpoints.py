"""Test extension that ends its own process with SIGKILL, or loses a reply, at a chosen call of a background task."""

import logging
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self
from unittest.mock import patch

from redis.asyncio import Redis as AsyncRedis
from redis.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from scrapy.crawler import Crawler

from crawler.components import node
from crawler.errors import StorageError
from crawler.frontier import stream
from crawler.membership.heartbeat import Heartbeat
from crawler.redisdb import scripts
from crawler.redisdb.scripts import Call
from crawler.seeds import feed
from crawler.storage import backends
from crawler.storage.contract import Storage

log = logging.getLogger(__name__)

ENVIRONMENT = "FAILPOINT"
LOSSES = ("lost", "lossy")
MOMENTS = ("before", "half", "after", *LOSSES)
ANY = "any"
SEED_LEASE_MS = 2000
STORAGE_ACTS = ("write", "commit")


@dataclass(frozen=True, slots=True)
class Failpoint:
    """A moment at the ``nth`` call of an act: a script's name, ``write`` or ``commit`` of storage, or ``any`` script.

    ``before``: killed, nothing was sent. ``half``: killed when the first script of a batch of several ran and the
    others did not. ``after``: killed when all ran and nobody has read a reply. ``lost``: nobody is killed, but that
    reply is lost on its way; ``lossy``: so is every nth one.
    """

    moment: str
    act: str
    nth: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads ``moment:act:nth``; raises ValueError for any other text."""
        moment, act, nth = text.split(":")
        if moment not in MOMENTS:
            raise ValueError(f"a failpoint's moment is one of {', '.join(MOMENTS)}, got {moment!r}")
        return cls(moment, act, int(nth))

    def __str__(self) -> str:
        return f"{self.moment}:{self.act}:{self.nth}"


class Failpoints:
    """Counts the calls of the act and fails at the one that the environment variable FAILPOINT names."""

    def __init__(self, point: Failpoint) -> None:
        self._point = point
        self._calls = 0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "Failpoints":
        """Arms the process; it has to come before the extension that builds the worker."""
        failpoints = cls(Failpoint.of(os.environ[ENVIRONMENT]))
        failpoints.arm()
        return failpoints

    def arm(self) -> None:
        """Wraps the calls of the background tasks, of the heartbeat and of storage; shortens the lease on seeds."""
        patch.object(feed, "LEASE_MS", SEED_LEASE_MS).start()
        self._wrap_scripts()
        self._wrap_heartbeat()
        self._wrap_storage()

    def _wrap_scripts(self) -> None:
        run = scripts.run

        async def watched(client: AsyncRedis, calls: Sequence[Call]) -> list[Any]:
            halved = self._point.moment != "half" or len(calls) > 1
            moment = self._moment([call.script.name for call in calls] if halved else [])
            if moment == "before":
                _die()
            results = await run(client, calls[:1] if moment == "half" else calls)
            if moment in LOSSES:
                raise RedisConnectionError("the connection was cut before the reply was read")
            if moment:
                _die()
            return results

        patch.object(stream, "run", watched).start()

    def _wrap_heartbeat(self) -> None:
        run = Heartbeat._run

        def watched(heartbeat: Heartbeat, connection: AbstractConnection, call: Call) -> Any:
            return self._around(call.script.name, RedisConnectionError, lambda: run(heartbeat, connection, call))

        patch.object(Heartbeat, "_run", watched).start()

    def _wrap_storage(self) -> None:
        open_storage = backends.open_storage

        def opened(spec: str, writer: str = "") -> Storage:
            storage = open_storage(spec, writer=writer)
            for act in STORAGE_ACTS:
                patch.object(storage, act, self._watched(act, getattr(storage, act))).start()
            return storage

        patch.object(node, "open_storage", opened).start()

    def _watched(self, act: str, write: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
        return lambda batch: self._around(act, StorageError, lambda: write(batch))

    def _around(self, act: str, lost: type[Exception], call: Callable[[], Any]) -> Any:
        moment = self._moment([act] if self._point.act != ANY else [])
        if moment == "before":
            _die()
        result = call()
        if moment in LOSSES:
            raise lost("the reply was lost")
        if moment:
            _die()
        return result

    def _moment(self, acts: Sequence[str]) -> str:
        """The point's moment if this call is the one that it names, else an empty text."""
        point = self._point
        if not any(point.act in {act, ANY} for act in acts):
            return ""
        self._calls += 1
        reached = self._calls % point.nth == 0 if point.moment == "lossy" else self._calls == point.nth
        if not reached:
            return ""
        log.warning("%s: reached at call %d", point, self._calls)
        return point.moment


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
