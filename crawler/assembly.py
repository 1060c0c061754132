"""Composition root of a worker: builds each shared object once, and knows the order in which they open and close."""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis as AsyncRedis

from crawler.config import Config
from crawler.dispatch import Dispatcher
from crawler.download.cookies import CookieScripts, CookieStore
from crawler.errors import ClashError
from crawler.frontier.held import Engine
from crawler.frontier.options import Options, Slots
from crawler.frontier.plan import Letter, Put
from crawler.frontier.store import SeenSpec, Session
from crawler.frontier.stream import Stream
from crawler.loop import BackgroundTask
from crawler.membership.heartbeat import Acts, Heartbeat, Listener, Rhythm
from crawler.redisdb.connect import RedisTarget, wait_until_ready
from crawler.redisdb.keys import Intake, Partition
from crawler.seeds.feed import SeedFeed
from crawler.seeds.intake import IntakeScripts
from crawler.throttle.blocks import Blocks
from crawler.throttle.hosts import Care, Hosts
from crawler.throttle.limiter import Limiter, ThrottleScripts
from crawler.throttle.redis import RedisTurns
from crawler.throttle.refusals import Patience, Refusals
from crawler.throttle.robots import Robots, RobotsScripts, Terms
from crawler.throttle.rules import RuleSet

log = logging.getLogger(__name__)

START_LOOK_SECONDS = 1.0
END_LOOK_SECONDS = 0.5
IDLE_LOOK_SECONDS = 10.0
BLIND_LOOK_SECONDS = 1.0
CLOSE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker is built from, beside its settings."""

    target: RedisTarget
    crawl: str
    identity: dict[str, str]
    start_key: str
    foreign_queue: str
    concurrency: int
    per_host: int
    seed_batch: int
    waits_for_seeds: bool
    make_seed: Callable[[str, bytes], Sequence[Put | Letter]]
    rules: RuleSet = field(default_factory=RuleSet)
    latency_target: float = 0.0
    longest_delay_seconds: float = 60.0


def worker_name() -> str:
    """A name that no other process has or had: host, process id and a random part."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


