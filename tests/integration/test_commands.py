"""Scrapy's other commands beside the add-on: they fetch by themselves and leave the frontier alone."""

import pytest

from tests.support.commands import UserProject
from tests.support.lab import Lab

pytest_plugins = ("tests.support.lab_project",)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["fetch", "--nolog", "{url}"], 'data-id="leaf/1"'),
        (["--nolog", "fetch", "{url}"], 'data-id="leaf/1"'),
        (["shell", "--nolog", "{url}", "-c", "print(response.css('article').attrib['data-id'])"], "leaf/1"),
        (["parse", "--spider=lab", "--nocolour", "{url}"], "'id': 'leaf/1'"),
        (["check", "lab"], ""),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_that_fetches_by_itself_leaves_no_key(
    project: UserProject, lab: Lab, words: list[str], printed: str
) -> None:
    before = {*project.redis.scan_iter()}
    ended = project.scrapy(*(word.format(url=f"{lab.base(0)}/leaf/1") for word in words))
    assert ended.code == 0, ended.log[-3000:]
    assert printed in ended.out
    assert {*project.redis.scan_iter()} == before
    assert "Traceback" not in ended.log


def test_the_spiders_of_the_project_are_listed(project: UserProject) -> None:
    ended = project.scrapy("list")
    assert {"lab", "redis_lab", "their_rules"} <= set(ended.out.split())
    assert project.keys() == []


def test_they_work_where_redis_does_not_answer(project: UserProject, lab: Lab) -> None:
    nowhere = UserProject(project.redis, "redis://127.0.0.1:1/0", project.crawl, project.folder)
    ended = nowhere.scrapy("fetch", "--nolog", f"{lab.base(0)}/leaf/1")
    assert (ended.code, 'data-id="leaf/1"' in ended.out) == (0, True)


def test_a_spider_with_the_name_of_a_command_is_no_command(project: UserProject, lab: Lab) -> None:
    project.finish("fetch", url=f"{lab.base(0)}/leaf/1")
    assert project.ids() == ["leaf/1"]
    assert project.status()["state"] == "finished"


def test_a_crawl_without_redis_ends_with_one_line_and_its_code(project: UserProject, lab: Lab) -> None:
    gone = {"REDIS_URL": "redis://user:secret@127.0.0.1:1/0", "CRAWLER_REDIS_WAIT_SECONDS": 0.2}
    ended = project.run("lab", gone, url=lab.url)
    assert ended.code == 3
    assert "127.0.0.1:1" in ended.log
    assert "secret" not in ended.log
    assert "Traceback" not in ended.log
    assert lab.hits() == {}
