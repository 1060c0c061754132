"""New tries wait in the frontier: they hold no slot, outlive their worker, and can be seen."""

import json
import signal

import pytest

from tests.support.commands import UserProject, paths
from tests.support.lab import Lab
from tests.support.waiting import wait_until

pytest_plugins = ("tests.support.lab_project",)

PATIENT = {"CRAWLER_RETRY": '{"*": {"base": 3600}}'}


def plan_of(project: UserProject, lab: Lab, *paths: str) -> str:
    file = project.folder / "plan.json"
    file.write_text(json.dumps([lab.base(0) + path if path.startswith("/") else path for path in paths]))
    return str(file)


def test_waits_grow_and_hold_up_no_other_page(project: UserProject, lab: Lab) -> None:
    others = [f"/leaf/{number}" for number in range(20)]
    project.finish("listed", {"CONCURRENT_REQUESTS": 1}, plan=plan_of(project, lab, "/flaky/2", *others))
    tries = [hit.at for hit in lab.times() if hit.path == "/flaky/2"]
    assert len(tries) == 3
    # One second, then two, each a quarter longer or shorter.
    assert tries[1] - tries[0] > 0.75
    assert tries[2] - tries[1] > 1.5
    assert max(hit.at for hit in lab.times() if hit.path != "/flaky/2") < tries[2]
    assert len(paths(lab)) == 21


@pytest.mark.parametrize(
    ("spider", "cause", "detail"),
    [("redirects", "status", "status 500"), ("own_retry", "status", "status 500")],
)
def test_what_waits_is_seen_and_outlives_its_worker(
    project: UserProject, lab: Lab, spider: str, cause: str, detail: str
) -> None:
    given = PATIENT if spider == "redirects" else {**PATIENT, "RETRY_ENABLED": "False"}
    arguments = {"paths": "/flaky/2"} if spider == "redirects" else {}
    worker = project.worker(spider, given, base=lab.base(0), **arguments)
    wait_until(lambda: project.status()["delayed"] == 1, 60, "the new try to wait")
    (row,) = project.trawlnet("retries", spider, "--json").json()
    assert (row["url"], row["host"], row["attempt"], row["cause"]) == (f"{lab.base(0)}/flaky/2", "127.0.0.1", 1, cause)
    assert detail in row["detail"]
    if spider == "redirects":
        assert 2000 < row["due_seconds"] <= 4500
    assert "flaky/2" in project.trawlnet("retries", spider).out
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()

    # It still waits for the next worker, which does not fetch it before its time.
    other = project.worker(spider, given, base=lab.base(0), **arguments)
    wait_until(lambda: "joined generation" in other.log(), 60, "another worker")
    (later,) = project.trawlnet("retries", spider, "--json").json()
    assert later["due_seconds"] <= row["due_seconds"]
    assert paths(lab) == {"/flaky/2": 1}


def test_causes_are_counted(project: UserProject, lab: Lab) -> None:
    given = {"CRAWLER_RETRY": '{"*": 0}', "DOWNLOAD_TIMEOUT": 1, "RETRY_TIMES": 1}
    ended = project.finish("listed", given, plan=plan_of(project, lab, "/flaky/1", "/slow/3", "http://127.0.0.1:1/"))
    for cause in ("status", "timeout", "connection"):
        assert f"'frontier/retries/{cause}': 1" in ended.log


def test_a_rule_that_cannot_be_used_stops_the_start(project: UserProject, lab: Lab) -> None:
    ended = project.run("redirects", {"CRAWLER_RETRY": '{"timout": 5}'}, base=lab.base(0))
    assert ended.code == 2
    assert "CRAWLER_RETRY has 'timout', which is no cause; they are * connection dns timeout" in ended.log
    assert "Traceback" not in ended.log
    assert lab.hits() == {}


def test_nothing_waits(project: UserProject, lab: Lab) -> None:
    assert project.trawlnet("retries", "redirects").out.strip() == "no new tries wait"
