"""A crawl from its first URL to its last item: seed, fetch, follow, store, end."""

from tests.support.commands import UserProject
from tests.support.lab import Lab

pytest_plugins = ("tests.support.lab_project",)


def test_a_crawl_fetches_every_page_once_stores_its_item_and_ends(project: UserProject, lab: Lab) -> None:
    truth = lab.truth()["pages"]
    ended = project.finish("lab", url=lab.url)
    assert "finished" in ended.log
    assert lab.hits() == dict.fromkeys(truth, 1)
    assert {item["url"]: item["title"] for item in project.items()} == {
        url: item["title"] for url, item in truth.items()
    }
    status = project.status()
    assert status["state"] == "finished"
    assert (status["done"], status["waiting"], status["in_flight"], status["dead"]) == (len(truth), 0, 0, 0)


def test_two_workers_share_a_crawl_that_a_pushed_url_starts(project: UserProject, lab: Lab) -> None:
    truth = lab.truth()["pages"]
    workers = project.workers(2, "redis_lab", {"CRAWLER_CLOSE_ON_FINISH": True})
    project.push(lab.url)
    ended = [worker.end() for worker in workers]
    assert [one.code for one in ended] == [0, 0], ended
    assert lab.hits() == dict.fromkeys(truth, 1)
    assert project.ids() == sorted(item["id"] for item in truth.values())
    assert project.status()["state"] == "finished"


def test_what_was_stored_comes_out_again_as_csv(project: UserProject, lab: Lab) -> None:
    where = f"jsonlines:{project.folder}/items"
    project.finish("lab", {"CRAWLER_STORAGE": where}, url=lab.url)
    exported = project.start("crawler.cli", "export", where, "--format", "csv").end()
    header, *rows = exported.out.splitlines()
    assert header == "id,price,title,url"
    assert len(rows) == len(lab.truth()["pages"])
