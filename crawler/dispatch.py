"""Claims entries, hands them over, and settles each lease when nothing of its page is open any more."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar

from crawler.clock import Monotonic, monotonic
from crawler.errors import StaleSession, Undeliverable, WireError
from crawler.frontier.held import Engine, Lease, NewTry
from crawler.frontier.options import Options
from crawler.frontier.outbox import BATCH_ENTRIES, Batch, Outbox, Outgoing
from crawler.frontier.pace import Pace
from crawler.frontier.plan import Letter, Plan, Put
from crawler.frontier.ready import Ready
from crawler.frontier.store import Claimed, ClaimOrder, Claims, Fleet
from crawler.frontier.stream import Exchanged, MemoryFull, Stream
from crawler.frontier.wire import NewerWire

log = logging.getLogger(__name__)

current_lease: ContextVar[Lease | None] = ContextVar("current_lease", default=None)
"""The lease for which callbacks, errbacks and pipelines run just now; set by the scheduler, follows tasks and
Deferreds.
"""

GATHER_SECONDS = 0.005
FULL_LOOK_SECONDS = 0.25
OTHERS_LOOK_SECONDS = 2.0
NEWER_DELAY_MS = 30_000
TURN_LOOK_SECONDS = 0.05  # between two looks for turns of hosts; well under the time that they are taken ahead


class Dispatcher:
    """One worker's side of the frontier. Everything but ``run``, ``tick`` and ``give_back`` only touches memory.

    Three hooks are the owner's to set: ``reset`` is called when Redis may have lost what was sent, ``through`` when
    the engine has nothing of a lease any more and before it settles, ``look_seconds`` tells how often to look while
    idle.
    """

    def __init__(self, stream: Stream, engine: Engine, options: Options, clock: Monotonic = monotonic) -> None:
        self._stream = stream
        self._engine = engine
        self._options = options
        self._clock = clock
        self._pace = Pace(options.slots, clock)
        self.permits = self._pace.permits
        self._outbox = Outbox(clock)
        self._ready = Ready(clock)
        self._held: dict[str, Lease] = {}
        self._ended_since: float | None = None
        self._memory_full = self._doubtful = False
        self._look_at = self._alarm_at = 0.0
        self._full_rooms: Mapping[str, int] | None = None
        self._turn = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._fleet_at = clock()
        self.fleet = Fleet()
        self.wanted = asyncio.Event()
        self.tally = self._outbox.tally
        self.stopped = False  # exchanges are over: what leaves the crawl gives back the rest
        self.claiming = True
        self.pages = 0
        self.offers = 0
        self.reset: Callable[[], None] = lambda: None
        self.through: Callable[[Lease], None] = lambda lease: None
        self.look_seconds: Callable[[], float] = lambda: 1.0

    # From the scheduler, on the event loop.

    def next(self) -> tuple[Lease, Hashable] | None:
        """The next request to start, or None; then the background task is asked to claim."""
        pair = self._ready.pop()
        if pair is None:
            self._set_alarm()
            if self.claiming and (self._full_rooms is not None or self._clock() >= self._look_at):
                self.wanted.set()
            return None
        lease, request = pair
        if lease.started:
            lease.testing -= 1
        lease.started = True
        self._pace.started()
        return lease, request

    def _set_alarm(self) -> None:
        """Sees to it that the engine asks again when the next turn comes."""
        at = self._ready.next_at()
        if at is not None and at != self._alarm_at:
            self._alarm_at = at
            asyncio.get_running_loop().call_later(at - self._clock(), self._engine.wake)

    def offer(
        self,
        put: Put,
        lease: Lease | None,
        answered: Callable[[bool], None] | None = None,
        refused: Callable[[], None] | None = None,
    ) -> None:
        """Takes an entry to put; ``answered`` is called once it is in, with whether it was new, ``refused`` where it
        was over a budget.
        """
        self.offers += 1
        self._outbox.add(Outgoing(put, lease, answered, refused))
        if len(self._outbox) >= BATCH_ENTRIES or lease is None:
            self.wanted.set()

    def offer_again(self, lease: Lease, request: Hashable) -> None:
        """Takes a request that goes on under the lease that it came from, such as a redirect."""
        lease.requests.append(request)
        lease.testing += 1
        self._ready.add_first(lease, request)
        self._engine.wake()

    def bury(self, letter: Letter) -> None:
        """Takes a dead letter of something that never was a lease."""
        self._outbox.bury(letter)
        self.wanted.set()

    @property
    def crowded(self) -> bool:
        """Whether producers of links should wait."""
        return len(self._outbox) >= self._options.buffer_entries

    @property
    def busy(self) -> bool:
        """Whether this worker itself has anything left to do."""
        return bool(self._held or self._outbox or self._outbox.parentless)

    @property
    def parentless(self) -> int:
        """Entries of no lease (start requests, seeds) that are not in the frontier yet."""
        return self._outbox.parentless

    @property
    def queued(self) -> int:
        """Claimed requests that were not handed over yet."""
        return len(self._ready) + self._ready.waiting

    def fleet_idle_seconds(self) -> float:
        """Time since the last activity of the fleet."""
        return self.fleet.idle_seconds + self._clock() - self._fleet_at

    def renewable(self) -> list[str]:
        """Ids of the leases to renew; also called from the heartbeat's thread."""
        return list(self._held)

    def wake(self) -> None:
        """Says that there may be something to claim."""
        self._look_at = 0.0
        if not self._ready:
            self.wanted.set()

    def hosts(self) -> set[str]:
        """Hosts of which it holds leases."""
        return {lease.host for lease in self._held.values()}

    def lost(self, ids: Sequence[str]) -> None:
        """Forgets leases that were given to others; what was not started of them is not started."""
        for lease_id in ids:
            lease = self._held.get(lease_id)
            if lease is not None and not lease.started:
                del self._held[lease_id]
        self._ready.keep(lambda lease: lease.id in self._held)

    def doubt(self) -> None:
        """Says that Redis may not know this session any more; the next exchange finds out and joins again."""
        self._doubtful = True
        self.wanted.set()

    # The background task.

    async def run(self) -> None:
        """Exchanges until cancelled: at once when asked, else every tick while anything is open, else when it is
        time to look.

        Raises:
            FrontierBroken: Redis refuses batches in a way that waiting does not mend.
        """
        while True:
            wait = self._options.tick_seconds
            if any(lease.suspect for lease in self._held.values()):
                # One at a time: the others wait for it.
                wait = GATHER_SECONDS
            elif not self.busy:
                wait = max(0.01, min(self._look_at - self._clock(), self.look_seconds()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self.wanted.wait()
            self.wanted.clear()
            await self.tick()
            await asyncio.sleep(GATHER_SECONDS)  # what one turn of the loop produces gathers in one batch

    async def tick(self) -> None:
        """One exchange: puts links, settles what ended, claims what can be started soon."""
        async with self._turn:
            await self._exchange()

    async def _exchange(self) -> None:
        self.mark_ended()
        batch = self._gather()
        if batch.leases and len(batch.leases) == len(self._held):
            # The last of what was held: see at once what the fleet has left.
            self._look_at = 0.0
        claim = self._order()
        entries = [outgoing.put for outgoing in batch.parcel.outgoing]
        if not entries and not batch.plan and claim is None:
            return
        asked_at = self._clock()
        try:
            answer = await self._stream.exchange(entries, batch.plan, claim)
        except MemoryFull:
            self._outbox.take_back(batch.parcel)
            self._memory_full = True
            self._look_at = self._clock() + FULL_LOOK_SECONDS
            return
        except StaleSession as error:
            self._outbox.take_back(batch.parcel)
            await self._reopen(error)
            return
        self._memory_full = False
        self._confirm(batch, answer)
        if claim is not None:
            self._receive(claim, answer.claims, asked_at)

    async def _reopen(self, error: StaleSession) -> None:
        log.warning("%s; joining again and putting again what it holds", error)
        options = self._options
        lapse_ms = int(options.lapse_seconds * 1000)
        await self._stream.open(options.identity, lapse_ms, keep_seen=options.keep_seen, held=list(self._held))
        self.permits.forget()
        self.reset()
        self._outbox.put_again(self._held.values())
        self.wake()

    def mark_ended(self) -> None:
        """Finds the leases of whose pages nothing is open any more."""
        now = self._clock()
        for lease in self._held.values():
            if lease.ended or not lease.started or lease.open:
                continue
            if now - lease.claimed_at > self._options.lease_max_seconds:
                age = now - lease.claimed_at
                lease.fail(
                    "lease_age",
                    f"not through after {age:.0f} s, more than CRAWLER_FRONTIER_LEASE_MAX_SECONDS",
                )
                for request in lease.requests:
                    self._engine.give_up(request)
            elif any(self._engine.has(request) for request in lease.requests):
                continue
            elif not lease.through:
                lease.through = True
                self.through(lease)
                if lease.open:
                    continue
            lease.ended = True
            if self._ended_since is None:
                self._ended_since = now

    def _gather(self) -> Batch:
        batch = Batch()
        # A full server takes settles that only free memory: those go first, and alone.
        frees_memory = self._memory_full and any(lease.ended and not lease.unsent for lease in self._held.values())
        if not frees_memory:
            batch.parcel = self._outbox.take()
        batch.parcel.enter(batch.plan)
        if self._should_settle(batch):
            for lease in self._held.values():
                if lease.ended and lease.unsent == lease.batched and not lease.open:
                    self._plan(lease, batch)
        return batch

    def _should_settle(self, batch: Batch) -> bool:
        if self._ended_since is None:
            return False
        aged = self._clock() - self._ended_since >= self._options.settle_seconds
        urgent = any(lease.ended and lease.suspect for lease in self._held.values())
        return aged or urgent or bool(batch.parcel.outgoing) or not self._ready or not self.claiming

    def _plan(self, lease: Lease, batch: Batch) -> None:
        batch.leases.append(lease.id)
        lease.enter(batch.plan, self._options.worker)

    def _confirm(self, batch: Batch, answer: Exchanged) -> None:
        self._outbox.confirm(batch.parcel, answer.new)
        for lease_id in batch.leases:
            self._held.pop(lease_id, None)
        self.pages += len(batch.leases)
        if answer.stale:
            log.warning("%d pages came too late: their leases had gone to other workers", len(answer.stale))
        if not any(lease.ended for lease in self._held.values()):
            self._ended_since = None

    def _order(self) -> ClaimOrder | None:
        if self._doubtful:
            self._doubtful = False
            return ClaimOrder(0, 0, 0, 0)
        early = self._clock() < self._look_at
        if not self.claiming or (early and self._full_rooms is None and not self.permits.short):
            return None
        order = self._pace.order(self._held.values(), len(self._ready), self._engine.is_downloading)
        # Where all hosts that have work are busy here, it is time to look again when one of them is less so.
        if early and order is not None and order.rooms == self._full_rooms and not self.permits.short:
            return None
        self._full_rooms = None
        return order

    def _receive(self, claim: ClaimOrder, answer: Claims, asked_at: float) -> None:
        now = self._clock()
        if answer.fleet is None:
            self._look_at = now + FULL_LOOK_SECONDS
            return
        self.fleet = answer.fleet
        self._fleet_at = now
        self.permits.grant(answer.permits)
        for claimed in answer.claimed:
            self._take(claimed, asked_at, now)
        if answer.claimed:
            self._engine.wake()
        elif claim.want == 0:
            return
        elif answer.fleet.waiting or answer.fleet.suspects:
            # Only hosts on which this worker is busy have work, or one suspect is being tried.
            look = self.look_seconds()
            turn = look if answer.fleet.turn_seconds is None else max(answer.fleet.turn_seconds, TURN_LOOK_SECONDS)
            self._look_at = now + min(look, turn)
            self._full_rooms = claim.rooms
        else:
            # The wake key tells when something comes; delayed entries become due by themselves.
            look = self.look_seconds() if answer.fleet.quiet else min(OTHERS_LOOK_SECONDS, self.look_seconds())
            due = answer.fleet.due_seconds if answer.fleet.delayed else look
            self._look_at = now + min(max(due, 0.02), look)

    def _take(self, claimed: Claimed, asked_at: float, now: float) -> None:
        lease = Lease(claimed.lease, claimed.host, claimed.deliveries, now, claimed.body, claimed.deaths > 0)
        self._held[lease.id] = lease
        try:
            decoded = self._engine.decode(claimed)
        except NewerWire as error:
            log.warning("an entry of host %s is left for newer workers: %s", claimed.host, error)
            lease.retry = NewTry(claimed.host, 0, NEWER_DELAY_MS, claimed.body)
            self._end_at_once(lease, now)
            return
        except (Undeliverable, WireError) as error:
            log.error("an entry of host %s is a dead letter: %s", claimed.host, error)
            kind, found = ("wire", {}) if isinstance(error, WireError) else (error.kind, {"url": error.url})
            lease.fail(kind, str(error), **found)
            self._end_at_once(lease, now)
            return
        lease.requests.append(decoded.request)
        lease.page, lease.identity = decoded.page, decoded.identity
        if (turn := claimed.turn) is not None:
            # It was given at some time between the asking and now.
            lease.turn_at, lease.turn_mark, lease.probes = now + turn.wait_seconds, turn.mark, turn.probes
            lease.turn_ends = asked_at + turn.wait_seconds + turn.slack_seconds
        self._ready.add(lease, decoded.request)

    def _end_at_once(self, lease: Lease, now: float) -> None:
        lease.started = lease.ended = True
        self._ended_since = self._ended_since or now
        self.wanted.set()

    # Stopping.

    @property
    def between(self) -> asyncio.Lock:
        """Held while an exchange is under way; whoever holds it may stop the background task between two."""
        return self._turn

    def closing_tick_needed(self) -> bool:
        """Whether another exchange would put or settle something."""
        self.mark_ended()
        return bool(self._outbox or any(lease.ended for lease in self._held.values()))

    def release_unstarted(self, host: str = "") -> list[str]:
        """Takes what was not handed over, of one host or all, out of the queue; its lease ids, for ``give_back``."""
        stays = (lambda lease: lease.started or lease.host != host) if host else (lambda lease: False)
        return [lease.id for lease, _ in self._ready.keep(stays)]

    def unended(self) -> list[str]:
        """Ids of the leases whose pages are not through yet."""
        return [lease.id for lease in self._held.values() if not lease.ended]

    async def give_back(self, ids: Sequence[str]) -> None:
        """Returns leases to the front of their queues, with nothing counted against them."""
        mine = [lease_id for lease_id in ids if lease_id in self._held]
        if not mine:
            return
        async with self._turn:
            if self.stopped:
                return
            try:
                await self._stream.exchange([], Plan(back=list(mine)), None)
            except StaleSession as error:
                await self._reopen(error)
        for lease_id in mine:
            self._held.pop(lease_id, None)
