"""The ordinary pages of a lab: where each is, what it links to, what it holds, how long it takes."""

from typing import TypedDict

from tests.support.lab.draws import draws, fraction
from tests.support.lab.items import Item, item_of
from tests.support.lab.markup import article, document, filled, link_list
from tests.support.lab.spec import LabSpec
from tests.support.lab.tree import ARITY, Tree

ODD_INDEX = "/odd"
TRAP_START = "/trap/0"
PAGE = "/p/"


class RobotsAnswer(TypedDict, total=False):
    """What robots.txt answers in place of its own text: a status, where it leads, how late, and comments so long."""

    status: int
    location: str
    delay_seconds: float
    comment_bytes: int


class Site:
    """Pages 0 to pages-1, page n on host n modulo hosts; links are a spanning tree and random ones beside."""

    def __init__(self, spec: LabSpec) -> None:
        self.spec = spec
        self._groups = spec.hosts if spec.same_host else 1
        self._trees: dict[int, Tree] = {}
        self._bases = [spec.base(host) for host in range(spec.hosts)]
        self.robots_plans: dict[int, list[RobotsAnswer]] = {}

    @property
    def start_url(self) -> str:
        """Page 0, from which all others are reached."""
        return self.url(0)

    @property
    def odd_host(self) -> int:
        """The host whose odd pages are linked: the last one, so that their trouble is not the start's."""
        return self.spec.hosts - 1

    def host_of(self, page: int) -> int:
        """The host that has this page."""
        return page % self.spec.hosts

    def path(self, page: int) -> str:
        """The path of a page on its host."""
        return f"{PAGE}{page}"

    def url(self, page: int) -> str:
        """The address of a page."""
        return f"{self._bases[page % self.spec.hosts]}{PAGE}{page}"

    def on(self, host: int, path: str) -> str:
        """A path on a host, as a URL."""
        return self._bases[host % self.spec.hosts] + path

    def item(self, page: int) -> Item:
        """The item that a page holds."""
        return item_of(self.spec.seed, str(page))

    def links(self, page: int) -> list[int]:
        """Pages that a page links to, without itself, each once."""
        group = page % self._groups
        own = page // self._groups
        size = (self.spec.pages - group + self._groups - 1) // self._groups
        wanted = min(self.spec.links, size - 1)
        chosen = dict.fromkeys(self._tree(size).children(own))
        for draw in draws(self.spec.seed, f"links/{page}", max(wanted - len(chosen), 0)):
            target = draw % size
            while target == own or target in chosen:
                target = (target + 1) % size
            chosen[target] = None
        found = [group + self._groups * target for target in chosen]
        return found + list(range(1, self._groups)) if page == 0 else found

    def body(self, page: int) -> bytes:
        """The HTML of a page, at least ``page_bytes`` long."""
        item = self.item(page)
        links = [self.url(target) for target in self.links(page)]
        if page == 0 and self.spec.odd:
            links.append(self.on(self.odd_host, ODD_INDEX))
        if page == 0 and self.spec.trap:
            links.append(self.on(self.odd_host, TRAP_START))
        return filled(document(item["title"], article(item) + link_list(links)), self.spec.page_bytes)

    def delay_seconds(self, page: int) -> float:
        """How long this page takes, from half to one and a half of the mean."""
        mean = self.spec.latency_seconds
        return mean * (0.5 + fraction(self.spec.seed, f"delay/{page}")) if mean else 0.0

    def robots(self, host: int) -> str:
        """The robots.txt of a host."""
        delay = self.spec.crawl_delay_seconds
        lines = ["User-agent: *", "Disallow: /private/"]
        lines += [f"Crawl-delay: {delay:g}"] if delay else []
        lines.append(f"Sitemap: {self.on(host, '/sitemap.xml')}")
        return "\n".join(lines) + "\n"

    def sitemap(self, host: int) -> str:
        """The sitemap of a host's pages."""
        places = "".join(
            f"<url><loc>{self.url(page)}</loc></url>\n" for page in range(host, self.spec.pages, self.spec.hosts)
        )
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{places}</urlset>\n'
        )

    def _tree(self, size: int) -> Tree:
        if size not in self._trees:
            self._trees[size] = Tree(size, min(ARITY, self.spec.links), self.spec.seed)
        return self._trees[size]
