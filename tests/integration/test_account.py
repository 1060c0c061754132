"""Where every URL is: the account balances after each step, and an audit names what does not."""

import json
from typing import Any

import msgpack
import pytest

from crawler.control.crawls import Crawls
from crawler.frontier.account import Account
from crawler.frontier.plan import Plan
from tests.support.accounts import audit
from tests.support.commands import UserProject
from tests.support.frontier import FleetOnServer, leases, page, redirect, retry
from tests.support.lab import Lab

pytest_plugins = ("tests.support.fleet", "tests.support.lab_project")


def account(fleet: FleetOnServer) -> Account:
    found = audit(fleet.redis, fleet.crawl)
    assert not found.differences
    return found.account


def test_each_way_that_a_url_can_go_is_counted(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    urls = [page(f"http://{host}.test/{n}", band=n % 3) for n in range(4) for host in "abc"]
    worker.settle_plan([*urls, urls[0], redirect("http://r.test/", b"parent")], Plan(tallies={"seeded": 13}))
    assert (account(fleet).seeded, account(fleet).discovered, account(fleet).duplicate) == (13, 0, 1)
    assert (account(fleet).put, account(fleet).waiting) == (12, 12)

    first, second, third, fourth, fifth, sixth, *rest = worker.claim(10)
    assert (account(fleet).waiting, account(fleet).in_flight) == (2, 10)
    plan = Plan(
        done=[first.lease],
        retries=[retry(second), retry(third, 60_000)],
        dead=[(fourth.lease, {"class": "status"})],
        back=[fifth.lease],
        letters=[{"class": "bad_seed"}],
        filtered=[(sixth.lease, "robots"), (rest[0].lease, "robots"), (rest[1].lease, "offsite"), ("1", "late")],
    )
    assert worker.settle_plan([page("http://a.test/new"), urls[1]], plan).stale == ["1"]
    found = account(fleet)
    assert (found.seeded, found.discovered, found.duplicate) == (13, 2, 2)
    assert (found.waiting, found.delayed, found.in_flight, found.done) == (5, 1, 2, 1)
    assert (found.filtered, found.dead) == ({"offsite": 1, "robots": 2}, 1)
    assert audit(fleet.redis, fleet.crawl).letters == 2

    assert worker.leave() == 2
    assert account(fleet).waiting == 7


def test_dead_workers_suspects_and_the_buried_are_counted(fleet: FleetOnServer) -> None:
    fleet.worker("first").put(page("http://a.test/"), page("http://b.test/"))
    for number in range(6):
        worker = fleet.worker(f"w{number}")
        claimed = worker.claim(1)
        found = account(fleet)
        assert found.in_flight == len(claimed)
        assert found.waiting + found.in_flight + found.dead == 2
        fleet.pass_time(30)
        account(fleet)
    assert account(fleet).dead >= 1


def test_replays_and_new_generations_keep_the_balance(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(*(page(f"http://a.test/{n}") for n in range(3)))
    worker.start("take")
    worker.start("done")
    plan = Plan(dead=[(one.lease, {"class": "status", "url": one.body.decode()}) for one in worker.claim()])
    worker.settle_plan([], plan)
    assert (account(fleet).dead, account(fleet).accounted) == (3, 3)
    crawls = Crawls(fleet.redis, fleet.crawl)
    letters = [letter.id for letter in crawls.dead_letters()]
    assert crawls.replay(letters[:2]) == 2
    found = account(fleet)
    assert (found.waiting, found.replayed, found.dead) == (2, 2, 3)
    assert crawls.status().dead == 1
    worker.settle(done=leases(worker.claim()))
    assert worker.finish() == "finished"
    worker.leave()

    again = fleet.worker("again")
    assert account(fleet).as_dict() == Account().as_dict()
    again.put(page("http://a.test/0"))
    assert crawls.replay() == 1
    assert (account(fleet).waiting, account(fleet).replayed, crawls.status().dead) == (2, 1, 0)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda fleet: fleet.redis.lpop(fleet.key("q:a.test:0")), "in the queues of hosts: 4 by count, 3 found (-1)"),
        (lambda fleet: fleet.redis.hincrby(fleet.key("counters"), "done", 1), "that were put: 5 by count, 6 found"),
        (lambda fleet: fleet.redis.delete(fleet.key("lease")), "leases with an expiry: 1 by count, 0 found (-1)"),
        (lambda fleet: fleet.redis.delete(fleet.key("held:w1")), "leases held by workers: 1 by count, 0 found (-1)"),
        (lambda fleet: fleet.redis.delete(fleet.key("inflight")), "URLs that were put: 5 by count, 4 found (-1)"),
    ],
)
def test_what_is_missing_is_named(fleet: FleetOnServer, spoil: Any, says: str) -> None:
    worker = fleet.worker()
    worker.put(*(page(f"http://a.test/{n}") for n in range(5)))
    worker.claim(1)
    kept = {name: fleet.redis.dump(fleet.key(name)) for name in fleet.names()}
    spoil(fleet)
    found = audit(fleet.redis, fleet.crawl)
    assert any(says in str(each) for each in found.differences), found.differences
    for name, content in kept.items():
        fleet.redis.restore(fleet.key(name), 0, content, replace=True)


def test_the_command_shows_both_sides_and_fails_where_they_differ(project: UserProject, lab: Lab) -> None:
    project.finish("redirects", base=lab.base(0), paths="/leaf/1 /leaf/2 /leaf/1")
    shown = project.trawlnet("audit", "redirects")
    assert shown.code == 0
    assert "nothing is missing" in shown.out
    found = project.trawlnet("audit", "redirects", "--json").json()
    assert found["differences"] == []
    assert (found["account"]["seeded"], found["account"]["discovered"], found["account"]["done"]) == (1, 2, 2)
    assert found["account"]["duplicate"] == 1

    counters = f"trawlnet:{{{project.crawl}:0}}:counters"
    project.redis.hincrby(counters, "done", -1)
    wrong = project.trawlnet("audit", "redirects")
    assert wrong.code == 1
    assert "does not fit: URLs that were put: 2 by count, 1 found (-1)" in " ".join(wrong.out.split())
    project.redis.hincrby(counters, "done", 1)


def test_pages_that_rules_keep_out_are_counted_by_rule(project: UserProject, lab: Lab) -> None:
    given = {"ROBOTSTXT_OBEY": "True"}
    project.finish("redirects", given, base=lab.base(0), paths="/private/2 /leaf/3")
    found = project.trawlnet("audit", "redirects", "--json").json()["account"]
    assert (found["done"], found["filtered"]) == (1, {"robots": 1})
    assert json.loads(project.trawlnet("status", "redirects", "--json").out)["filtered"] == 1


def test_an_older_entry_that_waits_without_a_reason_is_shown(fleet: FleetOnServer) -> None:
    fleet.redis.zadd(fleet.key("delayed"), {msgpack.packb(["a.test", "0", "\0\0x"]): fleet.now_ms() + 5000})
    (row,) = Crawls(fleet.redis, fleet.crawl).retries()
    assert (row.host, row.url, row.attempt, row.cause) == ("a.test", "", 0, "")
    fleet.redis.delete(fleet.key("delayed"))
