"""Records and keys of items: the same item has the same key, and what cannot be kept is refused by name."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from crawler.errors import ConfigError, RecordRefused
from crawler.items.key import item_key, page_key
from crawler.items.record import Record, Source, record_of
from crawler.storage.backends import open_storage


@dataclass
class Product:
    """An item with a key of its own."""

    key_field: ClassVar[str] = "sku"
    sku: str
    price: float


def made(item: Any, page: str = "p1", position: int = 0, spider: str = "s", key_field: str = "") -> Record:
    source = Source("c", spider, page, 1, position, "http://example.com/")
    return record_of(item, source, key_field=key_field, stored_at=0.0)


def test_an_item_is_known_by_its_spider_page_and_position() -> None:
    first = made({"a": 1})

    assert made({"a": 2}).key == first.key
    others = [made({}, page="p2"), made({}, position=1), made({}, spider="t")]
    assert len({first.key, *(other.key for other in others)}) == 4


def test_spiders_have_pages_of_their_own() -> None:
    assert page_key("s", "p1") == page_key("s", "p1")
    assert len({page_key("s", "p1"), page_key("s", "p2"), page_key("t", "p1"), item_key("s", "p1", 0)}) == 4


def test_a_declared_field_identifies_an_item_across_pages() -> None:
    assert made({"id": 7}, "p1", key_field="id").key == made({"id": 7}, "p2", 4, key_field="id").key
    assert made({"id": 7}, key_field="id").key != made({"id": "7"}, key_field="id").key
    assert made(Product("x", 1.0), "p1").key == made(Product("x", 2.0), "p2").key


def test_an_item_without_its_key_field_is_refused() -> None:
    with pytest.raises(RecordRefused, match="lacks its key field 'id'"):
        made({"name": "x"}, key_field="id")


def test_a_value_that_cannot_be_kept_is_named() -> None:
    with pytest.raises(RecordRefused, match=r"field a\.b\[1\] holds a builtins\.object"):
        made({"a": {"b": [1, object()]}})


def test_what_is_no_item_is_refused() -> None:
    with pytest.raises(RecordRefused, match="a str is no item"):
        made("text")


@pytest.mark.parametrize("target", ["oracle://me:secret@host/db", "nothing", "tests.no_such_module.Storage"])
def test_an_address_of_no_backend_is_refused_without_its_password(target: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_storage(target)

    assert "secret" not in str(refused.value)
    assert "CRAWLER_STORAGE" in str(refused.value)
