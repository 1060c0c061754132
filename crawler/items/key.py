"""The key of an item: the same each time the same page yields the same item, so that storage has it once."""

import json
from hashlib import blake2b
from typing import Any

KEY_BYTES = 16


def page_key(spider: str, page: str) -> str:
    """Key of a page of a spider; hex. Spiders that share a storage each have rows of the same page.

    Args:
        spider: name of the spider.
        page: the page's fingerprint, or the instance of a request with ``dont_filter``.
    """
    return _hash("page", spider, page)


def item_key(spider: str, page: str, position: int) -> str:
    """Key of the item at a position of a page; hex.

    Args:
        spider: name of the spider.
        page: the page's key.
        position: how many items the page yielded before.
    """
    return _hash("position", spider, page, str(position))


def declared_key(spider: str, kind: str, value: Any) -> str:
    """Key of an item that a field of its own identifies, whichever page it was found on; hex.

    Args:
        spider: name of the spider.
        kind: name of the item's class: two kinds of item may count from 1 each.
        value: the field's value as ``jsonable`` keeps it, which is the same in each process; 7 and "7" are two.
    """
    return _hash("field", spider, kind, json.dumps(value, sort_keys=True))


def _hash(*parts: str) -> str:
    state = blake2b(digest_size=KEY_BYTES)
    for part in parts:
        content = part.encode("utf-8", "surrogatepass")
        state.update(len(content).to_bytes(4, "big") + content)
    return state.hexdigest()
