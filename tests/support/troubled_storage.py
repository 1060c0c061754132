"""Storage backends with troubles; the real one behind them is named by STORAGE_BEHIND."""

import os
import time
from collections.abc import Iterator, Sequence

from crawler.errors import StorageError
from crawler.items.record import Record
from crawler.storage.backends import open_storage
from crawler.storage.contract import PageCommit, Refusal

VARIABLE = "STORAGE_BEHIND"
WRITE_SECONDS = 2.0


class SlowStorage:
    """Each batch takes two seconds before it is written."""

    def __init__(self, target: str, writer: str) -> None:
        self._storage = open_storage(os.environ[VARIABLE], writer=writer)

    def open(self) -> None:
        self._storage.open()

    def write(self, records: Sequence[Record]) -> list[Refusal]:
        time.sleep(WRITE_SECONDS)  # what the backend is for
        return self._storage.write(records)

    def commit(self, pages: Sequence[PageCommit]) -> None:
        self._storage.commit(pages)

    def count(self) -> int:
        return self._storage.count()

    def records(self) -> Iterator[Record]:
        return self._storage.records()

    def close(self) -> None:
        self._storage.close()


class FlakyStorage(SlowStorage):
    """The first three batches are not taken; records of a page whose URL ends in 5 never are."""

    failures = 3

    def write(self, records: Sequence[Record]) -> list[Refusal]:
        if self.failures:
            self.failures -= 1
            raise StorageError("the disk is away for a moment")
        poison = [record for record in records if record.url.endswith("5")]
        good = [record for record in records if not record.url.endswith("5")]
        return [Refusal(record, "it ends in 5") for record in poison] + (self._storage.write(good) if good else [])
