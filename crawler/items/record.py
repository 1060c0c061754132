"""A record: one item as storage keeps it, with where it came from."""

from dataclasses import dataclass
from typing import Any

from itemadapter import ItemAdapter

from crawler.errors import RecordRefused
from crawler.items.key import declared_key, item_key
from crawler.items.values import fields_of, jsonable

_MISSING: tuple[Any, ...] = (None, "", [], {})


@dataclass(frozen=True, slots=True)
class Source:
    """Where an item was found.

    ``page`` is its page's ``page_key``, ``fetch`` the id of the lease of this fetch (a later fetch has a higher one),
    ``position`` how many items the page yielded before it.
    """

    crawl: str
    spider: str
    page: str
    fetch: int
    position: int
    url: str


@dataclass(frozen=True, slots=True)
class Record:
    """One item. ``key`` is hex and the same for the same item; ``data`` is JSON-able; ``stored_at`` in epoch seconds.

    ``page`` is empty where a declared field identifies the item: other pages may hold it too, so that one page's
    new fetch without it must not remove it.
    """

    key: str
    crawl: str
    spider: str
    page: str
    fetch: int
    position: int
    url: str
    type: str
    data: dict[str, Any]
    stored_at: float


def record_of(item: Any, source: Source, *, key_field: str = "", stored_at: float) -> Record:
    """Makes the record of a dict, Scrapy Item, dataclass, attrs or pydantic item.

    Args:
        item: the item.
        source: where it was found.
        key_field: field that identifies the item across pages; empty: it is identified by page and position.
            The item class's own ``key_field`` attribute goes first.
        stored_at: epoch seconds.

    Raises:
        RecordRefused: it is no item, lacks its key field, or holds a value that cannot be kept; names which.
    """
    if not ItemAdapter.is_item(item):
        raise RecordRefused(
            f"a {type(item).__name__} is no item; yield a dict, Item, dataclass, attrs or pydantic object"
        )
    adapter = ItemAdapter(item)
    kind = type(item).__name__
    data = fields_of(adapter)
    page = source.page
    field = getattr(type(item), "key_field", "") or key_field
    if field:
        value = jsonable(adapter.get(field), field)
        if value in _MISSING:
            # All items with an empty key would be one, and the last of them be kept.
            raise RecordRefused(
                f"a {kind} lacks its key field {field!r}; fill it in, or change CRAWLER_STORAGE_KEY_FIELD"
            )
        key, page = declared_key(source.spider, kind, value), ""
    else:
        key = item_key(source.spider, source.page, source.position)
    return Record(
        key,
        source.crawl,
        source.spider,
        page,
        source.fetch,
        source.position,
        source.url,
        kind,
        data,
        stored_at,
    )
