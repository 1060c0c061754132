"""Whose fingerprints and filters decide what is seen: Scrapy's, the user's, or those of scrapy-redis."""

import re

import pytest
from scrapy import Request
from scrapy_redis.dupefilter import RFPDupeFilter

from crawler.components.fingerprint import ScrapyRedisFingerprinter
from crawler.control.crawls import Crawls
from crawler.control.migrate import Migration, OldCrawl
from crawler.frontier.store import SeenSpec
from tests.support.commands import UserProject, paths
from tests.support.lab import Lab

pytest_plugins = ("tests.support.lab_project",)

THEIR_FINGERPRINTS = {"REQUEST_FINGERPRINTER_CLASS": "crawler.components.fingerprint.ScrapyRedisFingerprinter"}
REQUESTS = [
    Request("http://shop.test/b?y=2&x=1#part"),
    Request("http://shop.test/", method="POST", body=b"\xff\x00"),
    Request("http://shop.test/ä?q=ö", headers={"Accept-Language": "de"}),
]


# Scrapy's, and the user's.


def test_a_language_makes_no_other_page_unless_the_user_s_fingerprinter_says_so(project: UserProject, lab: Lab) -> None:
    project.finish("languages", base=lab.base(0))
    assert paths(lab) == {"/echo": 1}
    own = {"REQUEST_FINGERPRINTER_CLASS": "tests.support.foreign.LanguageFingerprinter"}
    clash = project.run("languages", own, base=lab.base(0))
    assert clash.code == 2
    assert "has fingerprinter 'scrapy.utils.request.RequestFingerprinter', this process has" in clash.log
    project.trawlnet("purge", "languages")
    lab.reset()
    (project.folder / "items.db").unlink()
    project.finish("languages", own, base=lab.base(0))
    assert paths(lab) == {"/echo": 2}
    assert project.ids() == ["de", "fr"]


def test_a_user_s_own_filter_is_asked_too(project: UserProject, lab: Lab) -> None:
    project.finish("rules", {"DUPEFILTER_CLASS": "tests.support.foreign.NoThirdLeaf"}, base=lab.base(0))
    assert project.ids() == ["leaf/0", "leaf/1"]


def test_the_shared_filter_alone_works_under_scrapy_s_own_scheduler(project: UserProject, lab: Lab) -> None:
    alone = {"ADDONS": "{}", "DUPEFILTER_CLASS": "crawler.components.dupefilter.SeenDupeFilter"}
    project.finish("lab", alone, url=lab.url)
    # As in Scrapy the start URL is neither filtered nor recorded, so that it is fetched again where it is linked.
    once = dict.fromkeys(lab.truth()["pages"], 1)
    assert lab.hits() == {**once, lab.url: 2}
    project.finish("lab", alone, url=lab.url)
    assert lab.hits() == {**once, lab.url: 3}
    assert project.status()["state"] == "absent"


@pytest.mark.parametrize("kind", ["bloom", "exact"])
def test_redis_is_asked_at_most_once_a_page(project: UserProject, lab: Lab, kind: str) -> None:
    project.redis.config_resetstat()
    project.finish("lab", {"CRAWLER_SEEN": kind}, url=lab.url)
    calls = project.redis.info("commandstats")
    scripts = sum(stats["calls"] for name, stats in calls.items() if re.match(r"cmdstat_evalsha|cmdstat_eval$", name))
    pages = len(lab.truth()["pages"])
    assert pages == len(lab.hits())
    assert scripts <= pages, calls


# Those of scrapy-redis.


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.url)
def test_their_fingerprint_is_computed_as_they_do(request_: Request) -> None:
    theirs = RFPDupeFilter(server=None, key="").request_fingerprint(request_)
    assert ScrapyRedisFingerprinter().fingerprint(request_).hex() == theirs


def fill_their_filter(project: UserProject, key: str, lab: Lab) -> set[str]:
    """Has scrapy-redis's own filter see all pages but the start; these pages."""
    theirs = RFPDupeFilter(project.redis, key)
    pages = set(lab.truth()["pages"]) - {lab.url}
    assert not any(theirs.request_seen(Request(url)) for url in sorted(pages))
    return pages


