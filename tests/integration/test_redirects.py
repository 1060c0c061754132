"""Redirects: they go on under the lease of their page, with its cookies, and mark what they reach as seen."""

import signal

from tests.support.commands import UserProject, paths
from tests.support.lab import Lab

pytest_plugins = ("tests.support.lab_project",)


def by_asked(project: UserProject) -> dict[str, tuple[str, int]]:
    """Where each path that was asked for ended: the item there, and after how many redirects."""
    return {item["asked"]: (item["id"], item.get("times", 0)) for item in project.items()}


def test_chains_over_hosts_end_at_their_target(project: UserProject, lab: Lab) -> None:
    asked = "/redirect/301/1 /redirect/302/3 /redirect/308/2 /redirect/relative"
    project.finish("redirects", base=lab.base(0), paths=asked)
    assert by_asked(project) == {
        "/redirect/301/1": ("redirect/301/0", 1),
        "/redirect/302/3": ("redirect/302/0", 3),
        "/redirect/308/2": ("redirect/308/0", 2),
        "/redirect/relative": ("redirect/landed", 1),
    }
    assert [(hit.host, hit.path) for hit in lab.times() if "302" in hit.path] == [
        ("127.0.0.1", "/redirect/302/3"),
        ("127.0.0.2", "/redirect/302/2"),
        ("127.0.0.3", "/redirect/302/1"),
        ("127.0.0.4", "/redirect/302/0"),
    ]
    assert (project.status()["done"], project.letters()) == (4, [])


def test_a_page_that_redirects_to_itself_after_a_cookie_is_fetched_again_with_it(
    project: UserProject, lab: Lab
) -> None:
    project.finish("redirects", base=lab.base(0), paths="/cookie")
    assert by_asked(project) == {"/cookie": ("cookie", 1)}
    assert paths(lab) == {"/cookie": 2}
    assert project.status()["done"] == 1


def test_a_page_that_redirects_to_itself_for_ever_ends_at_the_limit(project: UserProject, lab: Lab) -> None:
    project.finish("redirects", {"REDIRECT_MAX_TIMES": 3}, base=lab.base(0), paths="/loop /leaf/1")
    assert paths(lab) == {"/loop": 4, "/leaf/1": 1}
    assert {item["asked"] for item in project.items()} == {"/loop", "/leaf/1"}
    assert project.status()["waiting"] == 0


def test_the_target_of_a_redirect_is_seen_from_then_on(project: UserProject, lab: Lab) -> None:
    # The spider asks for the next only when the page before has come: one that is dropped ends the chain.
    project.finish("redirects", base=lab.base(0), paths="/redirect/relative /redirect/landed /leaf/1")
    assert paths(lab) == {"/redirect/relative": 1, "/redirect/landed": 1}
    assert by_asked(project) == {"/redirect/relative": ("redirect/landed", 1)}
    assert project.status()["done"] == 1


def test_a_redirect_to_a_seen_page_is_dropped_and_its_page_is_done(project: UserProject, lab: Lab) -> None:
    ended = project.finish("redirects", base=lab.base(0), paths="/redirect/landed /redirect/relative /leaf/1")
    assert paths(lab) == {"/redirect/landed": 1, "/redirect/relative": 1}
    assert "'dupefilter/filtered': 1" in ended.log
    assert (project.status()["done"], project.letters()) == (2, [])


def test_a_start_url_may_redirect(project: UserProject, lab: Lab) -> None:
    project.finish("lab", url=f"{lab.base(0)}/redirect/302/2")
    assert project.ids() == ["redirect/302/0"]
    assert paths(lab) == {"/redirect/302/2": 1, "/redirect/302/1": 1, "/redirect/302/0": 1}
    assert (project.status()["done"], project.status()["seen"]) == (1, 3)


def trouble(project: UserProject, kind: str) -> dict[str, object]:
    """Settings under which the last hop of a chain fails once before it is sent."""
    return {
        "DOWNLOADER_MIDDLEWARES": '{"tests.support.foreign.TroubleOnce": 1000}',
        "TROUBLE_PATH": "/redirect/302/0",
        "TROUBLE_KIND": kind,
        "TROUBLE_FILE": project.folder / "trouble",
    }


def test_a_target_that_fails_is_tried_again_from_where_it_stands(project: UserProject, lab: Lab) -> None:
    project.finish("redirects", trouble(project, "fail"), base=lab.base(0), paths="/redirect/302/2")
    assert by_asked(project) == {"/redirect/302/2": ("redirect/302/0", 2)}
    assert paths(lab) == {"/redirect/302/2": 1, "/redirect/302/1": 1, "/redirect/302/0": 1}
    assert (project.status()["retried"], project.status()["done"]) == (1, 1)


def test_a_page_whose_worker_is_killed_between_redirects_is_fetched_again_to_its_end(
    project: UserProject, lab: Lab
) -> None:
    settings = trouble(project, "kill")
    assert project.run("redirects", settings, base=lab.base(0), paths="/redirect/302/2").code == -signal.SIGKILL
    assert project.items() == []
    project.finish("redirects", settings, base=lab.base(0), paths="/redirect/302/2")
    # The hops are marked as seen already, by this very page.
    assert by_asked(project) == {"/redirect/302/2": ("redirect/302/0", 2)}
    assert paths(lab) == {"/redirect/302/2": 2, "/redirect/302/1": 2, "/redirect/302/0": 1}
    assert (project.status()["done"], project.letters()) == (1, [])
