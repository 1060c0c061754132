"""A storage backend that takes its time; the real one behind it is named by SLOW_STORAGE."""

import os
import time
from collections.abc import Iterator, Sequence

from crawler.items.record import Record
from crawler.storage.backends import open_storage
from crawler.storage.contract import PageCommit, Refusal

VARIABLE = "SLOW_STORAGE"
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
