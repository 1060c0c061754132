"""Writes what is stored as JSON Lines or CSV, each item once."""

import csv
import json
from typing import TextIO

from crawler.errors import ConfigError
from crawler.items.record import Record
from crawler.items.values import plain
from crawler.storage.contract import Storage

FORMS = ("jsonl", "csv")


def export(storage: Storage, out: TextIO, form: str) -> int:
    """Writes every record's fields; returns how many records.

    Args:
        storage: an open storage.
        out: where to; for CSV opened with ``newline=""``.
        form: ``jsonl`` or ``csv``. CSV has a column for each field that occurs, in alphabetical order, found in
            a first pass.

    Raises:
        ConfigError: the form is neither.
        StorageError: what is stored cannot be read.
    """
    if form not in FORMS:
        raise ConfigError(f"an export is jsonl or csv, got {form!r}")
    return _csv(storage, out) if form == "csv" else _jsonl(storage, out)


def _fields(record: Record) -> dict[str, object]:
    fields: dict[str, object] = plain(record.data)
    return fields


def _jsonl(storage: Storage, out: TextIO) -> int:
    count = 0
    for record in storage.records():
        out.write(json.dumps(_fields(record), ensure_ascii=False) + "\n")
        count += 1
    return count


def _csv(storage: Storage, out: TextIO) -> int:
    columns = sorted({name for record in storage.records() for name in _fields(record)})
    writer = csv.writer(out)
    writer.writerow(columns)
    count = 0
    for record in storage.records():
        fields = _fields(record)
        writer.writerow([_cell(fields.get(name)) for name in columns])
        count += 1
    return count


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value
