"""Values of items as JSON keeps them: what JSON lacks is tagged, and comes back as it went in."""

import base64
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from itemadapter import ItemAdapter

from crawler.errors import RecordRefused

TAG = "$type"
DEEPEST = 64
LONGEST_INT_BITS = 8192
"""Longer integers go as hexadecimal text: Python reads and prints decimals of no more than 4,300 digits."""

SCALAR_BYTES = 8
"""What a number or a flag counts for in ``bytes_of``."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def fields_of(item: Mapping[Any, Any]) -> dict[str, Any]:
    """The fields of an item as JSON can hold them; ``value_of`` brings them back.

    Raises:
        RecordRefused: names the field's path and the type that cannot be kept.
    """
    if TAG in item or not all(isinstance(name, str) for name in item):
        return _mapping(item, "", 0)
    return {name: jsonable(value, name) for name, value in item.items()}


def jsonable(value: Any, path: str, depth: int = 0) -> Any:  # noqa: PLR0911 - one return for each kind of value
    """The value as JSON can hold it. Of an enumeration's member its value is kept, of an item its fields.

    Raises:
        RecordRefused: names the field's path and the type that cannot be kept.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return jsonable(value.value, path, depth)
    if isinstance(value, str):
        # A subclass may hold more than its text, as lxml's hold their whole page.
        return str.__str__(value)
    if isinstance(value, int):
        number = int(value)
        return number if number.bit_length() <= LONGEST_INT_BITS else _tagged("int", hex(number))
    if isinstance(value, float):
        return value if math.isfinite(value) else _tagged("float", repr(float(value)))
    if depth > DEEPEST:
        raise RecordRefused(f"field {path} is nested more than {DEEPEST} deep; flatten it")
    if isinstance(value, Mapping):
        return _mapping(value, path, depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _sequence(value, path, depth)
    return _object(value, path, depth)


def _tagged(kind: str, content: Any) -> dict[str, Any]:
    return {TAG: kind, "value": content}


def _mapping(value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
    if TAG in value or not all(isinstance(key, str) for key in value):
        pairs = [
            [jsonable(key, f"{path} (a key)", depth + 1), jsonable(held, f"{path}[{key!r}]", depth + 1)]
            for key, held in value.items()
        ]
        return _tagged("dict", pairs)
    return {key: jsonable(held, f"{path}.{key}", depth + 1) for key, held in value.items()}


def _sequence(value: Any, path: str, depth: int) -> Any:
    items = [jsonable(held, f"{path}[{at}]", depth + 1) for at, held in enumerate(value)]
    if isinstance(value, list):
        return items
    if isinstance(value, tuple):
        return _tagged("tuple", items)
    # The same set prints the same each time.
    return _tagged("set" if isinstance(value, set) else "frozenset", sorted(items, key=repr))


def _moment(kind: str, value: datetime | time) -> dict[str, Any]:
    tagged = _tagged(kind, value.isoformat())
    if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key:
        tagged["zone"] = value.tzinfo.key
    return tagged


_WRITERS: tuple[tuple[type | tuple[type, ...], Callable[[Any], dict[str, Any]]], ...] = (
    ((bytes, bytearray, memoryview), lambda value: _tagged("bytes", base64.b64encode(bytes(value)).decode())),
    (Decimal, lambda value: _tagged("decimal", str(value))),
    (datetime, lambda value: _moment("datetime", value)),  # before date, which it derives from
    (date, lambda value: _tagged("date", value.isoformat())),
    (time, lambda value: _moment("time", value)),
    (timedelta, lambda value: _tagged("timedelta", [value.days, value.seconds, value.microseconds])),
    (UUID, lambda value: _tagged("uuid", str(value))),
)


def _object(value: Any, path: str, depth: int) -> Any:
    for types, write in _WRITERS:
        if isinstance(value, types):
            return write(value)
    if ItemAdapter.is_item(value):
        return _mapping(ItemAdapter(value), path, depth)
    raise RecordRefused(
        f"field {path} holds a {type(value).__module__}.{type(value).__qualname__}, which storage cannot keep; "
        "yield text, numbers, dates, bytes, lists, dicts or items"
    )


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda digits: int(digits, 16),
    "float": float,
    "bytes": base64.b64decode,
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "uuid": UUID,
}
_COLLECTIONS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict}


def value_of(stored: Any) -> Any:
    """The value that was kept, with its type; the reverse of ``jsonable``.

    Items come back as dicts; a set of items, or a dict with items as keys, as a list, since dicts cannot be hashed.
    """
    if isinstance(stored, list):
        return [value_of(held) for held in stored]
    if not isinstance(stored, dict):
        return stored
    kind = stored.get(TAG)
    if kind in _READERS:
        value = _READERS[kind](stored["value"])
        return _zoned(value, stored["zone"]) if "zone" in stored else value
    if kind in _COLLECTIONS:
        held = [value_of(held) for held in stored["value"]]
        try:
            return _COLLECTIONS[kind](held)
        except TypeError:
            return held
    return {key: value_of(held) for key, held in stored.items()}


def _zoned(value: Any, name: str) -> Any:
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        # This machine's table of zones lacks it; the offset tells the same instant.
        return value
    return value.astimezone(zone) if isinstance(value, datetime) else value.replace(tzinfo=zone)


def plain(stored: Any) -> Any:  # noqa: PLR0911 - one return for each kind of value
    """The value for people and other programs: tags gone, dates and decimals as text, bytes as Base64.

    A surrogate without its other half, which no encoding of files can hold, becomes U+FFFD.
    """
    if isinstance(stored, str):
        return _SURROGATE.sub("\ufffd", stored)
    if isinstance(stored, list):
        return [plain(held) for held in stored]
    if not isinstance(stored, dict):
        return stored
    kind = stored.get(TAG)
    if kind == "dict":
        return {str(plain(key)): plain(held) for key, held in stored["value"]}
    if kind == "timedelta":
        return value_of(stored).total_seconds()
    if kind is not None:
        return plain(stored["value"])
    return {plain(key): plain(held) for key, held in stored.items()}


def bytes_of(stored: Any) -> int:
    """About how many bytes a kept value takes when written; cheap, for the size of batches."""
    if isinstance(stored, str):
        return len(stored)
    if isinstance(stored, dict):
        return sum(len(key) + bytes_of(held) for key, held in stored.items())
    if isinstance(stored, list):
        return sum(map(bytes_of, stored))
    return SCALAR_BYTES
