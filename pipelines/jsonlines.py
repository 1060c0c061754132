"""JSON Lines files: each process appends to files of its own, and what is read merges them, each item once."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

from crawler.errors import ConfigError, StorageError
from crawler.items.record import Record
from crawler.storage.contract import PageCommit, Refusal

ROTATE_BYTES = 256 << 20
READ_BYTES = 4096
"""Read at once for one line; ordinary lines are shorter."""

PREFIX = "jsonlines:"

_FIELDS = tuple(field.name for field in fields(Record))


def storage(target: str, writer: str) -> "JsonLinesStorage":
    """The backend of ``jsonlines:FOLDER``; ``jsonlines:///FOLDER`` is the folder from the root."""
    folder = target.removeprefix(PREFIX).removeprefix("//")
    if not folder.strip("/"):
        raise ConfigError(f"CRAWLER_STORAGE is {target!r}, which names no folder; write it as in jsonlines:items")
    return JsonLinesStorage(Path(folder), writer)


class JsonLinesStorage:
    """Records as lines; a line of a page's completion takes out what older fetches of the page stored.

    A writer never appends to a file that was there before: its last line may have been cut by a crash. Whoever reads
    ignores such a line; its batch was not durable, so its page was not settled.
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
            _sync_folder(self._folder.absolute().parent)
            probe = self._folder / f".{self._writer}.probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise StorageError(
                f"{self._folder} cannot be written: {error}; check that it is a folder and permitted"
            ) from error

    def write(self, records: Sequence[Record]) -> list[Refusal]:
        """Appends records and syncs them to disk."""
        lines: list[bytes] = []
        refusals: list[Refusal] = []
        for record in records:
            try:
                lines.append(_line({name: getattr(record, name) for name in _FIELDS}))
            except (TypeError, ValueError, RecursionError) as error:
                refusals.append(Refusal(record, f"{type(error).__name__}: {error}"))
        self._append(lines)
        return refusals

    def commit(self, pages: Sequence[PageCommit]) -> None:
        """Appends the completions and syncs them to disk."""
        self._append([_line({"commit": page.page, "fetch": page.fetch}) for page in pages])

    def _append(self, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        try:
            file = self._file or self._next_file()
            left = memoryview(b"".join(lines))
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
            if file.tell() >= self._rotate_bytes:
                self._close_file()
        except OSError as error:
            with suppress(OSError):  # the first error is the one to tell
                self._close_file()
            # What is in the file may end in half a line: the next batch begins another file.
            raise StorageError(f"{self._folder} does not take a batch: {error}") from error

    def _next_file(self) -> BinaryIO:
        while True:
            self._number += 1
            path = self._folder / f"{self._writer}-{self._number:04d}.jsonl"
            try:
                # Unbuffered: what a full disk refused must not be written again when the file is closed.
                self._file = path.open("xb", buffering=0)
            except FileExistsError:
                continue
            _sync_folder(self._folder)
            return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def count(self) -> int:
        """Items after merging; reads everything."""
        newest, complete = self._newest()
        return sum(1 for page, fetch, _, _ in newest.values() if fetch >= complete.get(page, 0))

    def records(self) -> Iterator[Record]:
        """Every item once, by key: of the latest fetch. Keeps a place a key in memory, and reads the files twice."""
        newest, complete = self._newest()
        for key in sorted(newest):
            page, fetch, path, offset = newest[key]
            if fetch >= complete.get(page, 0):
                try:
                    with path.open("rb", buffering=READ_BYTES) as file:
                        file.seek(offset)
                        line = file.readline()
                except OSError as error:
                    raise StorageError(f"{path} cannot be read: {error}") from error
                yield Record(**_parsed(line, path, offset))

    def _newest(self) -> tuple[dict[str, tuple[str, int, Path, int]], dict[str, int]]:
        newest: dict[str, tuple[str, int, Path, int]] = {}
        complete: dict[str, int] = {}
        for path in sorted(self._folder.glob("*.jsonl")):
            for offset, line in _lines(path):
                if "commit" in line:
                    page, fetch = line["commit"], line["fetch"]
                    complete[page] = max(complete.get(page, 0), fetch)
                elif line["key"] not in newest or newest[line["key"]][1] <= line["fetch"]:
                    newest[line["key"]] = (line["page"], line["fetch"], path, offset)
        return newest, complete

    def close(self) -> None:
        """Closes the file."""
        self._close_file()


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    offset = 0
    try:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield offset, _parsed(line, path, offset)
                offset += len(line)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error


def _parsed(line: bytes, path: Path, offset: int) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise StorageError(f"{path} holds no JSON at byte {offset} ({error}); repair or remove that line") from error
    return content


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
