"""Values and entries survive the wire; what cannot is refused with its place, and nothing read runs code."""

import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import pickle
import urllib.parse
import uuid
from typing import Any, NamedTuple

import attr
import msgpack
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Field, Item

from crawler.errors import WireError
from crawler.frontier.wire import (
    ENTRY_VERSION,
    MAX_BYTES,
    NewerWire,
    Unpackable,
    explain,
    pack,
    pack_entry,
    plain,
    unpack,
    unpack_entry,
)

RAN: list[str] = []


class Book(Item):
    title = Field()
    price = Field()


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    url: str
    parts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        RAN.append(self.url)


@attr.s(auto_attribs=True)
class Shop:
    name: str
    tags: set[str] = attr.Factory(set)


class Offer(pydantic.BaseModel):
    price: decimal.Decimal
    seller: str = pydantic.Field(default="nobody", alias="by")


class Point(NamedTuple):
    x: int
    y: int


class Colour(enum.Enum):
    RED = "r"


class Size(enum.StrEnum):
    SMALL = "s"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Text(str):
    __slots__ = ()


class Watched:
    def __del__(self) -> None: ...


@dataclasses.dataclass
class Closing(Watched):
    path: str = ""


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(dt.UTC) | st.just(dt.timezone(dt.timedelta(hours=-3, minutes=7))))
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from([*Colour, *Size, range(3, 9, 2), Point(1, 2)])
)
HASHABLE = SCALARS | st.tuples(SCALARS, st.tuples(SCALARS)) | st.frozensets(SCALARS, max_size=3)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS | st.binary().map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(HASHABLE, max_size=4)
        | st.builds(collections.deque, st.lists(inner, max_size=3), st.none() | st.integers(3, 9))
        | st.builds(collections.OrderedDict, st.dictionaries(HASHABLE, inner, max_size=2))
        | st.builds(Page, st.text(), st.tuples(inner))
        | st.builds(Shop, st.text())
        | st.builds(Book, st.fixed_dictionaries({"title": inner}))
    ),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    """The value with the type of each part beside it: equality alone takes 1 for True."""
    kind = type(value)
    if isinstance(value, dict | Item):
        return kind, [(shape(k), shape(v)) for k, v in value.items()]
    if isinstance(value, list | tuple | collections.deque):
        return kind, [shape(v) for v in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(shape(v)) for v in value)
    if isinstance(value, Page | Shop):
        return kind, shape({name: getattr(value, name) for name in kind.__match_args__})
    return kind, value


@given(VALUES)
def test_what_is_packed_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    assert repr(shape(unpack(pack(value)))) == repr(shape(value))


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_wire_error(body: bytes) -> None:
    for read in (unpack, unpack_entry):
        with contextlib.suppress(WireError):
            read(body)


@given(VALUES, st.data())
def test_damaged_bytes_give_a_value_or_a_wire_error(value: Any, data: st.DataObject) -> None:
    body = bytearray(pack(value))
    for _ in range(3):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        unpack(bytes(body))


@pytest.mark.parametrize(
    "value",
    [
        Offer(price=decimal.Decimal("1.50"), by="me"),
        collections.Counter("abca"),
        urllib.parse.urlsplit("https://a.example/x?y#z"),
        2**64,
        -(2**63) - 1,
        {("a", 1): {"b": frozenset({1})}},
        "half of a pair: \ud83d",
    ],
)
def test_value_comes_back(value: object) -> None:
    back = unpack(pack(value))
    assert back == value
    assert type(back) is type(value)


def test_factories_and_lengths_of_collections_come_back() -> None:
    found = unpack(pack([collections.defaultdict(list, a=[1]), collections.deque([1, 2], maxlen=2)]))
    found[0]["new"].append(1)
    found[1].append(3)
    assert found == [{"a": [1], "new": [1]}, collections.deque([2, 3])]


def local_number() -> int:
    class Number(enum.IntEnum):
        ONE = 1

    return Number.ONE


def test_subclasses_of_scalars_become_their_base_type() -> None:
    back = unpack(pack([Text("a"), local_number()]))
    assert back == ["a", 1]
    assert [type(v) for v in back] == [str, int]


