"""Budgets: as many URLs as they say are accepted, whoever puts them and whatever is put again."""

from dataclasses import replace

import pytest

from crawler.control.crawls import Crawls
from crawler.frontier.plan import Budget, Put
from tests.support.frontier import FleetOnServer, Member, bodies, leases, page, redirect, unfiltered

pytest_plugins = ("tests.support.fleet",)
both = pytest.mark.usefixtures("each_server")

THREE = Budget("a.test", 3, 3)


def budgeted(number: int, *budgets: Budget, low_band: int = 0) -> Put:
    return replace(page(f"http://a.test/{number}"), budgets=budgets or (THREE,), low_band=low_band)


def spent(fleet: FleetOnServer) -> dict[str, int]:
    return {name.decode(): int(count) for name, count in fleet.redis.hgetall(fleet.key("spent")).items()}


@both
def test_no_more_are_accepted_than_the_budget_has(fleet: FleetOnServer) -> None:
    one, two = fleet.worker("one"), fleet.worker("two")
    assert one.put(budgeted(1), budgeted(1), budgeted(2)) == "101"
    assert two.put(budgeted(2), budgeted(3), budgeted(4), page("http://b.test/")) == "0121"
    assert sorted(bodies(one.claim())) == ["http://a.test/1", "http://a.test/2", "http://a.test/3", "http://b.test/"]
    assert fleet.counters()["over_budget"] == 1
    assert spent(fleet) == {"a.test": 3}


def test_what_is_over_a_budget_is_not_seen(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    assert worker.put(*(budgeted(number) for number in range(5))) == "11122"
    assert worker.put(budgeted(3, Budget("a.test", 5, 5)), budgeted(4, Budget("a.test", 5, 5))) == "11"


def test_a_batch_that_is_sent_again_counts_once(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    assert worker.put(budgeted(1), budgeted(2)) == "11"
    worker.resend(1)
    assert spent(fleet) == {"a.test": 2}
    worker.open()
    assert worker.put(budgeted(1), budgeted(2)) == "00"
    assert spent(fleet) == {"a.test": 2}


def test_every_budget_of_a_url_must_allow_it(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    news = Budget("a.test/news/", 1, 1)
    assert worker.put(budgeted(1, THREE, news), budgeted(2, THREE, news), budgeted(3, THREE)) == "121"
    assert spent(fleet) == {"a.test": 2, "a.test/news/": 1}


def test_redirect_targets_count_in_no_budget(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    assert worker.put(replace(redirect("http://a.test/1", b"page"), budgets=(Budget("a.test", 0, 0),))) == "1"
    assert spent(fleet) == {}


def test_unfiltered_requests_count_each(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    puts = [replace(unfiltered("http://a.test/1", occurrence), budgets=(THREE,)) for occurrence in range(5)]
    assert worker.put(*puts) == "11122"


def test_past_its_soft_part_a_budget_puts_urls_last(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    soft = Budget("calendar:x", 4, 2)
    assert worker.put(*(budgeted(number, soft, low_band=-1000) for number in range(5))) == "11112"
    worker.put(page("http://a.test/last"))
    assert bodies(worker.claim()) == [f"http://a.test/{name}" for name in (0, 1, "last", 2, 3)]


@both
def test_a_new_run_has_new_budgets(fleet: FleetOnServer) -> None:
    worker = fleet.worker()
    worker.put(*(budgeted(number) for number in range(4)))
    worker.settle(done=leases(worker.claim()))
    worker.start("take")
    worker.start("done")
    assert worker.finish() == "finished"
    worker.leave()
    again = fleet.worker("again")
    assert spent(fleet) == {}
    assert again.put(budgeted(3)) == "1"


def test_the_status_tells_what_was_left_out(fleet: FleetOnServer) -> None:
    worker: Member = fleet.worker()
    worker.put(*(budgeted(number) for number in range(5)))
    status = Crawls(fleet.redis, fleet.partition.crawl).status()
    assert (status.over_budget, status.trapped) == (2, 0)
