"""All odd pages: their index /odd, the declared cases, and what answers a request for one."""

import json
from base64 import b64encode
from dataclasses import replace

from tests.support.lab import charsets, failures, redirects, sessions, volumes
from tests.support.lab.message import Answer, Request, answer_of
from tests.support.lab.site import Site
from tests.support.lab.visit import NoSuchPage, OddCase, Page, Visit, plain, seconds

CASES: tuple[OddCase, ...] = (
    *redirects.CASES,
    *sessions.CASES,
    *failures.CASES,
    *charsets.CASES,
    *volumes.CASES,
)
"""What the index links to, in this order."""


def index(visit: Visit) -> Answer:
    """``/odd``: links to every case on this host, as they would stand on a page that a person wrote."""
    if len(visit.parts) > 1:
        raise NoSuchPage(visit.path)
    return visit.link_page("Odd pages", (case.path for case in CASES))


def echo(visit: Visit) -> Answer:
    """``/echo``: the request as JSON; the body as text and, exactly, in Base64."""
    request = visit.request
    said = {
        "method": request.method,
        "path": request.target,
        "headers": request.headers,
        "cookies": visit.cookies(),
        "body": request.body.decode("utf-8", "replace"),
        "body_base64": b64encode(request.body).decode(),
    }
    return answer_of(200, json.dumps(said).encode(), "application/json")


def robots(visit: Visit) -> Answer:
    """``/robots.txt``, or what was planned for this hit of it; the last of a plan answers all that follow."""
    host = visit.request.host
    plan = visit.site.robots_plans.get(host, [{}])
    said = plan[min(visit.earlier, len(plan) - 1)]
    if "location" in said:
        return plain(said.get("status", 301), "It is there.", ("Location", said["location"]))
    if said.get("status", 200) != 200:
        return plain(said["status"], "No robots.txt.")
    text = visit.site.robots(host)
    if "comment_bytes" in said:
        text = "# " + "-" * said["comment_bytes"] + "\n" + text
    answer = answer_of(200, text.encode(), "text/plain; charset=utf-8")
    return replace(answer, delay_seconds=said.get("delay_seconds", 0.0))


def sitemap(visit: Visit) -> Answer:
    """``/sitemap.xml``: the ordinary pages of this host."""
    return answer_of(200, visit.site.sitemap(visit.request.host).encode(), "application/xml")


PAGES: dict[str, Page] = {
    "odd": index,
    "echo": echo,
    "robots.txt": robots,
    "sitemap.xml": sitemap,
    **redirects.PAGES,
    **sessions.PAGES,
    **failures.PAGES,
    **charsets.PAGES,
    **volumes.PAGES,
}


def odd_answer(site: Site, request: Request, earlier: int) -> Answer:
    """Answer a request for any but an ordinary page; ``?delay=SECONDS`` makes each of them slow."""
    visit = Visit.of(site, request, earlier)
    try:
        answer = PAGES[visit.parts[0]](visit) if visit.parts[0] in PAGES else _missing(visit)
        delay = visit.query.get("delay")
        return answer if delay is None else replace(answer, delay_seconds=seconds(delay))
    except NoSuchPage:
        return _missing(visit)


def _missing(visit: Visit) -> Answer:
    return plain(404, "No such page.")
