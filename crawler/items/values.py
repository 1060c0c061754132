"""Values of items as JSON keeps them: what JSON lacks is tagged, and comes back as it went in."""

import base64
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from itemadapter import ItemAdapter

from crawler.errors import RecordRefused

TAG = "$type"
DEEPEST = 64


def jsonable(value: Any, path: str, depth: int = 0) -> Any:  # noqa: PLR0911 - one return for each kind of value
    """The value as JSON can hold it.

    Raises:
        RecordRefused: names the field's path and the type that cannot be kept.
    """
    if value is None or isinstance(value, (bool, str)):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if isinstance(value, str) else value
    if isinstance(value, Enum):
        return jsonable(value.value, path, depth)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _tagged("float", repr(value))
    if depth > DEEPEST:
        raise RecordRefused(f"field {path} is nested more than {DEEPEST} deep; flatten it")
    if isinstance(value, Mapping):
        return _mapping(value, path, depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _sequence(value, path, depth)
    if ItemAdapter.is_item(value):
        return _mapping(ItemAdapter(value).asdict(), path, depth)
    return _scalar(value, path)


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
    kind = "tuple" if isinstance(value, tuple) else type(value).__name__
    # The same set prints the same each time.
    return _tagged(kind, items if kind == "tuple" else sorted(items, key=repr))


def _scalar(value: Any, path: str) -> Any:  # noqa: PLR0911 - one return for each kind of value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _tagged("bytes", base64.b64encode(bytes(value)).decode())
    if isinstance(value, Decimal):
        return _tagged("decimal", str(value))
    if isinstance(value, datetime):
        return _tagged("datetime", value.isoformat())
    if isinstance(value, date):
        return _tagged("date", value.isoformat())
    if isinstance(value, time):
        return _tagged("time", value.isoformat())
    if isinstance(value, timedelta):
        return _tagged("timedelta", [value.days, value.seconds, value.microseconds])
    if isinstance(value, UUID):
        return _tagged("uuid", str(value))
    raise RecordRefused(
        f"field {path} holds a {type(value).__module__}.{type(value).__qualname__}, which storage cannot keep; "
        "yield text, numbers, dates, bytes, lists, dicts or items"
    )


_READERS: dict[str, Any] = {
    "float": float,
    "bytes": base64.b64decode,
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "uuid": UUID,
}
_COLLECTIONS: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict}


def value_of(stored: Any) -> Any:
    """The value that was kept, with its type; the reverse of ``jsonable`` (items come back as dicts)."""
    if isinstance(stored, list):
        return [value_of(held) for held in stored]
    if not isinstance(stored, dict):
        return stored
    kind = stored.get(TAG)
    if kind in _READERS:
        return _READERS[kind](stored["value"])
    if kind in _COLLECTIONS:
        return _COLLECTIONS[kind](value_of(held) for held in stored["value"])
    return {key: value_of(held) for key, held in stored.items()}


def plain(stored: Any) -> Any:
    """The value for people and other programs: tags gone, dates and decimals as text, bytes as Base64."""
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
    return {key: plain(held) for key, held in stored.items()}
