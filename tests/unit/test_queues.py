"""Which queue a request waits in, by the scope of the pace."""

import asyncio

import pytest
from scrapy import Request

from crawler.components.queues import OwnSlot, Queues, registered_domain


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.co.uk", "example.co.uk"),
        ("example.com", "example.com"),
        ("a.b.c.example.com", "example.com"),
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
        ("co.uk", "co.uk"),
        ("", ""),
    ],
)
def test_the_registered_domain_of_a_host(host: str, domain: str) -> None:
    assert registered_domain(host) == domain


@pytest.mark.parametrize(("scope", "queue"), [("host", "www.example.com"), ("domain", "example.com")])
def test_a_scope_names_the_queue(scope: str, queue: str) -> None:
    queues = Queues(scope)
    assert queues.of(Request("http://WWW.Example.com:8080/a")) == queue
    assert queues.of(Request("http://www.example.com/", meta={"download_slot": "Mine"})) == "Mine"
    assert queues.of(Request("http://www.example.com/", meta={"download_slot": OwnSlot("other.test")})) == queue


def test_an_address_is_found_once_and_is_the_fleet_s() -> None:
    asked: list[tuple[str, str]] = []

    async def learn(host: str, address: str) -> str:
        asked.append((host, address))
        return "10.0.0.9"

    async def find() -> None:
        queues = Queues("ip")
        request = Request("http://localhost:1/")
        assert queues.of(request) == "localhost"
        assert await queues.find(request, learn) == "10.0.0.9"
        assert await queues.find(request, learn) == queues.of(request) == "10.0.0.9"
        assert len(asked) == 1
        assert asked[0][0] == "localhost"
        gone = Request("http://no-such-name.invalid/")
        assert await queues.find(gone, learn) == "no-such-name.invalid"
        proxied = Request("http://127.0.0.1/", meta={"proxy": "http://127.0.0.1:1"})
        assert await queues.find(proxied, learn) == "127.0.0.1"
        assert len(asked) == 1

    asyncio.run(find())
