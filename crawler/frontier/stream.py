"""Sends one worker's batches in order, again and again until Redis has answered each."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import OutOfMemoryError, RedisError, ResponseError

from crawler.errors import TrawlnetError
from crawler.frontier.plan import Plan, Put
from crawler.frontier.store import ClaimOrder, Claims, Opened, Session
from crawler.redisdb.connect import RedisTarget, is_passing
from crawler.redisdb.scripts import Call, run

log = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 1.0


class MemoryFull(TrawlnetError):
    """Redis refused the batch for want of memory; nothing of it ran."""


class FrontierBroken(TrawlnetError):
    """Redis refused a batch in a way that sending it again cannot mend."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Answer to an exchange: one '1' or '0' an entry, stale lease ids, and what was claimed if that was asked and
    went well.
    """

    new: bytes
    stale: Sequence[str]
    claims: Claims


class Stream:
    """The ordered stream of one worker. One coroutine uses it at a time."""

    def __init__(
        self,
        client: AsyncRedis,
        target: RedisTarget,
        session: Session,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._client = client
        self._target = target
        self.session = session
        self._uniform = uniform
        self.round_trips = 0
        self.down_since: float | None = None

    async def open(
        self,
        identity: dict[str, str],
        lapse_ms: int,
        *,
        keep_seen: bool = False,
        feeder: str = "",
        held: Sequence[str] = (),
    ) -> Opened:
        """Joins the crawl, as a new session; ``held`` are the leases of a worker that joins again.

        Raises:
            ClashError: the crawl in Redis is another one.
        """
        reply = await self.ask(self.session.open(identity, lapse_ms, keep_seen=keep_seen, feeder=feeder, held=held))
        return self.session.read_opened(reply)

    async def ask(self, call: Call) -> Any:
        """Runs a call that may run twice, until it is answered."""
        return (await self._run([call]))[0]

    async def exchange(self, entries: Sequence[Put], plan: Plan, claim: ClaimOrder | None) -> Exchanged:
        """Puts entries, ends the plan's leases, then claims; in one round trip, exactly once.

        Raises:
            StaleSession: Redis lost this session; everything held must be put again after ``open``.
            MemoryFull: nothing of the puts and settles ran.
            FrontierBroken: an answer that sending again cannot mend, such as a key of a wrong type.
        """
        calls = []
        if entries or plan:
            calls.append(self.session.settle(entries, plan))
        if claim:
            calls.append(self.session.claim(claim))
        new, stale = b"", []
        if entries or plan:
            replies = await self._run(calls, full_after=len(calls))
            new, names = self.session.read(replies[0])
            stale = [name.decode() for name in names]
            calls = calls[1:]
            replies = replies[1:]
        else:
            replies = await self._run(calls, full_after=len(calls))
        if claim is None or not replies:
            return Exchanged(new, stale, Claims())
        return Exchanged(new, stale, self.session.read_claimed(replies[0]))

    async def _run(self, calls: Sequence[Call], full_after: int = 0) -> list[Any]:
        """Answers of the calls in order; those after one that memory refused are left out and their numbers taken
        back.
        """
        done: list[Any] = []
        delay = FIRST_DELAY_SECONDS
        while True:
            error: BaseException | None = None
            try:
                self.round_trips += 1
                for result in await run(self._client, calls[len(done) :]):
                    if isinstance(result, BaseException):
                        error = result
                        break
                    done.append(result)
            except (RedisError, OSError) as failed:
                error = failed
            if error is None:
                self._recovered()
                return done
            if isinstance(error, OutOfMemoryError) or _says_full(error):
                if full_after:
                    self.session.sequence -= full_after - len(done)
                    if done:
                        return done
                    raise MemoryFull(f"Redis at {self._target.shown} is full: {error}") from error
            elif not is_passing(error):
                raise FrontierBroken(
                    f"Redis at {self._target.shown} refused a batch of crawl "
                    f"{self.session.partition.crawl!r}: {error}; "
                    "check that no other program writes keys of that name, or remove the crawl with trawlnet purge"
                ) from error
            self._failed(error)
            await asyncio.sleep(self._uniform(delay / 2, delay))
            delay = min(delay * 2, LONGEST_DELAY_SECONDS)

    def _failed(self, error: BaseException) -> None:
        if self.down_since is None:
            self.down_since = asyncio.get_running_loop().time()
            log.warning(
                "Redis at %s does not take batches (%s); they are kept and sent again",
                self._target.shown,
                error,
            )

    def _recovered(self) -> None:
        if self.down_since is not None:
            log.info(
                "Redis at %s answers again after %.1f s",
                self._target.shown,
                asyncio.get_running_loop().time() - self.down_since,
            )
            self.down_since = None


def _says_full(error: BaseException) -> bool:
    return isinstance(error, ResponseError) and "OOM" in str(error)