def test_no_constructor_of_an_item_runs_on_reading() -> None:
    body = pack(Page("https://a.example/"))
    RAN.clear()
    assert unpack(body).url == "https://a.example/"
    assert RAN == []


def local_class() -> type:
    @dataclasses.dataclass
    class Inner:
        a: int = 1

    return Inner


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": [1, {"b": lambda: 0}]}, "['a'][1]['b'] holds a function"),
        ((1, {2, uuid}), "[1] member holds a module"),
        (Page("u", (object(),)), ".parts[0] holds an object"),  # type: ignore[arg-type]
        (Book(title=print), "['title'] holds a builtin_function_or_method"),
        (Point(1, object()), ".y holds an object"),  # type: ignore[arg-type]
        ({object: 1}, f" key {object!r} holds a type"),
        (collections.defaultdict(lambda: 0), "whose factory is no built-in type"),
        (local_class()(), "whose class is made inside a function"),
        (Closing(), "Closing"),
        (Rights.READ | Rights.WRITE, "Rights"),
        (type("Own", (dict,), {})(), "more than a plain one"),
    ],
)
def test_what_cannot_travel_is_refused_with_its_place_and_type(value: object, told: str) -> None:
    with pytest.raises(Unpackable):
        pack(value)
    assert told in explain(value)


def test_values_that_hold_themselves_are_refused() -> None:
    in_list: list[Any] = []
    in_list.append(in_list)
    in_tuple: list[Any] = []
    in_tuple.append((in_tuple,))
    for value in (in_list, in_tuple):
        with pytest.raises(Unpackable, match="holds itself"):
            plain(value)
        assert "holds itself" in explain(value)


def extension(code: int, content: object) -> bytes:
    return msgpack.packb(msgpack.ExtType(code, msgpack.packb(content)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "body",
    [
        pickle.dumps({"a": 1}),
        b"",
        b"https://a.example/",
        extension(36, ["subprocess:Popen", {"args": "true"}]),
        extension(36, ["antigravity:Item", {}]),
        extension(36, ["builtins:eval", {}]),
        extension(36, ["logging:Formatter", {}]),
        extension(36, [f"{__name__}:Book", {"title": 1}]),
        extension(36, [f"{__name__}:Page", {"__class__": 1}]),
        extension(36, [f"{__name__}:Closing", {"path": "/"}]),
        extension(32, [f"{__name__}:Colour", "__class__"]),
        extension(33, [f"{__name__}:Point", [1]]),
        extension(14, ["eval", {}]),
        extension(99, []),
    ],
)
def test_foreign_bytes_and_classes_that_are_no_items_are_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        unpack(body)


def test_nesting_beyond_what_is_written_is_refused_and_not_followed() -> None:
    body = msgpack.packb([])
    for _ in range(20_000):
        body = msgpack.packb(msgpack.ExtType(2, body))
    with pytest.raises(WireError, match="at depth 33"):
        unpack(body)


def test_size_is_bounded_on_both_sides() -> None:
    with pytest.raises(WireError, match="keep large data elsewhere"):
        pack(b"a" * MAX_BYTES)
    with pytest.raises(WireError, match="at most"):
        unpack(msgpack.packb(b"a" * MAX_BYTES))


def test_entry_drops_the_empty_slots_at_its_end_only() -> None:
    body = pack_entry(["u", None, 3, None, None])
    assert unpack_entry(body) == ["u", None, 3]
    assert len(body) == len(pack_entry(["u", None, 3]))
    assert unpack_entry(pack_entry([None])) == []
    assert unpack_entry(pack_entry(list(range(20)))) == list(range(20))


def test_entry_of_a_newer_version_is_told_from_garbage_even_with_unknown_extensions() -> None:
    newer = msgpack.packb([ENTRY_VERSION + 1, msgpack.ExtType(99, b"?")])
    with pytest.raises(NewerWire, match="upgrade"):
        unpack_entry(newer)
    for garbage in (
        b"\x80",
        msgpack.packb([]),
        msgpack.packb(["a"]),
        msgpack.packb({"a": 1}),
        b"\xdc",
        b"\x00\x01",
    ):
        with pytest.raises(WireError) as caught:
            unpack_entry(garbage)
        assert not isinstance(caught.value, NewerWire)
