"""The master: feeds seeds into the frontier, keeps dead workers' URLs coming back, and reports. The crawl goes on
without it.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from crawler.config import Config
from crawler.errors import BadSeed, StaleSession, UnknownCallback, UnserialisableRequest
from crawler.frontier.outbox import SEEDED
from crawler.frontier.plan import Letter, Plan, Put
from crawler.frontier.store import SeenSpec, Session
from crawler.frontier.stream import MemoryFull, Stream
from crawler.membership.heartbeat import Acts, Heartbeat, Listener, Rhythm
from crawler.redisdb.connect import RedisTarget, wait_until_ready
from crawler.redisdb.keys import FEEDER_PREFIX, Partition

log = logging.getLogger(__name__)

BATCH = 64
FULL_SECONDS = 0.5


@dataclass(slots=True)
class Fed:
    """What feeding has come to so far."""

    read: int = 0
    new: int = 0
    known: int = 0
    bad: int = 0
    over_budget: int = 0
    warnings: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The counts in words."""
        over = f", {self.over_budget} over a budget" if self.over_budget else ""
        return f"{self.read} seeds: {self.new} new, {self.known} known already, {self.bad} bad{over}"


class Master:
    """One feeder and reaper of a crawl. Seeds are known by their URL, so a source that is fed again adds only what
    is missing.
    """

    def __init__(self, config: Config, target: RedisTarget, crawl: str, source: str) -> None:
        self._config = config
        self._target = target
        self.name = FEEDER_PREFIX + hashlib.blake2b(source.encode(), digest_size=6).hexdigest()
        self._client = target.async_client()
        self.session = Session(Partition(crawl), self.name, SeenSpec.of(config))
        self._stream = Stream(self._client, target, self.session)
        self._rhythm = Rhythm.of(config)
        self._heartbeat: Heartbeat | None = None
        self.fed = Fed()

    async def open(self, *, feeding: bool) -> None:
        """Joins the crawl; while feeding, the crawl does not end without it.

        Raises:
            RedisUnreachable, ServerUnfit, ClashError: the crawl cannot be worked on.
        """
        self.fed.warnings += await wait_until_ready(
            self._client, self._target, self._config["CRAWLER_REDIS_WAIT_SECONDS"]
        )
        await self._join(feeding=feeding)
        rhythm, session = self._rhythm, self.session
        lapse_ms = int(rhythm.lapse_seconds * 1000)
        acts = Acts(
            beat=lambda: session.beat(lapse_ms, 1000, {"master": 1}, []),
            reap=lambda: session.reap(
                int(rhythm.reap_seconds * 1000), lapse_ms, self._config["CRAWLER_FRONTIER_DEATHS_MAX"]
            ),
            sweep=session.sweep,
        )
        listener = Listener(
            lost=lambda ids: None, stale=lambda: None, changed=lambda key: None, failed=lambda error: None
        )
        self._heartbeat = Heartbeat(self._target, acts, rhythm, listener, ())
        self._heartbeat.start()

    async def _join(self, *, feeding: bool) -> None:
        lapse_ms = int(self._rhythm.lapse_seconds * 1000)
        keep = self._config["CRAWLER_SEEN_KEEP"]
        await self._stream.open({}, lapse_ms, keep_seen=keep, feeder=self.name if feeding else "")

    async def feed(
        self, seeds: Iterable[tuple[str, bytes]], make: Callable[[bytes], Put], seen: Callable[[Fed], None]
    ) -> None:
        """Puts seeds in batches; a bad one becomes a dead letter that names its place, and the rest go on.

        Args:
            seeds: place (such as a line number) and raw seed.
            make: makes the entry of a raw seed.
            seen: is called after each batch.
        """
        entries: list[Put] = []
        letters: list[Letter] = []
        iterator = iter(seeds)
        while True:
            # Sources block (files, standard input, HTTP): they are read beside the loop, a batch at a time.
            batch = await asyncio.to_thread(_some, iterator)
            if not batch:
                break
            for place, raw in batch:
                self.fed.read += 1
                try:
                    entries.append(make(raw))
                except (BadSeed, UnknownCallback, UnserialisableRequest) as error:
                    self.fed.bad += 1
                    shown = raw[:2000].decode(errors="replace")
                    log.warning("%s: %s", place, error)
                    letters.append(
                        {
                            "kind": "seed",
                            "class": "bad_seed",
                            "reason": f"{place}: {error}",
                            "url": shown,
                            "seed": shown,
                        }
                    )
            await self._put(entries, letters)
            entries, letters = [], []
            seen(self.fed)

    async def _put(self, entries: list[Put], letters: list[Letter]) -> None:
        while True:
            try:
                plan = Plan(letters=letters, tallies={SEEDED: len(entries)})
                answer = await self._stream.exchange(entries, plan, None)
            except MemoryFull as error:
                log.warning("%s; waiting", error)
                await asyncio.sleep(FULL_SECONDS)
            except StaleSession:
                # What this batch did before Redis lost it is done again; known URLs stay one.
                await self._join(feeding=True)
            else:
                break
        self.fed.new += answer.new.count(b"1")
        self.fed.known += answer.new.count(b"0")
        self.fed.over_budget += answer.new.count(b"2")

    async def through(self) -> None:
        """Says that the source is fed to its end: the crawl may end without this master."""
        await self._stream.ask(self.session.fed(self.name))

    async def close(self, *, through: bool) -> None:
        """Leaves; ``through`` says that the source is fed to its end, so that the crawl need not wait for it."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self.session.token:
            await self._stream.ask(self.session.leave(self.name if through else ""))
        await self._client.aclose()


def _some(iterator: "Iterable[tuple[str, bytes]]") -> list[tuple[str, bytes]]:
    batch = []
    for seed in iterator:
        batch.append(seed)
        if len(batch) == BATCH:
            break
    return batch