def test_nothing_is_fetched_again_after_a_migration(project: UserProject, lab: Lab, declared_keys: set[str]) -> None:
    declared_keys.add("lab:dupefilter")
    pages = fill_their_filter(project, "lab:dupefilter", lab)
    given = [f"-s{name}={value}" for name, value in THEIR_FINGERPRINTS.items()]
    migrated = project.trawlnet("migrate", "lab", "--json", *given)
    assert migrated.json() == {"read": len(pages), "new": len(pages), "foreign": 0}
    assert project.redis.scard("lab:dupefilter") == len(pages)
    project.finish("lab", THEIR_FINGERPRINTS, url=lab.url)
    assert lab.hits() == {lab.url: 1}
    assert project.status()["seen"] == len(pages) + 1


def test_a_worker_with_other_fingerprints_is_refused_after_a_migration(
    project: UserProject, lab: Lab, declared_keys: set[str]
) -> None:
    declared_keys.add("lab:dupefilter")
    fill_their_filter(project, "lab:dupefilter", lab)
    refused = project.trawlnet("migrate", "lab")
    assert refused.code == 2
    assert "ScrapyRedisFingerprinter" in refused.log
    assert project.status()["state"] == "absent"
    given = [f"-s{name}={value}" for name, value in THEIR_FINGERPRINTS.items()]
    assert project.trawlnet("migrate", "lab", "--delete", *given).code == 0
    assert not project.redis.exists("lab:dupefilter")
    ended = project.run("lab", url=lab.url)
    assert ended.code == 2
    assert "has fingerprinter 'crawler.components.fingerprint.ScrapyRedisFingerprinter'" in ended.log
    assert lab.hits() == {}


def test_a_migration_waits_for_requests_that_scrapy_redis_has_not_fetched(
    project: UserProject, lab: Lab, declared_keys: set[str]
) -> None:
    declared_keys.update({"lab:dupefilter", "lab:requests"})
    fill_their_filter(project, "lab:dupefilter", lab)
    project.redis.zadd("lab:requests", {b"a pickle": 0})
    given = [f"-s{name}={value}" for name, value in THEIR_FINGERPRINTS.items()]
    refused = project.trawlnet("migrate", "lab", *given)
    assert refused.code == 2
    assert "'lab:requests' (zset) holds requests that scrapy-redis has not fetched" in refused.log
    assert project.keys() == []


class Interrupted(Exception):
    """Stands for what kills a migration."""


class BreaksAfter:
    """A client that works for so many scripts."""

    def __init__(self, client: object, calls: int) -> None:
        self._client = client
        self._left = calls

    def __getattr__(self, name: str) -> object:
        if name == "execute_command":
            self._left -= 1
            if self._left < 0:
                raise Interrupted
        return getattr(self._client, name)


def test_a_migration_that_was_interrupted_goes_on_when_it_is_run_again(project: UserProject) -> None:
    key = f"{project.crawl}:dupefilter"
    theirs = RFPDupeFilter(project.redis, key)
    for number in range(2000):
        theirs.request_seen(Request(f"http://shop.test/{number}"))
    project.redis.sadd(key, "no fingerprint", "zz" * 20)
    old, identity = OldCrawl(key, f"{project.crawl}:requests"), {"fingerprinter": "f"}
    broken = BreaksAfter(project.redis, 6)
    with pytest.raises(Interrupted):
        Migration(broken, project.crawl, SeenSpec(), identity).run(old, delete=True)  # type: ignore[arg-type]
    done = project.status()["seen"]
    assert 0 < done < 2000
    again = Crawls(project.redis, project.crawl).migration(SeenSpec(), identity).run(old, delete=True)
    assert (again.read, again.foreign) == (2002, 2)
    # A Bloom filter may take one or the other for seen.
    assert 2000 - done - 2 <= again.new <= 2000 - done
    assert not project.redis.exists(key)
    assert project.status()["masters"] == 0
    assert not project.redis.exists(f"trawlnet:{{{project.crawl}:0}}:feeders")
