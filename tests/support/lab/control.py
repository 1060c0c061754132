"""What is asked of the lab itself: GET /_lab/hits (or hits?times=1), truth and stats, POST /_lab/reset and mood."""

import json
from urllib.parse import parse_qsl

from tests.support.lab.hits import HitLog
from tests.support.lab.message import Answer, Request, answer_of
from tests.support.lab.moods import Moods
from tests.support.lab.spec import LabSpec
from tests.support.lab.truth import truth_of

PREFIX = "/_lab/"


def control_answer(spec: LabSpec, log: HitLog, moods: Moods, request: Request) -> Answer:
    """Answer as JSON; these requests are not logged."""
    match request.method, request.target.removeprefix(PREFIX):
        case "GET", "hits":
            return _json({"counts": log.counts(spec.port)})
        case "GET", "hits?times=1":
            return _json({"counts": log.counts(spec.port), "times": log.hits()})
        case "GET", "truth":
            return _json(truth_of(spec))
        case "GET", "stats":
            return _json({"hits": len(log.hits()), "hits_per_second": log.rate()})
        case "POST", what if what == "reset" or what.startswith("mood?"):
            return _changed(log, moods, what)
        case _:
            message = "GET hits, hits?times=1, truth, stats, or POST reset or mood"
            return _json({"error": f"{request.method} {request.target} is not one of {message}"}, 404)


def _changed(log: HitLog, moods: Moods, what: str) -> Answer:
    try:
        if what == "reset":
            log.clear()
            moods.clear()
        else:
            moods.set(dict(parse_qsl(what.removeprefix("mood?"))))
    except (KeyError, ValueError) as error:
        return _json({"error": f"{what}: {error!r}; give host, and rate or status, as numbers"}, 400)
    return _json({})


def _json(value: object, status: int = 200) -> Answer:
    return answer_of(status, json.dumps(value).encode(), "application/json")
