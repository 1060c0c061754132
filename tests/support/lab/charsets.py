"""Odd pages whose text or address is not plain ASCII.

/charset/<name>  a title in that encoding, declared where the name says
/größe           a non-ASCII path, also with a query
/idn             links to an international domain and to non-ASCII paths
"""

from tests.support.lab.markup import article, document
from tests.support.lab.message import Answer, answer_of
from tests.support.lab.visit import NoSuchPage, OddCase, Page, Visit, odd_item

UNICODE_LINK = "/größe?farbe=grün"
IDN_LINK = "http://bücher.example/straße"
GERMAN = "Größe für Übermut, 5 £"
RUSSIAN = "Синий чайник"
MIXED = "Grüße, 茶碗 и чайник"

CHARSETS: dict[str, tuple[str, bool, bool, str]] = {
    "latin-1-header": ("iso-8859-1", True, False, GERMAN),
    "latin-1-meta": ("iso-8859-1", False, True, GERMAN),
    "windows-1251-header": ("windows-1251", True, False, RUSSIAN),
    "windows-1251-meta": ("windows-1251", False, True, RUSSIAN),
    "utf-16-header": ("utf-16", True, False, MIXED),
    "utf-16-mark": ("utf-16", False, False, MIXED),
    "utf-8-undeclared": ("utf-8", False, False, MIXED),
}
"""Name: encoding, whether the header says so, whether the page does, and the item's title."""

CASES = (
    *(OddCase(f"/charset/{name}", title=title) for name, (*_, title) in CHARSETS.items()),
    OddCase(UNICODE_LINK),
    OddCase("/größe"),
    OddCase("/idn", holds_item=False),
)


def charset(visit: Visit) -> Answer:
    """``/charset/<name>``."""
    if visit.part(1) not in CHARSETS:
        raise NoSuchPage(visit.path)
    encoding, in_header, in_page, title = CHARSETS[visit.part(1)]
    page = document(
        title,
        article(odd_item(visit.site.spec.seed, visit.path, title)),
        charset=encoding if in_page else None,
    )
    declared = f"; charset={encoding}" if in_header else ""
    return answer_of(200, page.encode(encoding), f"text/html{declared}")


def unicode_path(visit: Visit) -> Answer:
    """``/größe``, with any query."""
    return visit.item_page()


def idn(visit: Visit) -> Answer:
    """``/idn``."""
    return visit.link_page("Links beyond ASCII", [IDN_LINK, UNICODE_LINK, visit.on(0, "/größe")])


PAGES: dict[str, Page] = {"charset": charset, "größe": unicode_path, "idn": idn}
