"""Group commit: records of many pages go in one batch, and each learns when it is durable. Never blocks the loop."""

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from crawler.clock import Monotonic, monotonic
from crawler.errors import RecordRefused, StorageError
from crawler.items.record import Record
from crawler.items.values import bytes_of
from crawler.storage.contract import PageCommit, Storage

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0
BATCHES_BEHIND = 8
"""Batches that may wait before ``room`` makes producers wait."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """When a batch is full, how old it may get, and how long a failing write is tried."""

    records: int = 500
    seconds: float = 0.1
    retry_seconds: float = 60.0
    bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class _Entry:
    what: Record | PageCommit
    durable: "asyncio.Future[None]"
    bytes: int
    since: float


class BatchWriter:
    """Writes to one storage from one thread of its own; records of an unwritten batch are only in memory."""

    def __init__(
        self,
        storage: Storage,
        sizes: Sizes,
        clock: Monotonic = monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._storage = storage
        self._sizes = sizes
        self._clock = clock
        self._uniform = uniform
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trawlnet-storage")
        self._pending: deque[_Entry] = deque()
        self._pending_bytes = 0
        self._batch: list[_Entry] = []
        self._last: asyncio.Future[None] | None = None
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._ended = False
        self._flush_by = math.inf

    async def open(self) -> None:
        """Opens the storage and starts writing.

        Raises:
            StorageError, ConfigError: the storage cannot be used.
        """
        await self._call(self._storage.open)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="storage writer")
        self._task.add_done_callback(self._end)

    def add(self, record: Record) -> "asyncio.Future[None]":
        """Takes a record. The future ends when it is durable, or with RecordRefused or StorageError."""
        return self._enqueue(record, bytes_of(record.data) + len(record.url))

    def commit(self, page: str, fetch: int) -> "asyncio.Future[None]":
        """Takes the completion of a page that was fetched before; its records were added first."""
        return self._enqueue(PageCommit(page, fetch), len(page))

    def _enqueue(self, what: Record | PageCommit, size: int) -> "asyncio.Future[None]":
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._ended:
            durable.set_exception(StorageError("the storage writer has ended; nothing more is stored by this process"))
            return durable
        self._last = durable
        self._pending.append(_Entry(what, durable, size, self._clock()))
        self._pending_bytes += size
        if len(self._pending) == 1 or self._full(1):
            self._wake.set()
        if self._full(BATCHES_BEHIND):
            self._drained.clear()
        return durable

    def _full(self, batches: int) -> bool:
        return len(self._pending) >= self._sizes.records * batches or self._pending_bytes >= self._sizes.bytes * batches

    async def room(self) -> None:
        """Waits while storage is many batches behind."""
        await self._drained.wait()

    async def flush(self) -> None:
        """Waits until all that was taken is durable or has failed; ``retry_seconds`` in all where storage fails."""
        if self._last is None:
            return
        self._flush_by = self._clock() + self._sizes.retry_seconds
        try:
            # Batches are written in order, so that the last one is through after all others.
            await asyncio.wait([self._last])
        finally:
            self._flush_by = math.inf

    @property
    def pending(self) -> int:
        """Records and commits that wait for their batch."""
        return len(self._pending)

    async def close(self) -> None:
        """Writes what is pending, for ``retry_seconds`` in all where storage fails, then closes the storage."""
        self._closing = True
        self._flush_by = self._clock() + self._sizes.retry_seconds
        self._wake.set()
        try:
            if self._task is not None:
                await self._task
                await self._call(self._storage.close)
        finally:
            self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        while True:
            await self._gather()
            self._take()
            if not self._batch:
                return
            await self._write(self._batch)
            self._batch = []

    async def _gather(self) -> None:
        # While one batch is written the next one fills: it may be old enough already.
        while not self._closing and not self._full(1):
            left = self._pending[0].since + self._sizes.seconds - self._clock() if self._pending else None
            if left is not None and left <= 0:
                return
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()

    def _take(self) -> None:
        size = 0
        while self._pending and len(self._batch) < self._sizes.records and size < self._sizes.bytes:
            entry = self._pending.popleft()
            size += entry.bytes
            self._batch.append(entry)
        self._pending_bytes -= size
        if not self._full(BATCHES_BEHIND):
            self._drained.set()

    async def _write(self, batch: Sequence[_Entry]) -> None:
        records = [entry.what for entry in batch if isinstance(entry.what, Record)]
        commits = [entry.what for entry in batch if isinstance(entry.what, PageCommit)]
        refused: dict[int, str] = {}
        durable: list[_Entry] = []
        try:
            if records:
                for refusal in await self._until_done(lambda: self._storage.write(records)):
                    refused[id(refusal.record)] = refusal.reason
            durable = [entry for entry in batch if isinstance(entry.what, Record)]
            if commits:
                await self._until_done(lambda: self._storage.commit(commits))
            durable = list(batch)
        except Exception as error:  # a backend may be the user's own: whatever it raises, the writer goes on
            failure = error if isinstance(error, StorageError) else StorageError(f"{type(error).__name__}: {error}")
            log.error(
                "storage did not take a batch of %d: %s",
                len(batch) - len(durable),
                failure,
                exc_info=not isinstance(error, StorageError),
            )
            taken = set(map(id, durable))
            _fail((entry for entry in batch if id(entry) not in taken), failure)
        for entry in durable:
            if entry.durable.done():
                continue
            if id(entry.what) in refused:
                entry.durable.set_exception(RecordRefused(refused[id(entry.what)]))
            else:
                entry.durable.set_result(None)

    async def _until_done(self, act: Callable[[], T]) -> T:
        give_up_at = self._clock() + self._sizes.retry_seconds
        delay = FIRST_DELAY_SECONDS
        while True:
            try:
                return await self._call(act)
            except StorageError as error:
                if self._clock() >= min(give_up_at, self._flush_by):
                    raise
                log.warning("storage does not take batches (%s); trying again", error)
                await asyncio.sleep(self._uniform(delay / 2, delay))
                delay = min(delay * 2, LONGEST_DELAY_SECONDS)

    async def _call(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, act)

    def _end(self, task: "asyncio.Task[None]") -> None:
        """Nobody may wait for ever for a record of a writer that was cancelled or broke."""
        self._ended = True
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("the storage writer broke", exc_info=error)
        left = [*self._batch, *self._pending]
        self._pending.clear()
        self._drained.set()
        _fail(left, StorageError(f"the storage writer ended before its batch was written ({error or 'stopped'})"))


def _fail(entries: Iterable[_Entry], failure: StorageError) -> None:
    for entry in entries:
        if not entry.durable.done():
            entry.durable.set_exception(failure)
