"""What every storage backend does, shown on each of them with real files."""

import dataclasses
import multiprocessing
import os
import signal
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from crawler.errors import StorageError
from crawler.items.record import Record, Source, record_of
from crawler.items.values import value_of
from crawler.storage.backends import open_storage
from crawler.storage.contract import PageCommit, Storage
from tests.support.waiting import wait_until

Make = Callable[..., Storage]


@pytest.fixture(params=["sqlite", "jsonlines"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'items.db'}" if request.param == "sqlite" else f"jsonlines:{tmp_path / 'items'}"


@pytest.fixture
def make(address: str) -> Make:
    def open_it(writer: str = "w1") -> Storage:
        storage = open_storage(address, writer=writer)
        storage.open()
        return storage

    return open_it


def record(page: str = "p1", fetch: int = 1, position: int = 0, **data: Any) -> Record:
    source = Source("crawl", "spider", page, fetch, position, f"http://example.com/{page}")
    return record_of(data or {"n": 1}, source, stored_at=1.5)


def stored(storage: Storage) -> list[dict[str, Any]]:
    return [value_of(found.data) for found in storage.records()]


def test_what_is_written_is_read(make: Make) -> None:
    storage = make()

    assert storage.write([record("p1", title="a"), record("p2", title="b")]) == []

    assert sorted(found["title"] for found in stored(storage)) == ["a", "b"]
    assert storage.count() == 2


def test_a_record_comes_back_whole(make: Make) -> None:
    storage = make()
    written = record("p1", fetch=7, position=3, title="a")

    storage.write([written])

    assert list(storage.records()) == [written]


def test_the_same_record_twice_is_one(make: Make) -> None:
    storage = make()

    storage.write([record(), record()])
    storage.write([record()])

    assert storage.count() == 1


def test_the_later_fetch_stays_whatever_the_order(make: Make) -> None:
    storage = make()

    storage.write([record("p1", 5, v="new"), record("p2", 4, v="old")])
    storage.write([record("p1", 4, v="old"), record("p2", 5, v="new")])
    storage.write([record("p3", 5, v="new"), record("p3", 4, v="old")])

    assert stored(storage) == [{"v": "new"}] * 3


def test_a_complete_fetch_removes_what_older_ones_left_of_its_page(make: Make) -> None:
    storage = make()
    storage.write([record("p1", 1, position) for position in range(3)])
    storage.write([record("p2", 1)])
    storage.write([record("p1", 2, position) for position in range(2)])

    storage.commit([PageCommit("p1", 2)])

    assert storage.count() == 3
    assert {(found.page, found.fetch) for found in storage.records()} == {("p1", 2), ("p2", 1)}


def test_odd_values_come_back_as_they_went_in(make: Make) -> None:
    values: dict[str, Any] = {
        "bytes": b"\x00\xff",
        "four bytes": "😀",
        "nul": "a\x00b",
        "zone": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "clock": time(1, 2, 3),
        "span": timedelta(days=1, microseconds=5),
        "price": Decimal("1.10"),
        "huge": 2**200,
        "float": float("inf"),
        "id": UUID(int=5),
        "tuple": (1, (2, 3)),
        "set": {1, 2},
        "frozen": frozenset({"a"}),
        "nested": {"a": [{"b": None}], "$type": "mine"},
        "numbered": {1: "one", (2,): "two"},
        "select": "reserved",
        "odd \"name'; --": True,
        "": "no name",
    }
    storage = make()

    storage.write([record(**values)])

    assert stored(storage) == [values]


def test_what_was_written_is_there_when_opened_again(make: Make) -> None:
    first = make("w1")
    first.write([record("p1")])
    first.close()

    second = make("w1")
    second.write([record("p2")])

    assert second.count() == 2


def test_every_record_has_its_place_in_the_order(make: Make) -> None:
    storage = make()
    storage.write([record(f"p{n}") for n in range(50)])

    keys = [found.key for found in storage.records()]

    assert keys == sorted(keys)
    assert keys == [found.key for found in storage.records()]


def _write_many(address: str, writer: str, first: int, count: int) -> None:
    storage = open_storage(address, writer=writer)
    storage.open()
    for at in range(first, first + count, 10):
        storage.write([record(f"p{n}") for n in range(at, at + 10)])
    storage.close()


def test_several_processes_write_at_once(address: str, make: Make) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_many, args=(address, f"w{n}", n * 150, 200)) for n in range(3)]

    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)

    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert make("reader").count() == 500


def _write_for_ever(address: str, report: str) -> None:
    storage = open_storage(address, writer="victim")
    storage.open()
    number = 0
    while True:
        storage.write([record(f"p{number}-{n}", text="x" * 500) for n in range(20)])
        number += 1
        Path(report).write_text(str(number))


def test_a_killed_writer_leaves_all_that_it_acknowledged(address: str, make: Make, tmp_path: Path) -> None:
    report = tmp_path / "acknowledged"
    victim = multiprocessing.get_context("spawn").Process(target=_write_for_ever, args=(address, str(report)))
    victim.start()
    assert victim.pid is not None
    wait_until(lambda: report.exists() and report.read_text() > "5", 60, "some batches to be acknowledged")
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(30)

    pages = {found.page for found in make("reader").records()}

    acknowledged = int(report.read_text() or 0)
    assert {f"p{number}-{n}" for number in range(acknowledged) for n in range(20)} <= pages


def test_a_place_that_cannot_be_written_is_named(address: str, tmp_path: Path) -> None:
    (tmp_path / "items").write_text("a file where the folder should be")
    (tmp_path / "items.db").mkdir()

    with pytest.raises(StorageError, match="items"):
        open_storage(address).open()


def test_one_poison_row_costs_one_row(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 'items.db'}")
    storage.open()
    poison = dataclasses.replace(record("p2"), fetch=2**70)

    refusals = storage.write([record("p1"), poison, record("p3"), record("p4")])

    assert [refusal.record for refusal in refusals] == [poison]
    assert storage.count() == 3


def test_a_torn_last_line_is_no_record(tmp_path: Path) -> None:
    storage = open_storage(f"jsonlines:{tmp_path}", writer="w1")
    storage.open()
    storage.write([record("p1")])
    storage.close()
    (file,) = tmp_path.glob("*.jsonl")
    with file.open("ab") as out:
        out.write(b'{"key": "half')

    again = open_storage(f"jsonlines:{tmp_path}", writer="w1")
    again.open()
    again.write([record("p2")])

    assert again.count() == 2
