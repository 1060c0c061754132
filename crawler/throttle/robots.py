"""robots.txt once for the whole fleet: who fetches it, and what all know of it."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgpack

from crawler.clock import Monotonic, monotonic
from crawler.redisdb.scripts import Call, read_script

RULES, FREE, FAILED, WAIT, FETCH = "rules", "free", "failed", "wait", "fetch"

LIMIT_BYTES = 500 * 1024
"""What is read of a robots.txt (RFC 9309, 2.5)."""

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 600.0
LOOKS_AT_ONCE = 64
NOTES_AT_ONCE = 8

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a robots.txt counts, a fetch of it may be held, and its failing is waited out; seconds."""

    lifetime_seconds: float = 86_400.0
    hold_seconds: float = 10.5
    unreachable_max_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Known:
    """What the fleet knows of a site's robots.txt.

    Args:
        state: RULES (``text`` is what it says), FREE (all is allowed), FAILED (``text`` is the reason), WAIT (another
            worker fetches it) or FETCH (the caller is to).
        text: at most LIMIT_BYTES.
        until: time of the clock until which that holds.
        age_seconds: of the rules, or since it first failed.
    """

    state: str
    text: bytes
    until: float
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Fetched:
    """How a fetch went: RULES with the body, FREE, or FAILED with the reason; ``host`` is whom a failure blocks."""

    site: str
    host: str
    state: str
    text: bytes = b""


class RobotsScripts:
    """Builds the calls; ``keys`` are the partition's, in the order of redisdb/keys.py."""

    def __init__(self, keys: Sequence[str], worker: str, terms: Terms) -> None:
        self._keys = keys
        self._worker = worker
        self._terms = terms
        self._robots = read_script("throttle", "robots")
        self._fetched = read_script("throttle", "fetched")

    def robots(self, sites: Sequence[str]) -> Call:
        """Asks what is known of sites; what is not is this worker's to fetch, or to go on fetching."""
        return Call(self._robots, self._keys, [self._worker, _ms(self._terms.hold_seconds), *sites])

    def fetched(self, notes: Sequence[Fetched]) -> Call:
        """Tells how fetches went."""
        seconds = (self._terms.lifetime_seconds, FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        args: list[bytes | str | int] = [self._worker, *map(_ms, (*seconds, self._terms.unreachable_max_seconds))]
        for note in notes:
            text = zlib.compress(note.text) if note.state == RULES else note.text
            args += (note.site, note.host, note.state, text)
        return Call(self._fetched, self._keys, args)


class Robots:
    """Asks the fleet, in one call for all that ask at the same time; blocks nothing."""

    def __init__(
        self,
        scripts: RobotsScripts,
        look: Callable[[Call], Awaitable[Any]],
        note: Callable[[Call], Awaitable[Any]],
        clock: Monotonic = monotonic,
    ) -> None:
        """Both ways to Redis are used at the same time."""
        self._scripts = scripts
        self._ask = look
        self._tell = note
        self._clock = clock
        self._looks = Gathered(self._look, LOOKS_AT_ONCE)
        self._notes = Gathered(self._note, NOTES_AT_ONCE)

    async def look(self, site: str) -> Known:
        """What is known of the robots.txt of a site, ``scheme://authority``.

        Who is told to FETCH calls ``fetched`` in the end and until then ``look`` at least every ``hold_seconds``, else
        another worker takes it over.

        Raises:
            TrawlnetError: Redis refuses in a way that waiting does not mend.
        """
        return await self._looks.ask(site)

    async def fetched(self, note: Fetched) -> float | None:
        """Tells the fleet how a fetch went; for how many seconds that blocks the host, None if another worker's counts.

        Raises:
            TrawlnetError: as ``look``.
        """
        return await self._notes.ask(note)

    async def _look(self, sites: Sequence[str]) -> list[Known]:
        asked_at = self._clock()
        parts = iter(msgpack.unpackb(await self._ask(self._scripts.robots(sites)), raw=True))
        found = []
        for state, packed, left_ms, age_ms in zip(parts, parts, parts, parts, strict=True):
            name = state.decode()
            text = zlib.decompressobj().decompress(packed, LIMIT_BYTES) if name == RULES else packed
            # It was told at some time after the asking: no longer than it holds there.
            found.append(Known(name, text, asked_at + left_ms / 1000, age_ms / 1000))
        return found

    async def _note(self, notes: Sequence[Fetched]) -> list[float | None]:
        waits = msgpack.unpackb(await self._tell(self._scripts.fetched(notes)))
        return [None if wait_ms < 0 else wait_ms / 1000 for wait_ms in waits]


class Gathered(Generic[Asked, Answer]):
    """Answers what is asked at the same time by one run, at most ``most`` a run, one run at a time."""

    def __init__(self, run: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer]]], most: int) -> None:
        self._run = run
        self._most = most
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None

    def ask(self, asked: Asked) -> "asyncio.Future[Answer]":
        """The answer, once it is there."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((asked, future))
        if self._task is None:
            self._task = loop.create_task(self._answer())
        return future

    async def _answer(self) -> None:
        batch: list[tuple[Asked, asyncio.Future[Answer]]] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                answers = await self._run([asked for asked, _ in batch])
                for (_, future), answer in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        except BaseException as error:
            for _, future in (*batch, *self._waiting):
                if not future.done():
                    future.set_exception(error)
            self._waiting = []
            raise
        finally:
            self._task = None


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
