"""What a faithful crawl of a lab finds: computed from the spec alone, by what also writes the pages."""

from typing import TypedDict

from tests.support.lab.items import Item
from tests.support.lab.odd import CASES
from tests.support.lab.site import Site
from tests.support.lab.spec import LabSpec
from tests.support.lab.visit import encoded

__all__ = ["Item", "OddTruth", "Truth", "truth_of"]


class OddTruth(TypedDict):
    """What an odd page answers first, and what following, repeating and keeping cookies lead to."""

    first_status: int
    status: int
    final_url: str
    item: Item | None
    robots_allowed: bool


class Truth(TypedDict):
    """URLs as a client requests them, each with its item; ``odd`` holds what ``/odd`` links to."""

    start_url: str
    pages: dict[str, Item]
    odd_index: str
    odd: dict[str, OddTruth]


def truth_of(spec: LabSpec) -> Truth:
    """The truth of a lab; raises ValueError for a spec without a port, which has no URLs."""
    site = Site(spec)
    host = site.odd_host
    return {
        "start_url": site.start_url,
        "pages": {site.url(page): site.item(page) for page in range(spec.pages)},
        "odd_index": site.on(host, "/odd"),
        "odd": {
            site.on(host, encoded(case.path)): {
                "first_status": case.first_status,
                "status": case.status,
                "final_url": site.on(host + case.hosts_further, case.final_path),
                "item": case.item(spec.seed),
                "robots_allowed": case.robots_allowed,
            }
            for case in CASES
        },
    }