class Worker:
    """One worker's parts and their life: open, crawl, close."""

    def __init__(self, config: Config, spec: WorkerSpec, engine: Engine) -> None:
        self.config = config
        self.spec = spec
        self.engine = engine
        self.name = worker_name()
        self.rhythm = Rhythm.of(config)
        self.client: AsyncRedis = spec.target.async_client()
        self.session = Session(Partition(spec.crawl), self.name, SeenSpec.of(config))
        self.stream = Stream(self.client, spec.target, self.session)
        # The feed asks and the dispatcher exchanges at the same time: each has a connection, neither waits for
        # the other.
        self._questions = Stream(self.client, spec.target, self.session)
        self._throttle = ThrottleScripts(self.session.keys)
        self._turns = Stream(self.client, spec.target, self.session)
        self.limiter = Limiter(RedisTurns(self._throttle, self._turns.ask))
        options = Options(
            identity=spec.identity,
            slots=Slots(spec.concurrency, spec.per_host, config["CRAWLER_FRONTIER_LEASE_SECONDS"]),
            lease_max_seconds=config["CRAWLER_FRONTIER_LEASE_MAX_SECONDS"],
            lapse_seconds=config["CRAWLER_MEMBERSHIP_LAPSE_SECONDS"],
            keep_seen=config["CRAWLER_SEEN_KEEP"],
            worker=self.name,
        )
        self.dispatcher = Dispatcher(self.stream, engine, options)
        self.dispatcher.look_seconds = self.look_seconds
        hearing = Stream(self.client, spec.target, self.session).ask
        turns = RedisTurns(self._throttle, hearing)
        self.blocks = Blocks(turns, self.dispatcher.hosts)
        self.hosts = Hosts(self._throttle, hearing, self._care(), self.blocks, self._refusals(turns))
        self.robots = self._robots()
        self.cookies = CookieStore(
            CookieScripts(self.session.keys, config["CRAWLER_COOKIES_LIFETIME_SECONDS"]),
            Stream(self.client, spec.target, self.session).ask,
            lambda: self.dispatcher.fleet.cookies,
        )
        self.feed = SeedFeed(
            self._questions,
            IntakeScripts(Intake(spec.start_key)),
            self.dispatcher,
            spec.make_seed,
            waiting=lambda: self.dispatcher.fleet.waiting,
            look_seconds=self.look_seconds,
            batch=spec.seed_batch,
        )
        self.heartbeat: Heartbeat | None = None
        self._ended_after: int | None = None
        self.unfed = False
        self.closed = False
        self.failed: BaseException | None = None
        self._tasks = [
            BackgroundTask("frontier exchange", self.dispatcher.run, self._fail),
            BackgroundTask("start URLs feed", self.feed.run, self._fail),
            BackgroundTask("end of crawl", self._watch_end, self._fail),
            BackgroundTask("blocks of hosts", self.blocks.run, self._fail),
            BackgroundTask("costs of answers", self.hosts.run, self._fail),
        ]
        self.items: Callable[[], int] = lambda: 0
        self.on_failure: Callable[[BaseException], None] = lambda error: None

    def _refusals(self, turns: RedisTurns) -> Refusals:
        config = self.config
        patience = Patience(
            config["CRAWLER_THROTTLE_BACKOFF_SECONDS"], config["CRAWLER_THROTTLE_RETRY_AFTER_MAX_SECONDS"]
        )
        return Refusals(turns, patience, self.blocks)

    def _care(self) -> Care:
        config, spec = self.config, self.spec
        return Care(
            config["CRAWLER_THROTTLE_CIRCUIT_FAILURES"],
            config["CRAWLER_THROTTLE_CIRCUIT_SECONDS"],
            config["CRAWLER_THROTTLE_CIRCUIT_MAX_SECONDS"],
            spec.latency_target,
            spec.longest_delay_seconds,
            spec.rules.counts_bytes,
        )

    def _robots(self) -> Robots:
        terms = Terms(
            self.config["CRAWLER_ROBOTS_LIFETIME_SECONDS"],
            self.config["CRAWLER_MEMBERSHIP_LAPSE_SECONDS"],
            self.config["CRAWLER_ROBOTS_UNREACHABLE_MAX_SECONDS"],
        )
        looks, notes = (Stream(self.client, self.spec.target, self.session) for _ in range(2))
        return Robots(RobotsScripts(self.session.keys, self.name, terms), looks.ask, notes.ask)

    @property
    def ended(self) -> bool:
        """Whether the crawl was found finished, and nothing was put by this worker since."""
        return self._ended_after == self.dispatcher.offers

    def look_seconds(self) -> float:
        """How often an idle worker looks by itself: seldom while Redis tells it of changes."""
        return IDLE_LOOK_SECONDS if self.heartbeat is not None and self.heartbeat.watching else BLIND_LOOK_SECONDS

    async def open(self) -> None:
        """Connects, joins the crawl and starts the background tasks.

        Raises:
            RedisUnreachable, ServerUnfit, ClashError: the crawl cannot be worked on; one line says why.
        """
        for warning in await wait_until_ready(self.client, self.spec.target, self.config["CRAWLER_REDIS_WAIT_SECONDS"]):
            log.warning("%s", warning)
        await self._refuse_foreign_queue()
        opened = await self.stream.open(
            self.spec.identity,
            int(self.rhythm.lapse_seconds * 1000),
            keep_seen=self.config["CRAWLER_SEEN_KEEP"],
        )
        if await self._questions.ask(self._throttle.limits(self.spec.rules)):
            log.info("The rules of this worker's settings are now those of the whole fleet")
        scheduled = int(await self.client.hget(self.session.partition.key("counters"), "waiting") or 0)
        if scheduled and not opened.fresh:
            log.info("Resuming crawl (%d requests scheduled)", scheduled)
        log.info("Worker %s joined generation %d of crawl %r", self.name, opened.generation, self.spec.crawl)
        self._start_heartbeat()
        for task in self._tasks:
            task.start()

    async def _refuse_foreign_queue(self) -> None:
        key = self.spec.foreign_queue
        answer: Any = await self.client.type(key)
        kind = answer.decode()
        if kind != "none":
            raise ClashError(
                f"{key!r} ({kind}) is a request queue of scrapy-redis, whose pickles are never read here; finish that "
                "crawl with scrapy-redis, or delete the key to give its requests up; its filter can be kept with: "
                f"trawlnet migrate {self.spec.crawl}"
            )

    def _start_heartbeat(self) -> None:
        loop = asyncio.get_running_loop()
        rhythm, session, dispatcher = self.rhythm, self.session, self.dispatcher
        lapse_ms, lease_ms = int(rhythm.lapse_seconds * 1000), int(rhythm.lease_seconds * 1000)
        deaths = self.config["CRAWLER_FRONTIER_DEATHS_MAX"]
        acts = Acts(
            beat=lambda: session.beat(lapse_ms, lease_ms, self.report(), dispatcher.renewable()),
            reap=lambda: session.reap(int(rhythm.reap_seconds * 1000), lapse_ms, deaths),
            sweep=session.sweep,
        )

        def tell(act: Callable[[], None]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(act)

        wakes = {
            self.spec.start_key: self.feed.wake,
            session.partition.key("wake"): dispatcher.wake,
            session.partition.key("blocks"): self.blocks.change,
            session.partition.key("limits"): self.blocks.change,
        }

        def changed(key: str) -> None:
            # Prefixes are watched: other keys may begin like these.
            if wake := wakes.get(key):
                tell(wake)

        listener = Listener(
            lost=lambda ids: tell(lambda: dispatcher.lost(ids)),
            stale=lambda: tell(dispatcher.doubt),
            changed=changed,
            failed=lambda error: tell(lambda: self._fail(error)),
        )
        self.heartbeat = Heartbeat(self.spec.target, acts, rhythm, listener, list(wakes))
        self.heartbeat.start()

    @property
    def round_trips(self) -> int:
        """Times that this worker waited for Redis, its heartbeat apart."""
        return self.stream.round_trips + self._questions.round_trips + self._turns.round_trips

    def report(self) -> dict[str, str | int]:
        """What the roster shows of this worker; also called from the heartbeat's thread."""
        return {
            "host": socket.gethostname(),
            "pages": self.dispatcher.pages,
            "items": self.items(),
            "held": len(self.dispatcher.renewable()),
            "round_trips": self.round_trips,
        }

    @property
    def alive(self) -> bool:
        """Whether the last heartbeat is recent enough for the leases to be this worker's still."""
        beat = self.heartbeat
        return beat is None or beat.age_seconds() < self.rhythm.lapse_seconds

    async def start_role(self) -> bool:
        """Waits until the start requests are this worker's to run (True), or all are in (False)."""
        while True:
            role = (await self._questions.ask(self.session.start("take"))).decode()
            if role != "other":
                return bool(role == "mine")
            await asyncio.sleep(START_LOOK_SECONDS)

    async def start_through(self) -> None:
        """Says that the start requests are all in the frontier."""
        await self._questions.ask(self.session.start("done"))
        self.dispatcher.wake()

    def idle_seconds(self) -> float:
        """Time since anything happened in the fleet, as far as this worker knows; 0 while anything is left."""
        if self.dispatcher.busy or not self.dispatcher.fleet.quiet:
            return 0.0
        return self.dispatcher.fleet_idle_seconds()

    async def _watch_end(self) -> None:
        while True:
            await asyncio.sleep(END_LOOK_SECONDS)
            if not self.ended and self._may_end() and self._looks_ended():
                await self.finish()

    def _may_end(self) -> bool:
        if not self.spec.waits_for_seeds:
            return True
        # Before the first seed there is nothing that could be finished.
        began = self.feed.read > 0 or self.dispatcher.pages > 0 or self.dispatcher.fleet.phase == "finished"
        return bool(self.config["CRAWLER_CLOSE_ON_FINISH"]) and began

    def _looks_ended(self) -> bool:
        fleet = self.dispatcher.fleet
        return fleet.start == "done" and fleet.quiet and not self.dispatcher.busy and not self.feed.unread

    async def finish(self) -> bool:
        """Ends the crawl for the whole fleet if nothing is left; whatever is put later opens it again."""
        # The seeds first: those in neither place now were put before, and so are seen by the second look.
        await self.feed.look()
        if self.feed.unread or self.feed.outstanding or self.dispatcher.busy:
            return False
        answer = (await self._questions.ask(self.session.finish())).decode()
        self.unfed = answer == "unfed"
        if answer == "open":
            self.dispatcher.wake()
            return False
        if self.unfed:
            log.warning("a feeder stopped before it was through: start it again, this crawl goes on where it was")
        self._ended_after = self.dispatcher.offers
        self.engine.wake()
        return True

    def _fail(self, error: BaseException) -> None:
        self.failed = error
        self.on_failure(error)

    async def close(self, *, settle: bool = True) -> None:
        """Settles what ended (unless told not to), gives back the rest and leaves.

        The order has reasons: claims stop first, so that nothing new comes in; the last settle goes out before
        the leave
        call gives back what is left; the heartbeat ends last of all that keeps leases alive.
        """
        if self.closed:
            return
        self.closed = True
        self.dispatcher.claiming = self.feed.taking = False
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while settle and self.failed is None and self.dispatcher.closing_tick_needed():
                    await self.dispatcher.tick()
                await self._stop_tasks()
                if self.session.token:
                    await self._questions.ask(self.session.leave())
        except TimeoutError:
            log.warning(
                "Redis did not answer in %.0f s: what is held comes back when the leases run out",
                CLOSE_SECONDS,
            )
            self.dispatcher.stopped = True
            for task in self._tasks:
                await task.stop()
        finally:
            if self.heartbeat is not None:
                self.heartbeat.stop()
            await self.client.aclose()

    async def _stop_tasks(self) -> None:
        async with self.dispatcher.between:
            self.dispatcher.stopped = True
            for task in self._tasks:
                await task.stop()
