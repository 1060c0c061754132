"""What an entry is on the wire: msgpack with extension types, nothing of which runs code when it is read."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any, Final, NamedTuple, cast

import msgpack

from crawler.errors import WireError
from crawler.frontier.classes import CLASS_FORMS, build, class_path, form_of, is_item

ENTRY_VERSION: Final = 1
MAX_BYTES: Final = 1 << 20  # of one value or entry: as much as a batch of the frontier may have
_MAX_NESTED: Final = 32  # extensions inside extensions: each takes 40 KB of C stack when it is read
SCALARS: Final = frozenset({str, int, float, bool, bytes, NoneType})
_ARRAY_MARKS: Final = {**dict.fromkeys(range(0x91, 0xA0), 1), 0xDC: 3}  # where the first slot of an array is
_SHORT_INTEGERS: Final = 128  # are one byte of msgpack, as versions are


class NewerWire(WireError):
    """The entry was written by a newer version: release it untouched."""


class Unpackable(WireError):
    """A value of this type has no form on the wire."""

    def __init__(self, value: object, why: str = "") -> None:
        """Refuse the value for its type, or for what the clause `why` tells of it."""
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        self.found = f"{name}, {why}" if why else name
        super().__init__(f"got {self.found}, which cannot travel; use plain data, dates or items")


def pack(value: object) -> bytes:
    """Bytes of a value that `unpack` gives back equal and of the same types.

    Subclasses of str, bytes, int and float become their base type, but for enumerations that can be imported.
    Raises Unpackable for a type without a form here, WireError for more than MAX_BYTES.
    """
    return _bounded(_packb(plain(value)))


def unpack(body: bytes) -> Any:
    """Value of what `pack` wrote; raises WireError for other bytes and for classes not imported here."""
    if len(body) > MAX_BYTES:
        raise WireError(f"got {len(body)} bytes, at most {MAX_BYTES} are read; discard the entry")
    try:
        return _unpackb(body, 0)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise WireError(
            f"got bytes that are no entry of ours ({type(error).__name__}: {error}); discard them"
        ) from error


def pack_entry(slots: Sequence[object]) -> bytes:
    """Bytes of a positional entry: its version, then the slots without those at the end that are None.

    Slots hold scalars and what `plain` returned, in an order that the reader knows. WireError when too large.
    """
    used = len(slots)
    while used and slots[used - 1] is None:
        used -= 1
    return _bounded(_packb([ENTRY_VERSION, *slots[:used]]))


def unpack_entry(body: bytes) -> list[Any]:
    """Slots of an entry, without those dropped at its end; raises NewerWire, or WireError if it is none."""
    first = _ARRAY_MARKS.get(body[0], len(body)) if body else 0
    version = body[first] if first < len(body) else 0
    if ENTRY_VERSION < version < _SHORT_INTEGERS:
        raise NewerWire(f"got an entry of version {version}, known is {ENTRY_VERSION}; upgrade this worker")
    if version != ENTRY_VERSION:
        raise WireError(f"got {bytes(body[:16])!r}, which is no entry of this frontier; discard it")
    slots = cast("list[Any]", unpack(body))
    del slots[0]
    return slots


def plain(value: object) -> Any:
    """The same value made of what msgpack knows, ready for a slot of `pack_entry`; raises Unpackable."""
    try:
        return _plain(value, 0)
    except RecursionError:
        raise Unpackable(value, "which holds itself or is nested too deeply") from None


def explain(value: object) -> str:
    """Where inside the value is what `plain` refuses, and its type, as in `['a'][3] holds a function`."""
    path, found = "", value
    for _ in range(_MAX_NESTED):
        step = next(((name, child) for name, child in _children(found) if _refusal(child)), None)
        if step is None:
            break
        path, found = path + step[0], step[1]
    refusal = _refusal(found) or Unpackable(found)
    return f"{path} holds {'an' if refusal.found[0] in 'aeiou' else 'a'} {refusal.found}"


def _packb(value: object) -> bytes:
    try:
        return cast("bytes", msgpack.packb(value, default=_large_integer, unicode_errors="surrogatepass"))
    except ValueError as error:
        raise WireError(f"got a value that msgpack refuses ({error}); nest it less deeply") from error


def _unpackb(body: bytes, nested: int) -> Any:
    return msgpack.unpackb(body, ext_hook=_HOOKS[nested], strict_map_key=False, unicode_errors="surrogatepass")


def _bounded(body: bytes) -> bytes:
    if len(body) > MAX_BYTES:
        raise WireError(f"got {len(body)} bytes, at most {MAX_BYTES} are queued; keep large data elsewhere")
    return body


def _plain(value: Any, nested: int) -> Any:
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is list:
        return [v if type(v) in SCALARS else _plain(v, nested) for v in value]
    if kind is dict:
        return {_plain(k, nested): v if type(v) in SCALARS else _plain(v, nested) for k, v in value.items()}
    if nested == _MAX_NESTED:
        raise Unpackable(value, "which holds itself or is nested too deeply")
    code, content = _taken_apart(value, kind)
    if code:
        return msgpack.ExtType(code, _packb(_plain(content, nested + 1)))
    for base, exact in _EXACT.items():
        if isinstance(value, base):
            return exact(value)
    raise Unpackable(value, _why_not(kind))


def _taken_apart(value: Any, kind: type) -> tuple[int, object]:
    form = _FORMS.get(kind)
    if form is not None:
        return form.code, form.parts(value)
    class_form = form_of(kind)
    if class_form is None:
        return 0, None
    return class_form.code, [class_path(kind), class_form.parts(value)]


def _why_not(kind: type) -> str:
    if class_path(kind) is None and is_item(kind):
        return "whose class is made inside a function"
    return "which is more than a plain one" if issubclass(kind, dict | list | tuple | set) else ""


def _refusal(value: object) -> Unpackable | None:
    try:
        plain(value)
    except Unpackable as error:
        return error
    return None


def _children(value: Any) -> Iterator[tuple[str, object]]:
    kind: type = type(value)
    if isinstance(value, Mapping):
        yield from ((f" key {key!r}", key) for key in value)
        yield from ((f"[{key!r}]", child) for key, child in value.items())
    elif kind in (list, tuple, deque):
        yield from ((f"[{position}]", child) for position, child in enumerate(value))
    elif kind in (set, frozenset):
        yield from ((" member", child) for child in value)
    elif (form := form_of(kind)) is not None:
        parts = form.parts(value)
        if isinstance(parts, dict):
            yield from ((f".{name}", child) for name, child in parts.items())
        elif isinstance(parts, list):
            yield from ((f".{name}", child) for name, child in zip(value._fields, parts, strict=True))


def _large_integer(value: object) -> msgpack.ExtType:
    if type(value) is not int:
        raise Unpackable(value)
    return msgpack.ExtType(_LARGE_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _factory_name(value: defaultdict[Any, Any]) -> str | None:
    if value.default_factory is None:
        return None
    name = getattr(value.default_factory, "__name__", "")
    if _FACTORIES.get(name) is not value.default_factory:
        raise Unpackable(value, "whose factory is no built-in type")
    return name


def _defaultdict(parts: list[Any]) -> defaultdict[Any, Any]:
    return defaultdict(None if parts[0] is None else _FACTORIES[parts[0]], parts[1])


class _Form(NamedTuple):
    """Extension code of a built-in type, what takes its values apart, and what puts them together."""

    code: int
    parts: Callable[[Any], object]
    build: Callable[[Any], object]


_LARGE_INTEGER: Final = 1
_FORMS: Final[dict[type, _Form]] = {
    tuple: _Form(2, list, tuple),
    set: _Form(3, list, set),
    frozenset: _Form(4, list, frozenset),
    bytearray: _Form(5, bytes, bytearray),
    decimal.Decimal: _Form(6, str, decimal.Decimal),
    dt.datetime: _Form(
        7, lambda v: [v.isoformat(), v.fold], lambda p: dt.datetime.fromisoformat(p[0]).replace(fold=p[1])
    ),
    dt.date: _Form(8, dt.date.isoformat, dt.date.fromisoformat),
    dt.time: _Form(9, lambda v: [v.isoformat(), v.fold], lambda p: dt.time.fromisoformat(p[0]).replace(fold=p[1])),
    dt.timedelta: _Form(10, lambda v: [v.days, v.seconds, v.microseconds], lambda p: dt.timedelta(*p)),
    uuid.UUID: _Form(11, lambda v: v.bytes, lambda p: uuid.UUID(bytes=p)),
    OrderedDict: _Form(12, lambda v: list(v.items()), OrderedDict),
    Counter: _Form(13, dict, Counter),
    defaultdict: _Form(14, lambda v: [_factory_name(v), dict(v)], _defaultdict),
    deque: _Form(15, lambda v: [v.maxlen, list(v)], lambda p: deque(p[1], p[0])),
    range: _Form(16, lambda v: [v.start, v.stop, v.step], lambda p: range(*p)),
}
_FACTORIES: Final[dict[str, Callable[[], object]]] = {
    kind.__name__: kind for kind in (list, dict, set, tuple, int, float, str, bool)
}
_EXACT: Final[dict[type, Callable[[Any], object]]] = {
    str: str.__str__,
    bytes: lambda v: bytes.__getitem__(v, slice(None)),
    int: int.__int__,
    float: float.__float__,
}
_READERS: Final[dict[int, Callable[[Any], object]]] = {
    **{form.code: form.build for form in _FORMS.values()},
    **{form.code: partial(lambda code, named: build(code, *named), form.code) for form in CLASS_FORMS},
}


def _read_extension(nested: int, code: int, data: bytes) -> object:
    if code == _LARGE_INTEGER:
        return int.from_bytes(data, "big", signed=True)
    if nested > _MAX_NESTED or code not in _READERS:
        raise WireError(f"got extension {code} at depth {nested}, which no version known writes; discard it")
    return _READERS[code](_unpackb(data, nested))


_HOOKS: Final = tuple(partial(_read_extension, nested + 1) for nested in range(_MAX_NESTED + 1))
