"""HTML of the lab's pages."""

from collections.abc import Iterable
from html import escape

from tests.support.lab.items import Item

_SENTENCE = "A paragraph that fills the page to its size and says nothing else. "
FILL = f"<p>{(_SENTENCE * 4)[:248]}</p>\n".encode()
"""256 bytes of text, as many times as a page needs."""


def article(item: Item) -> str:
    """An item as it stands on a page."""
    return (
        f'<article data-id="{escape(item["id"])}"><h1>{escape(item["title"])}</h1>'
        f'<span class="price">{item["price"]}</span> <span class="stock">{item["stock"]}</span></article>\n'
    )


def link_list(links: Iterable[str]) -> str:
    """Links, one a line."""
    lines = "".join(f'<li><a href="{escape(link)}">{escape(link)}</a></li>\n' for link in links)
    return f"<ul>\n{lines}</ul>\n"


def document(title: str, content: str, charset: str | None = "utf-8") -> str:
    """A whole page; with a charset, it names it."""
    named = f'<meta charset="{charset}">' if charset else ""
    return (
        f'<!doctype html>\n<html lang="en"><head>{named}<title>{escape(title)}</title></head>\n'
        f"<body>\n{content}</body></html>\n"
    )


def filled(page: str, size: int) -> bytes:
    """The page in UTF-8, filled to exactly this many bytes where it has fewer."""
    body = page.encode()
    paragraphs, spaces = divmod(max(size - len(body), 0), len(FILL))
    head, tail = body[: -len(b"</body></html>\n")], body[-len(b"</body></html>\n") :]
    return head + FILL * paragraphs + b" " * spaces + tail
