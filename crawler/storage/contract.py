"""What every storage backend does; one suite of tests runs over all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from crawler.items.record import Record


@dataclass(frozen=True, slots=True)
class Refusal:
    """One of the records given that the backend will never take, and why; the rest of its batch is stored."""

    record: Record
    reason: str


@dataclass(frozen=True, slots=True)
class PageCommit:
    """A fetch of a page, known by its ``page_key``, is complete.

    What older fetches of it stored and this one did not yield again goes.
    """

    page: str
    fetch: int


class Storage(Protocol):
    """A backend. All calls block and come from one thread, ``open`` first."""

    def open(self) -> None:
        """Makes what is missing and proves that it can be written.

        Raises:
            StorageError: not reachable or not writable now.
            ConfigError: its address cannot be used.
        """

    def write(self, records: Sequence[Record]) -> list[Refusal]:
        """Stores records by key and returns when they are durable.

        Of two with one key the one of the later fetch stays, of one fetch the last. A record of an older fetch than
        its page's last commit is left out.

        Raises:
            StorageError: nothing or only a part was stored; writing the same again is right.
        """

    def commit(self, pages: Sequence[PageCommit]) -> None:
        """Removes the records that older fetches left of these pages, and those that they still write later.

        Raises:
            StorageError: it could not be done now.
        """

    def count(self) -> int:
        """How many records there are.

        Raises:
            StorageError: what is stored cannot be read.
        """

    def records(self) -> Iterator[Record]:
        """Every record once, in an order that is the same each time for the same content.

        Raises:
            StorageError: what is stored cannot be read.
        """

    def close(self) -> None:
        """Releases what the backend holds; it may be opened again."""
