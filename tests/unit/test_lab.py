"""The lab: the same for the same spec, wholly reachable, and true to what it says of itself."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import psutil
import pytest
from scrapy.http import HtmlResponse
from w3lib.url import safe_url_string

from tests.support.lab import Item, Lab, LabFailed, LabSpec, truth_of
from tests.support.lab.process import ROOT
from tests.support.lab.site import Site

SPEC = LabSpec(pages=60, hosts=4, links=8, odd=True, crawl_delay_seconds=0.5)
SHAPES = (
    LabSpec(pages=500, hosts=7, port=8000),
    LabSpec(pages=500, hosts=7, links=1, port=8000),
    LabSpec(pages=501, hosts=7, links=35, seed=9, port=8000),
    LabSpec(pages=500, hosts=7, links=2, same_host=True, port=8000),
    LabSpec(pages=7, hosts=7, same_host=True, port=8000),
    LabSpec(pages=2, hosts=1, port=8000),
    LabSpec(pages=1, hosts=1, port=8000),
)


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    with Lab(SPEC) as lab:
        yield lab


@pytest.fixture
def lab(running: Lab) -> Lab:
    running.reset()
    return running


class Client:
    """Fetches as a browser does: keeps cookies of each host, follows redirects, tries failures again."""

    def __init__(self) -> None:
        self._cookies: dict[str, dict[str, str]] = {}

    def once(self, url: str, method: str = "GET", body: bytes | None = None) -> tuple[HTTPResponse, HtmlResponse]:
        place = urlsplit(url)
        cookies = self._cookies.setdefault(place.netloc, {})
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
        connection = HTTPConnection(place.netloc, timeout=10)
        connection.request(method, place._replace(scheme="", netloc="").geturl(), body, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        name, equals, value = response.getheader("Set-Cookie", "").partition(";")[0].partition("=")
        if equals:
            cookies[name] = value
        page = HtmlResponse(
            url, response.status, body=content, headers={"Content-Type": response.getheader("Content-Type", "")}
        )
        return response, page

    def until_settled(self, url: str) -> HtmlResponse:
        for _ in range(10):
            response, page = self.once(url)
            location = response.getheader("Location")
            if location:
                url = safe_url_string(urljoin(url, location.encode("latin-1").decode()))
            elif response.status not in (429, 500):
                break
        return page


def item_on(page: HtmlResponse) -> Item | None:
    article = page.css("article")
    if not article:
        return None
    return {
        "id": article.attrib["data-id"],
        "title": article.css("h1::text").get(""),
        "price": article.css(".price::text").get(""),
        "stock": article.css(".stock::text").get(""),
    }


def links_on(page: HtmlResponse) -> list[str]:
    return [safe_url_string(page.urljoin(link)) for link in page.css("a::attr(href)").getall()]


def reached(site: Site) -> set[int]:
    found, waiting = {0}, [0]
    while waiting:
        new = set(site.links(waiting.pop())) - found
        found |= new
        waiting += new
    return found


def test_the_same_spec_gives_the_same_site_on_every_machine() -> None:
    spec = LabSpec(pages=50, hosts=3, seed=7, port=8000)
    site = Site(spec)
    pages = [site.body(page) for page in range(spec.pages)] + [json.dumps(truth_of(spec)["pages"]).encode()]
    assert sha256(b"".join(pages)).hexdigest() == "be2b0d21a39410b288999fe999a1e8b3bea643208c1ab656b0266cb140506f8e"


def test_another_seed_is_another_site() -> None:
    one, other = Site(LabSpec(pages=50, port=8000)), Site(LabSpec(pages=50, port=8000, seed=2))
    assert all(one.links(page) != other.links(page) for page in range(50))
    assert one.item(3) != other.item(3)


@pytest.mark.parametrize("spec", SHAPES)
def test_every_page_is_reached_from_the_start(spec: LabSpec) -> None:
    assert reached(Site(spec)) == set(range(spec.pages))


@pytest.mark.parametrize("spec", [spec for spec in SHAPES if not spec.same_host])
def test_a_page_has_as_many_distinct_links_as_asked_for(spec: LabSpec) -> None:
    site = Site(spec)
    for page in range(spec.pages):
        links = site.links(page)
        assert len(set(links) - {page}) == len(links) == min(spec.links, spec.pages - 1)


@pytest.mark.parametrize("spec", [spec for spec in SHAPES if spec.same_host])
def test_same_host_links_stay_on_the_host_of_their_page(spec: LabSpec) -> None:
    site = Site(spec)
    for page in range(1, spec.pages):
        assert {site.host_of(target) for target in site.links(page)} <= {site.host_of(page)}


def test_the_site_is_shallow_enough_for_a_fleet_to_share() -> None:
    site = Site(LabSpec(pages=3000, port=8000))
    level, seen, depth = {0}, {0}, 0
    while level := {target for page in level for target in site.links(page)} - seen:
        seen |= level
        depth += 1
    assert depth <= 7


def test_delays_are_seeded_and_about_their_mean() -> None:
    site = Site(LabSpec(pages=1000, latency_seconds=0.2, port=8000))
    delays = [site.delay_seconds(page) for page in range(1000)]
    assert delays == [site.delay_seconds(page) for page in range(1000)]
    assert min(delays) >= 0.1
    assert max(delays) <= 0.3
    assert sum(delays) / 1000 == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize("size", [5000, 20_000])
def test_a_page_is_filled_to_its_size(size: int) -> None:
    assert len(Site(LabSpec(pages=50, port=8000, page_bytes=size)).body(3)) == size


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"pages": 3}, "--pages"), ({"hosts": 6000}, "--hosts"), ({"links": 0}, "--links"), ({"port": -1}, "--port")],
)
def test_a_spec_out_of_range_names_its_option(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(LabSpec(pages=6000), **wrong)


def test_a_spec_without_a_port_has_no_truth() -> None:
    with pytest.raises(ValueError, match="no port"):
        truth_of(LabSpec())


def test_each_host_has_an_address_of_its_own() -> None:
    spec = LabSpec(pages=5000, hosts=5000)
    assert len({spec.address(host) for host in range(5000)}) == 5000
    assert (spec.address(0), spec.address(250)) == ("127.0.0.1", "127.0.1.1")


def test_the_running_lab_says_what_its_spec_says(lab: Lab) -> None:
    assert lab.truth() == truth_of(lab.spec)
    assert lab.url == lab.truth()["start_url"]


def test_pages_say_what_the_truth_says(lab: Lab) -> None:
    client, truth, waiting = Client(), lab.truth(), [lab.url]
    found: dict[str, Item | None] = {}
    while waiting:
        url = waiting.pop()
        if url not in found:
            _, page = client.once(url)
            found[url] = item_on(page)
            waiting += [link for link in links_on(page) if link != truth["odd_index"]]
    assert found == truth["pages"]
    assert lab.hits() == dict.fromkeys(truth["pages"], 1)


def test_odd_pages_are_linked_from_the_start_and_do_what_the_truth_says(lab: Lab) -> None:
    client, truth = Client(), lab.truth()
    assert truth["odd_index"] in links_on(client.once(lab.url)[1])
    links = links_on(client.once(truth["odd_index"])[1])
    assert links == list(truth["odd"])
    for url, expected in truth["odd"].items():
        lab.reset()
        assert Client().once(url)[0].status == expected["first_status"]
        lab.reset()
        page = Client().until_settled(url)
        assert (page.status, page.url, item_on(page)) == (
            expected["status"],
            expected["final_url"],
            expected["item"],
        )


def test_without_odd_only_pages_are_linked() -> None:
    spec = replace(SPEC, odd=False, port=8000)
    page = HtmlResponse("http://127.0.0.1:8000/p/0", body=Site(spec).body(0))
    assert set(links_on(page)) <= set(truth_of(spec)["pages"])


@pytest.mark.parametrize(
    "path", ["/p/1", "/p/00", "/p/60", "/p/", "/p/x", "/", "/leaf", "/leaf/x", "/flaky", "/calendar/2026/13"]
)
def test_what_does_not_exist_is_404_and_logged(lab: Lab, path: str) -> None:
    assert Client().once(lab.base(0) + path)[0].status == 404
    assert lab.hits() == {lab.base(0) + path: 1}


def test_robots_and_sitemap_are_of_their_host(lab: Lab) -> None:
    robots = Client().once(lab.base(2) + "/robots.txt")[1].text
    assert "Disallow: /private/\nCrawl-delay: 0.5\n" in robots
    sitemap = Client().once(robots.split("Sitemap: ")[1].strip())[1].text
    pages = [url for url in lab.truth()["pages"] if url.startswith(lab.base(2) + "/")]
    assert [line[10:-12] for line in sitemap.splitlines() if "<loc>" in line] == pages


def test_retry_after_is_sent_as_asked_for(lab: Lab) -> None:
    client, url = Client(), lab.base(1) + "/flaky/1?status=429&retry_after=7"
    first, _ = client.once(url)
    assert (first.status, first.getheader("Retry-After")) == (429, "7")
    assert client.once(url)[0].status == 200


def test_members_need_the_login_of_their_host(lab: Lab) -> None:
    client, base = Client(), lab.base(1)
    form = client.once(base + "/login")[1]
    fields = {"user": "reader", "password": "open", "token": form.css("[name=token]").attrib["value"]}
    wrong = urlencode(fields | {"token": "0"}).encode()
    assert client.once(base + "/login", "POST", wrong)[0].status == 403
    assert client.once(base + "/member/3")[0].status == 302
    assert client.once(base + "/login", "POST", urlencode(fields).encode())[0].status == 302
    assert item_on(client.once(base + "/member/3")[1]) is not None
    assert client.once(lab.base(2) + "/member/3")[0].status == 302


def test_echo_says_what_was_sent(lab: Lab) -> None:
    connection = HTTPConnection("127.0.0.1", lab.port, timeout=10)
    connection.request("POST", "/echo?a=%20", b"\xff\x00", {"X-A": "1", "Cookie": "a=b; c=d"})
    said = json.loads(connection.getresponse().read())
    connection.close()
    assert (said["method"], said["path"], said["body_base64"]) == ("POST", "/echo?a=%20", "/wA=")
    assert (said["headers"]["x-a"], said["cookies"]) == ("1", {"a": "b", "c": "d"})


def test_large_pages_have_the_size_that_was_asked_for(lab: Lab) -> None:
    assert len(Client().once(lab.base(0) + "/large/3000000")[1].body) == 3_000_000


def test_the_trap_leads_on(lab: Lab) -> None:
    further, calendar = links_on(Client().once(lab.base(0) + "/trap/41")[1])
    assert further == lab.base(0) + "/trap/42"
    assert links_on(Client().once(calendar)[1]) == [
        lab.base(0) + "/calendar/2025/12",
        lab.base(0) + "/calendar/2026/02",
    ]


def test_a_link_page_has_so_many_leaves(lab: Lab) -> None:
    links = links_on(Client().once(lab.base(3) + "/links/100")[1])
    assert links == [f"{lab.base(3)}/leaf/{i}" for i in range(100)]


def test_pipelined_requests_are_answered_in_order_on_one_connection(lab: Lab) -> None:
    requests = b"".join(
        f"{line} HTTP/1.1\r\nHost: lab\r\n\r\n".encode()
        for line in ("GET /slow/0.05", "HEAD /p/0", "GET /leaf/1?delay=0.05", "GET /p/0")
    )
    with socket.create_connection(("127.0.0.1", lab.port), timeout=10) as connection:
        connection.sendall(requests[:30])
        connection.sendall(requests[30:] + b"GET /p/4 HTTP/1.1\r\nConnection: close\r\n\r\n")
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 5
    titles = [b'data-id="slow/0.05"', b'data-id="leaf/1"', b'data-id="0"', b'data-id="4"']
    places = [received.find(title) for title in titles]
    assert -1 not in places
    assert places == sorted(places)
    assert received.count(b'data-id="0"') == 1
    assert [hit.method for hit in lab.times()] == ["GET", "HEAD", "GET", "GET", "GET"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /p/0 HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
        (b"GET /p/0 HTTP/1.1\r\nA: " + b"x" * 70_000, 431),
    ],
)
def test_what_is_no_request_is_refused_and_not_logged(lab: Lab, sent: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", lab.port), timeout=10) as connection:
        connection.sendall(sent)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert lab.hits() == {}


def test_a_hit_counts_when_it_arrives_though_its_client_is_gone(lab: Lab) -> None:
    with socket.create_connection(("127.0.0.1", lab.port), timeout=10) as connection:
        connection.sendall(b"GET /leaf/1 HTTP/1.1\r\n\r\nGET /slow/600 HTTP/1.1\r\n\r\n")
        connection.recv(1)
    first, second = lab.times()
    assert (first.host, first.method, first.path, first.status) == ("127.0.0.1", "GET", "/leaf/1", 200)
    assert second.path == "/slow/600"
    assert first.at <= second.at
    assert lab.stats()["hits"] == 2


def test_a_lab_that_cannot_listen_fails_at_once(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LabFailed, match="ended with 1"):
        Lab(replace(SPEC, port=lab.port))
    assert f"port {lab.port}" in capfd.readouterr().err


def test_a_lab_ends_with_the_process_that_holds_it() -> None:
    script = "from tests.support.lab import Lab; print(Lab().pid, flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    lab = psutil.Process(int(holder.stdout.readline()))
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    psutil.wait_procs([lab], timeout=10)
    assert not lab.is_running() or lab.status() == psutil.STATUS_ZOMBIE
