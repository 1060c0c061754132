"""JSON Lines files: each process appends to files of its own, and what is read merges them, each item once."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from crawler.errors import ConfigError, StorageError
from crawler.items.record import Record
from crawler.storage.contract import PageCommit, Refusal

ROTATE_BYTES = 256 << 20
PREFIX = "jsonlines:"


def storage(target: str, writer: str) -> "JsonLinesStorage":
    """The backend of ``jsonlines:FOLDER``; ``jsonlines:///FOLDER`` is the folder from the root."""
    folder = target.removeprefix(PREFIX)
    folder = folder.removeprefix("//") if folder.startswith("///") else folder
    if not folder.strip("/"):
        raise ConfigError(f"CRAWLER_STORAGE is {target!r}, which names no folder; write it as in jsonlines:items")
    return JsonLinesStorage(Path(folder), writer)


class JsonLinesStorage:
    """Records as lines; a line of a page's completion takes out what older fetches of the page stored.

    A writer never appends to a file that was there before: its last line may have been cut by a crash. Whoever
    reads ignores such
    a line; its batch was not durable, so its page was not settled.
    """

    def __init__(self, folder: Path, writer: str, rotate_bytes: int = ROTATE_BYTES) -> None:
        self._folder = folder
        self._writer = writer
        self._rotate_bytes = rotate_bytes
        self._number = 0
        self._file: BinaryIO | None = None

    def open(self) -> None:
        """Makes the folder and proves that files can be made in it.

        Raises:
            StorageError: they cannot.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            probe = self._folder / f".{self._writer}.probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise StorageError(
                f"{self._folder} cannot be written: {error}; check that it is a folder and permitted"
            ) from error

    def write(self, records: Sequence[Record]) -> list[Refusal]:
        """Appends records and syncs them to disk."""
        self._append([asdict(record) for record in records])
        return []

    def commit(self, pages: Sequence[PageCommit]) -> None:
        """Appends the completions and syncs them to disk."""
        self._append([{"commit": page.page, "fetch": page.fetch} for page in pages])

    def _append(self, lines: Sequence[dict[str, Any]]) -> None:
        content = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        try:
            file = self._file or self._next_file()
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if file.tell() >= self._rotate_bytes:
                self._close_file()
        except OSError as error:
            # What is in the file may end in half a line: the next batch begins another file.
            self._close_file()
            raise StorageError(f"{self._folder} does not take a batch: {error}") from error

    def _next_file(self) -> BinaryIO:
        while True:
            self._number += 1
            path = self._folder / f"{self._writer}-{self._number:04d}.jsonl"
            try:
                self._file = path.open("xb")
            except FileExistsError:
                continue
            directory = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def count(self) -> int:
        """Items after merging; reads everything."""
        return sum(1 for _ in self.records())

    def records(self) -> Iterator[Record]:
        """Every item once, by key: of the latest fetch. Keeps one place a key in memory, and reads the files twice."""
        newest, complete = self._newest()
        for key in sorted(newest):
            fetch, path, offset = newest[key]
            with path.open("rb") as file:
                file.seek(offset)
                record = Record(**json.loads(file.readline()))
            if fetch >= complete.get(record.page, 0):
                yield record

    def _newest(self) -> tuple[dict[str, tuple[int, Path, int]], dict[str, int]]:
        newest: dict[str, tuple[int, Path, int]] = {}
        complete: dict[str, int] = {}
        for path in sorted(self._folder.glob("*.jsonl")):
            for offset, line in _lines(path):
                if "commit" in line:
                    page, fetch = line["commit"], line["fetch"]
                    complete[page] = max(complete.get(page, 0), fetch)
                elif line["key"] not in newest or newest[line["key"]][0] <= line["fetch"]:
                    newest[line["key"]] = (line["fetch"], path, offset)
        return newest, complete

    def close(self) -> None:
        """Closes the file."""
        self._close_file()


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    offset = 0
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield offset, json.loads(line)
            offset += len(line)
