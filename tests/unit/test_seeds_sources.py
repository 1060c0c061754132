"""Files, streams and sitemaps give their seeds one by one, and damage is told instead of passed over."""

import gzip
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import psutil
import pytest

from crawler.errors import BadSeed
from crawler.seeds.parse import MAX_SEED_BYTES, parse_seed
from crawler.seeds.sitemap import SitemapLimits, SitemapReader
from crawler.seeds.sources import seeds_in_file, seeds_in_stream

ROOT = "https://a.example/sitemap.xml"
NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
LINES = b'\xef\xbb\xbf# comment\r\nhttps://a.example/1\r\n\n  {"url": "https://a.example/2"} \nhttps://a.example/3'
SEEDS = [(2, b"https://a.example/1"), (4, b'{"url": "https://a.example/2"}'), (5, b"https://a.example/3")]


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_lines_of_a_file(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "seeds"
    path.write_bytes(compress(LINES))
    assert list(seeds_in_file(path)) == SEEDS


@pytest.mark.parametrize("content", [b"", b"\n", b"#"])
def test_a_stream_without_seeds(content: bytes) -> None:
    assert list(seeds_in_stream(io.BytesIO(content))) == []


def test_a_seed_is_given_as_soon_as_its_line_is_there() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb") as stream, open(writer, "wb", buffering=0) as feed:
        seeds = seeds_in_stream(stream)
        for number in (1, 2):
            feed.write(b"https://a.example/%d\n" % number)
            assert next(seeds) == (number, b"https://a.example/%d" % number)


def test_an_endless_line_is_cut_to_what_is_refused_and_the_next_is_read() -> None:
    long, after = list(seeds_in_stream(io.BytesIO(b"a" * (3 * MAX_SEED_BYTES) + b"\nhttps://a.example/")))
    assert after == (2, b"https://a.example/")
    with pytest.raises(BadSeed, match="keep large data"):
        parse_seed(long[1])


@pytest.mark.parametrize("damage", [lambda body: body[:-20], lambda body: body[:40] + b"\xff\xff" + body[42:]])
def test_a_damaged_archive_is_told_after_what_was_readable(damage: Callable[[bytes], bytes]) -> None:
    lines = b"".join(b"https://a.example/%d\n" % number for number in range(9000))
    seen: list[int] = []
    with pytest.raises(BadSeed, match="list is damaged after line"):
        seen.extend(number for number, _ in seeds_in_stream(io.BytesIO(damage(gzip.compress(lines))), "list"))
    assert seen == list(range(1, len(seen) + 1))


class Web:
    """Sitemaps by URL, what was fetched of them, and what the reader refused."""

    def __init__(self, **pages: str | bytes) -> None:
        self.pages = {f"https://a.example/{name}.xml": body for name, body in pages.items()}
        self.fetched: list[str] = []
        self.refused: list[str] = []

    def open(self, url: str) -> IO[bytes]:
        self.fetched.append(url)
        if url not in self.pages:
            raise OSError("404 Not Found")
        body = self.pages[url]
        return io.BytesIO(body.encode() if isinstance(body, str) else body)

    def seeds(self, limits: SitemapLimits | None = None) -> list[str]:
        reader = SitemapReader(self.open, lambda error: self.refused.append(str(error)), limits or SitemapLimits())
        found = list(reader.seeds(ROOT))
        assert [number for number, _ in found] == list(range(1, len(found) + 1))
        return [raw.decode() for _, raw in found]


def urlset(*locations: str, namespace: str = NAMESPACE) -> str:
    inner = "".join(f"<url><loc>{location}</loc><lastmod>2026</lastmod></url>" for location in locations)
    return f'<?xml version="1.0" encoding="UTF-8"?><urlset {namespace}>{inner}</urlset>'


def index(*locations: str) -> str:
    inner = "".join(f"<sitemap><loc>{location}</loc></sitemap>" for location in locations)
    return f"<sitemapindex {NAMESPACE}>{inner}</sitemapindex>"


@pytest.mark.parametrize("namespace", [NAMESPACE, "", 'xmlns="urn:other"'])
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_urls_of_a_sitemap(namespace: str, compress: Callable[[bytes], bytes]) -> None:
    body = urlset("\n https://a.example/1?a=1&amp;b=2 ", "<![CDATA[https://a.example/ä]]>", "/3", namespace=namespace)
    web = Web(sitemap=compress(body.encode()))
    assert web.seeds() == ["https://a.example/1?a=1&b=2", "https://a.example/ä", "https://a.example/3"]
    assert web.refused == []


def test_locations_of_images_are_no_pages() -> None:
    web = Web(
        sitemap=f'<urlset {NAMESPACE} xmlns:i="urn:i"><url><i:image><i:loc>https://a.example/i.png</i:loc></i:image>'
        "<loc>https://a.example/1</loc></url></urlset>"
    )
    assert web.seeds() == ["https://a.example/1"]


def test_a_sitemap_of_text_lines() -> None:
    assert Web(sitemap="\ufeffhttps://a.example/1\nhttps://a.example/2\n").seeds() == [
        "https://a.example/1",
        "https://a.example/2",
    ]


def test_indexes_are_followed_once_and_a_missing_part_is_told() -> None:
    web = Web(
        sitemap=index("https://a.example/one.xml", "/gone.xml", "/one.xml", "/sitemap.xml", "two.xml"),
        one=urlset("https://a.example/1"),
        two=urlset("https://a.example/2"),
    )
    assert web.seeds() == ["https://a.example/1", "https://a.example/2"]
    assert [url.rpartition("/")[2] for url in web.fetched] == [
        "sitemap.xml",
        "one.xml",
        "gone.xml",
        "two.xml",
    ]
    (refused,) = web.refused
    assert "https://a.example/gone.xml ends after 0 locations: 404 Not Found" in refused


def test_depth_number_and_size_are_bounded() -> None:
    web = Web(sitemap=index("b.xml"), b=index("c.xml"), c=index("d.xml"), d=urlset("https://a.example/1"))
    assert web.seeds() == []
    assert "3 indexes deep" in web.refused[0]
    wide = Web(sitemap=index(*(f"{n}.xml" for n in range(9))))
    wide.seeds(SitemapLimits(sitemaps=4))
    assert len(wide.fetched) == 4
    large = Web(sitemap=gzip.compress(urlset(*(f"https://a.example/{n}" for n in range(9000))).encode()))
    found = large.seeds(SitemapLimits(bytes_each=100_000))
    assert 1000 < len(found) < 2000
    assert f"ends after {len(found)} locations: got more than 100000 bytes" in large.refused[0]


def test_files_of_this_machine_are_not_read_through_a_sitemap() -> None:
    web = Web(sitemap=index("file:///etc/passwd"))
    assert web.seeds() == []
    assert web.fetched == [ROOT]
    assert "is not on the web" in web.refused[0]


@pytest.mark.parametrize(
    "declared",
    [
        '<!ENTITY e SYSTEM "file:///etc/hostname">',
        '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY e "&b;&b;&b;">',
    ],
)
def test_entities_are_not_expanded(declared: str) -> None:
    web = Web(
        sitemap=f"<!DOCTYPE urlset [{declared}]>"
        + urlset("https://a.example/&e;", "https://a.example/2").split("?>")[1]
    )
    assert web.seeds() == ["https://a.example/2"]
    assert "a <loc> that is no text" in web.refused[0]


def test_entities_in_attributes_cannot_grow() -> None:
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    web = Web(sitemap=f'<!DOCTYPE urlset [<!ENTITY e0 "aaaaaaaaaa">{levels}]><urlset a="&e11;"><url/></urlset>')
    assert web.seeds() == []
    assert web.refused


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html><p>Not found",
        urlset("https://a.example/1", "https://a.example/2")[:-40],
        urlset("https://a.example/1", "https://a.example/2?a=1&b=2"),
        gzip.compress(urlset(*(f"https://a.example/{n}" for n in range(99))).encode())[:-30],
    ],
)
def test_a_broken_sitemap_gives_no_half_urls_and_is_told(body: str | bytes) -> None:
    web = Web(sitemap=body)
    found = web.seeds()
    assert set(found) <= {f"https://a.example/{n}" for n in range(99)}
    if body:
        assert f"ends after {len(found)} locations" in web.refused[0]


class Endless(io.RawIOBase):
    """A sitemap of 50,000 pages that is made as it is read."""

    def __init__(self) -> None:
        self.parts = self.made()
        self.rest = b""

    def made(self) -> Iterator[bytes]:
        yield urlset().removesuffix("</urlset>").encode()
        for number in range(50_000):
            yield b"<url><loc>https://a.example/%d</loc><x><y>%s</y></x></url>\n<!-- c -->" % (
                number,
                b"z" * 50,
            )
        yield b"</urlset>"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.rest = self.rest or next(self.parts, b"")
        given = self.rest[: len(buffer)]
        self.rest = self.rest[len(given) :]
        buffer[: len(given)] = given
        return len(given)


def test_memory_stays_flat() -> None:
    refused: list[BadSeed] = []
    process = psutil.Process()
    reader = SitemapReader(lambda url: cast("IO[bytes]", io.BufferedReader(Endless())), refused.append)
    seeds = reader.seeds(ROOT)
    for _ in range(1000):
        next(seeds)
    before = process.memory_info().rss
    highest = max(process.memory_info().rss for number, _ in seeds if number % 1000 == 0)
    assert refused == []
    assert highest - before < 8 << 20
