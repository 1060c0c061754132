"""A project that is not ours: flat, its modules called as ours are, and nothing added that it did not ask for."""

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest

from tests.support.commands import UserProject
from tests.support.lab import Lab
from tests.support.lab.process import ROOT
from tests.support.waiting import wait_until

pytest_plugins = ("tests.support.lab_project",)

FILES = {
    "scrapy.cfg": "[settings]\ndefault = settings\n",
    "settings.py": """
BOT_NAME = "shop"
SPIDER_MODULES = ["spiders"]
ADDONS = {"crawler.addon.DistributedCrawl": 100}
ITEM_PIPELINES = {"pipelines.UpperCase": 300}
CRAWLER_TARGETS_PRIVATE_ALLOWED = True
""",
    "spiders.py": """
from scrapy import Spider


class BookSpider(Spider):
    name = "books"

    def __init__(self, url="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [url]

    def parse(self, response):
        yield {"id": response.css("article").attrib["data-id"]}
""",
    "pipelines.py": """
from pathlib import Path


class UpperCase:
    def process_item(self, item):
        with Path("seen.txt").open("a") as file:
            file.write(item["id"] + "\\n")
        return {**item, "id": item["id"].upper()}
""",
}


@pytest.fixture
def flat(project: UserProject, tmp_path: Path) -> UserProject:
    """A flat project in a folder of its own; ours is installed beside, or found by PYTHONPATH."""
    folder = tmp_path / "shop"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return UserProject(
        project.redis,
        project.redis_url,
        project.crawl,
        tmp_path,
        module="settings",
        cwd=folder,
        environment={"PYTHONPATH": str(ROOT)},
    )


def told(flat: UserProject) -> list[str]:
    """What the project's own pipeline saw."""
    return (flat.cwd / "seen.txt").read_text().split()


def test_a_flat_project_stores_with_ours_beside_its_own_modules(flat: UserProject, lab: Lab) -> None:
    flat.finish("books", url=f"{lab.base(0)}/leaf/1")
    assert told(flat) == ["leaf/1"]
    assert flat.ids() == ["LEAF/1"]


def test_nothing_is_stored_where_no_storage_is_set(flat: UserProject, lab: Lab) -> None:
    ended = flat.finish("books", {"CRAWLER_STORAGE": ""}, url=f"{lab.base(0)}/leaf/1")
    assert told(flat) == ["leaf/1"]
    assert not Path(flat.storage.removeprefix("sqlite:///")).exists()
    assert {path.name for path in flat.cwd.iterdir() if path.is_file()} == {*FILES, "seen.txt"}
    assert "StoragePipeline" not in ended.log
    assert flat.status()["done"] == 1


def test_its_operator_s_commands_work_in_it(flat: UserProject, lab: Lab) -> None:
    url = f"{lab.base(0)}/leaf/1"
    fed = {"read": 1, "new": 1, "known": 0, "bad": 0, "over_budget": 0}
    assert flat.trawlnet("seed", "books", url, "--json").json() == fed
    flat.finish("books", url=url)
    assert flat.trawlnet("status", "books", "--json").json()["state"] == "finished"
    exported = flat.start("crawler.cli", "export", flat.storage).end()
    assert '"LEAF/1"' in exported.out


def test_nothing_listens_for_what_others_send(flat: UserProject, lab: Lab) -> None:
    url = f"{lab.base(0)}/slow/3"
    worker = flat.worker("books", url=url)
    wait_until(lambda: url in lab.hits(), 60, "the page under way")
    connections = psutil.Process(worker.process.pid).net_connections("tcp")
    assert [one for one in connections if one.status == psutil.CONN_LISTEN] == []
    assert worker.end().code == 0


def test_private_targets_are_refused_where_the_project_does_not_allow_them(flat: UserProject, lab: Lab) -> None:
    settings = flat.cwd / "settings.py"
    settings.write_text(settings.read_text().replace("CRAWLER_TARGETS_PRIVATE_ALLOWED = True", ""))
    flat.finish("books", url=f"{lab.base(0)}/leaf/1")
    assert [letter["class"] for letter in flat.letters()] == ["private_target"]
    assert lab.hits() == {}


WITHOUT_CHECKOUT = """
import os, sys

sys.path[:] = [entry for entry in sys.path if entry not in (os.getcwd(), {root!r})]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
os.environ.pop("SCRAPY_SETTINGS_MODULE")
from scrapy.cmdline import execute

execute()
"""
"""The command ``scrapy`` where Trawlnet was installed from a wheel: scrapy.cfg leads to the project, looked in last."""


OLD_SETUPTOOLS = int(version("setuptools").partition(".")[0]) < 77


@pytest.mark.skipif(OLD_SETUPTOOLS, reason="pyproject.toml asks for a newer setuptools")
def test_an_installed_trawlnet_hides_no_module_of_the_project(flat: UserProject, lab: Lab, tmp_path: Path) -> None:
    source, installed = tmp_path / "source", tmp_path / "installed"
    for name in ("crawler", "pipelines"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "import setuptools.build_meta as b; b.build_wheel('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = (source / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {
        "crawler",
        "trawlnet_pipelines",
    }
    lua = {path.relative_to(ROOT) for path in (ROOT / "crawler").rglob("*.lua")}
    assert {path.relative_to(installed) for path in installed.rglob("*.lua")} == lua
    flat.environment["PYTHONPATH"] = str(installed)
    (flat.cwd / "scrapy_installed.py").write_text(WITHOUT_CHECKOUT.format(root=str(ROOT)))
    crawl = {"REDIS_URL": flat.redis_url, "CRAWLER_CRAWL": flat.crawl, "CRAWLER_STORAGE": flat.storage}
    ended = flat.start("scrapy_installed", "crawl", "books", "-a", f"url={lab.base(0)}/leaf/1", given=crawl).end()
    assert ended.code == 0, ended.log[-3000:]
    assert told(flat) == ["leaf/1"]
    assert flat.ids() == ["LEAF/1"]
