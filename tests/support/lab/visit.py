"""One request for an odd page, taken apart, and what odd pages are declared with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl, quote, unquote

from tests.support.lab.items import Item, item_of
from tests.support.lab.markup import article, document, filled, link_list
from tests.support.lab.message import Answer, Request, answer_of
from tests.support.lab.site import Site

DELAY_LIMIT_SECONDS = 3600.0


class NoSuchPage(Exception):
    """The lab has no page for this request; it is answered with 404."""


@dataclass(frozen=True, slots=True)
class OddCase:
    """An odd page that ``/odd`` links to, and what a client comes to that follows, repeats and keeps cookies.

    ``path`` is as it stands in the link. ``first_status`` answers the first request, ``status`` the last, on
    ``ends_at`` (this same page where empty), so many hosts further. ``title`` is the item's where not drawn.
    """

    path: str
    first_status: int = 200
    status: int = 200
    ends_at: str = ""
    hosts_further: int = 0
    holds_item: bool = True
    title: str | None = None
    robots_allowed: bool = True

    @property
    def final_path(self) -> str:
        """Where it ends, percent-encoded."""
        return encoded(self.ends_at or self.path)

    def item(self, seed: int) -> Item | None:
        """The item found in the end."""
        return odd_item(seed, self.final_path, self.title) if self.holds_item else None


@dataclass(frozen=True, slots=True)
class Visit:
    """A request for an odd page: the decoded parts of its path, its query, and earlier hits of its URL."""

    site: Site
    request: Request
    parts: list[str]
    query: dict[str, str]
    earlier: int

    @classmethod
    def of(cls, site: Site, request: Request, earlier: int) -> Self:
        """Take a request apart."""
        path, _, query = request.target.partition("?")
        pairs = dict(parse_qsl(query, keep_blank_values=True))
        return cls(site, request, unquote(path).split("/")[1:], pairs, earlier)

    @property
    def path(self) -> str:
        """The path as it was sent, without its query."""
        return self.request.target.partition("?")[0]

    def part(self, index: int) -> str:
        """A part of the path; raises NoSuchPage where there is none."""
        if index >= len(self.parts):
            raise NoSuchPage(self.path)
        return self.parts[index]

    def number(self, index: int) -> int:
        """A part of the path as a whole number; raises NoSuchPage where it is none."""
        return whole(self.part(index))

    def item_page(self, links: Iterable[str] = (), size: int = 0) -> Answer:
        """A page with this path's item, and links."""
        item = odd_item(self.site.spec.seed, self.path)
        content = article(item) + link_list(links)
        return answer_of(200, filled(document(item["title"], content), size))

    def link_page(self, title: str, links: Iterable[str]) -> Answer:
        """A page of links without an item."""
        return answer_of(200, document(title, link_list(links)).encode())

    def on(self, hosts_further: int, path: str) -> str:
        """A path on the host that comes so many after this one."""
        return self.site.on(self.request.host + hosts_further, path)

    def cookies(self) -> dict[str, str]:
        """The cookies that were sent."""
        pairs = (each.strip().partition("=") for each in self.request.headers.get("cookie", "").split(";"))
        return {name: value for name, _, value in pairs if name}


Page = Callable[[Visit], Answer]
"""What answers a visit, or raises NoSuchPage."""


def encoded(path: str) -> str:
    """A path and query as a client sends them for a link on a page in UTF-8."""
    return quote(path, safe="/?=&%")


def odd_item(seed: int, path: str, title: str | None = None) -> Item:
    """The item of an odd page; its identifier is the decoded path without first slash and query."""
    return item_of(seed, unquote(path.partition("?")[0]).removeprefix("/"), title)


def whole(text: str) -> int:
    """A whole number of at most nine digits; raises NoSuchPage for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise NoSuchPage(text)
    return int(text)


def seconds(text: str) -> float:
    """A delay; raises NoSuchPage where the text is none, or is over an hour."""
    try:
        value = float(text)
    except ValueError as error:
        raise NoSuchPage(text) from error
    if not 0 <= value <= DELAY_LIMIT_SECONDS:
        raise NoSuchPage(text)
    return value


def plain(status: int, text: str, *headers: tuple[str, str]) -> Answer:
    """A short answer in words."""
    return answer_of(status, document(str(status), f"<p>{text}</p>\n").encode(), headers=headers)
