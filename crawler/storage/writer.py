"""Group commit: records of many pages go in one batch, and each learns when it is durable. Never blocks the event
loop.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from crawler.clock import Monotonic, monotonic
from crawler.errors import RecordRefused, StorageError
from crawler.items.record import Record
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
        self._pending: list[tuple[Record | PageCommit, asyncio.Future[None]]] = []
        self._wanted = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._task: asyncio.Task[None] | None = None
        self._last: asyncio.Future[None] | None = None
        self._closing = False
        self.written = 0

    async def open(self) -> None:
        """Opens the storage and starts writing.

        Raises:
            StorageError, ConfigError: the storage cannot be used.
        """
        await self._call(self._storage.open)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="storage writer")

    def add(self, record: Record) -> "asyncio.Future[None]":
        """Takes a record. The future ends when it is durable, or with RecordRefused or StorageError."""
        return self._enqueue(record)

    def commit(self, page: str, fetch: int) -> "asyncio.Future[None]":
        """Takes the completion of a page that was fetched before; its records were added first."""
        return self._enqueue(PageCommit(page, fetch))

    def _enqueue(self, what: Record | PageCommit) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((what, future))
        self._last = future
        self._wanted.set()
        if len(self._pending) >= self._sizes.records * BATCHES_BEHIND:
            self._drained.clear()
        return future

    async def room(self) -> None:
        """Waits while storage is many batches behind."""
        await self._drained.wait()

    async def flush(self) -> None:
        """Waits until all that was taken so far is durable or has failed."""
        if self._last is not None:
            # Batches are written in order, so that the last one is through after all others.
            await asyncio.wait([self._last])

    @property
    def pending(self) -> int:
        """Records and commits that wait for their batch."""
        return len(self._pending)

    async def close(self) -> None:
        """Writes what is pending, then closes the storage."""
        self._closing = True
        self._wanted.set()
        if self._task is not None:
            await self._task
            await self._call(self._storage.close)
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        while self._pending or not self._closing:
            await self._wanted.wait()
            self._wanted.clear()
            # A batch gathers until it is full or old; while one is written the next one fills.
            deadline = self._clock() + self._sizes.seconds
            while len(self._pending) < self._sizes.records and not self._closing and self._pending:
                left = deadline - self._clock()
                if left <= 0:
                    break
                await asyncio.sleep(min(left, 0.05))
            while self._pending:
                batch, self._pending = (
                    self._pending[: self._sizes.records],
                    self._pending[self._sizes.records :],
                )
                await self._write(batch)
                if len(self._pending) < self._sizes.records * BATCHES_BEHIND:
                    self._drained.set()
                if len(self._pending) < self._sizes.records and not self._closing:
                    self._wanted.set() if self._pending else None
                    break

    async def _write(self, batch: Sequence[tuple[Record | PageCommit, "asyncio.Future[None]"]]) -> None:
        records = [what for what, _ in batch if isinstance(what, Record)]
        commits = [what for what, _ in batch if isinstance(what, PageCommit)]
        refused: dict[int, str] = {}
        try:
            if records:
                for refusal in await self._until_done(lambda: self._storage.write(records)):
                    refused[id(refusal.record)] = refusal.reason
            if commits:
                await self._until_done(lambda: self._storage.commit(commits))
        except Exception as error:
            failure = error if isinstance(error, StorageError) else StorageError(f"{type(error).__name__}: {error}")
            log.error(
                "storage did not take a batch of %d: %s",
                len(batch),
                failure,
                exc_info=not isinstance(error, StorageError),
            )
            for _, future in batch:
                if not future.done():
                    future.set_exception(failure)
            return
        self.written += len(records) - len(refused)
        for what, future in batch:
            if future.done():
                continue
            if id(what) in refused:
                future.set_exception(RecordRefused(refused[id(what)]))
            else:
                future.set_result(None)

    async def _until_done(self, act: Callable[[], T]) -> T:
        give_up_at = self._clock() + self._sizes.retry_seconds
        delay = FIRST_DELAY_SECONDS
        while True:
            try:
                return await self._call(act)
            except StorageError as error:
                if self._clock() >= give_up_at:
                    raise
                log.warning("storage does not take batches (%s); trying again", error)
                await asyncio.sleep(self._uniform(delay / 2, delay))
                delay = min(delay * 2, LONGEST_DELAY_SECONDS)

    async def _call(self, act: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, act, *args)
