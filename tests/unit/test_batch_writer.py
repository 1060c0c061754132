"""Group commit: batches, back-pressure, retries, and that each page learns what became of its records."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from crawler.errors import RecordRefused, StorageError
from crawler.items.record import Record, Source, record_of
from crawler.storage.contract import PageCommit, Refusal
from crawler.storage.writer import BATCHES_BEHIND, BatchWriter, Sizes


class MemoryStorage:
    """A storage whose failures and pace the test sets."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.commits: list[PageCommit] = []
        self.failures = 0
        self.poison = ""
        self.gate = threading.Event()
        self.gate.set()
        self.threads: set[str] = set()
        self.closed = False
        self.crash: Exception | None = None

    def open(self) -> None:
        self.threads.add(threading.current_thread().name)

    def write(self, records: Sequence[Record]) -> list[Refusal]:
        self.gate.wait(10)
        self.threads.add(threading.current_thread().name)
        if self.crash is not None:
            raise self.crash
        if self.failures:
            self.failures -= 1
            raise StorageError("down")
        self.batches.append([record.page for record in records])
        return [Refusal(record, "poison") for record in records if record.page == self.poison]

    def commit(self, pages: Sequence[PageCommit]) -> None:
        self.commits += pages

    def count(self) -> int:
        return sum(map(len, self.batches))

    def records(self) -> Iterator[Record]:
        return iter(())

    def close(self) -> None:
        self.closed = True


def record(page: str) -> Record:
    return record_of({"n": 1}, Source("c", "s", page, 1, 0, ""), stored_at=0.0)


def run(
    work: Callable[[BatchWriter, MemoryStorage], Coroutine[Any, Any, None]], sizes: Sizes | None = None
) -> MemoryStorage:
    storage = MemoryStorage()

    async def main() -> None:
        writer = BatchWriter(storage, sizes or Sizes(records=10, seconds=0.02, retry_seconds=5))
        await writer.open()
        await work(writer, storage)
        storage.gate.set()
        await writer.close()

    asyncio.run(main())
    assert storage.closed
    return storage


def test_records_of_many_pages_share_a_batch() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        await asyncio.gather(*(writer.add(record(f"p{n}")) for n in range(10)))

    assert [len(batch) for batch in run(work).batches] == [10]


def test_a_lone_record_waits_no_longer_than_its_age() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        async with asyncio.timeout(5):
            await writer.add(record("p1"))

    assert run(work, Sizes(records=1000, seconds=0.02)).batches == [["p1"]]


def test_writes_come_from_one_thread_that_is_not_the_loops() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        for n in range(5):
            await writer.add(record(f"p{n}"))

    threads = run(work).threads
    assert len(threads) == 1
    assert threading.main_thread().name not in threads


def test_the_loop_runs_on_while_storage_is_slow() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        storage.gate.clear()
        future = writer.add(record("p1"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not future.done()
        storage.gate.set()
        await future

    run(work)


def test_a_flush_waits_for_all_that_was_taken_and_leaves_the_writer_open() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        await writer.flush()
        futures = [writer.add(record(f"p{n}")) for n in range(25)]
        await writer.flush()
        assert all(future.done() for future in futures)
        await writer.commit("p1", 1)

    assert run(work).commits == [PageCommit("p1", 1)]


def test_a_storage_that_is_down_for_a_while_gets_the_same_batch_again() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        storage.failures = 2
        await writer.add(record("p1"))

    assert run(work).batches == [["p1"]]


def test_a_storage_that_stays_down_fails_the_records_and_the_writer_goes_on() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        storage.failures = 1
        with pytest.raises(StorageError, match="down"):
            await writer.add(record("p1"))
        await writer.add(record("p2"))

    assert run(work, Sizes(records=10, seconds=0.01, retry_seconds=0)).batches == [["p2"]]


def test_a_backend_that_crashes_fails_the_records_and_the_writer_goes_on() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        storage.crash = ZeroDivisionError("a bug")
        with pytest.raises(StorageError, match="a bug"):
            await writer.add(record("p1"))
        storage.crash = None
        await writer.add(record("p2"))

    assert run(work).batches == [["p2"]]


def test_a_refused_record_fails_alone() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        storage.poison = "p1"
        good, bad = writer.add(record("p0")), writer.add(record("p1"))
        with pytest.raises(RecordRefused, match="poison"):
            await bad
        await good

    run(work)


def test_a_page_is_complete_after_its_records_are_written() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        storage.gate.clear()
        written, complete = writer.add(record("p1")), writer.commit("p1", 2)
        await asyncio.sleep(0)
        assert not storage.commits
        storage.gate.set()
        await asyncio.gather(written, complete)

    assert run(work).commits == [PageCommit("p1", 2)]


def test_producers_wait_while_storage_is_far_behind() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        storage.gate.clear()
        futures = [writer.add(record(f"p{n}")) for n in range(10 * (BATCHES_BEHIND + 2))]
        waiting = asyncio.ensure_future(writer.room())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        storage.gate.set()
        async with asyncio.timeout(10):
            await waiting
            await asyncio.gather(*futures)

    run(work)


def test_closing_writes_what_is_pending() -> None:
    async def work(writer: BatchWriter, storage: MemoryStorage) -> None:
        for n in range(25):
            writer.add(record(f"p{n}"))

    assert run(work, Sizes(records=10, seconds=60)).count() == 25
