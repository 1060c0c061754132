"""What is asked of the lab itself: GET /_lab/hits (or hits?times=1), truth, stats; POST reset, mood and robots.

The body of ``robots`` maps numbers of hosts to lists of answers of their robots.txt (site.py); ``reset`` ends them.
"""

import json
from urllib.parse import parse_qsl

from tests.support.lab.hits import HitLog
from tests.support.lab.message import Answer, Request, answer_of
from tests.support.lab.moods import Moods
from tests.support.lab.site import Site
from tests.support.lab.truth import truth_of

PREFIX = "/_lab/"


def control_answer(site: Site, log: HitLog, moods: Moods, request: Request) -> Answer:
    """Answer as JSON; these requests are not logged."""
    spec = site.spec
    match request.method, request.target.removeprefix(PREFIX):
        case "GET", "hits":
            return _json({"counts": log.counts(spec.port)})
        case "GET", "hits?times=1":
            return _json({"counts": log.counts(spec.port), "times": log.hits()})
        case "GET", "truth":
            return _json(truth_of(spec))
        case "GET", "stats":
            return _json({"hits": len(log.hits()), "hits_per_second": log.rate()})
        case "POST", what if what in {"reset", "robots"} or what.startswith("mood?"):
            return _changed(site, log, moods, what, request.body)
        case _:
            message = "GET hits, hits?times=1, truth, stats, or POST reset, mood or robots"
            return _json({"error": f"{request.method} {request.target} is not one of {message}"}, 404)


def _changed(site: Site, log: HitLog, moods: Moods, what: str, body: bytes) -> Answer:
    try:
        if what == "reset":
            log.clear()
            moods.clear()
            site.robots_plans = {}
        elif what == "robots":
            site.robots_plans = {int(host): plan for host, plan in json.loads(body).items()}
        else:
            moods.set(dict(parse_qsl(what.removeprefix("mood?"))))
    except (KeyError, ValueError) as error:
        return _json({"error": f"{what}: {error!r}; give host, and rate or status, as numbers"}, 400)
    return _json({})


def _json(value: object, status: int = 200) -> Answer:
    return answer_of(status, json.dumps(value).encode(), "application/json")
