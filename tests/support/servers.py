"""Servers that tests run on, and the check that a test leaves no foreign key in them."""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

from crawler.errors import ConfigError
from crawler.redisdb.embedded import EmbeddedServer, find_server

KINDS = ("valkey", "redis")
"""The embedded server, and a ``redis-server`` of the system: another project, and mostly an older version."""

NAME_OF_A_TEST = re.compile(r"\bt[0-9a-f]{10}\b")
"""How crawls of tests are called, so that keys of a test beside this one are known as such."""


def binary_of(kind: str) -> Path:
    """The server binary of one kind; without one the test is skipped, or fails under CI.

    A second server is not everywhere to be had, so its absence skips under CI too.
    """
    if kind == "valkey":
        try:
            return find_server()
        except ConfigError as error:
            if os.environ.get("CI"):
                pytest.fail(f"CI is set and a server is missing: {error}")
            pytest.skip(str(error))
    path = shutil.which("redis-server")
    if path is None:
        pytest.skip("no redis-server on PATH; install Debian's package redis-server, or the like, to test on it too")
    return Path(path)


@contextmanager
def own_server(
    data_dir: Path, *, kind: str = "valkey", appendonly: bool = True, extra: tuple[str, ...] = ()
) -> Iterator[EmbeddedServer]:
    """A server for one test alone, which may kill it, pause it or fill it."""
    with EmbeddedServer(data_dir, appendonly=appendonly, extra=extra, binary=binary_of(kind)) as server:
        yield server


def crawl_name() -> str:
    """A crawl name that no other test has."""
    return f"t{secrets.token_hex(5)}"


@contextmanager
def no_foreign_keys(url: str, crawl: str, declared: set[str]) -> Iterator[None]:
    """Fails where keys are left that belong neither to the crawl nor to ``declared``; removes those that do.

    The crawl's own keys begin with ``trawlnet:{<crawl>`` or, as start URLs do, with ``<crawl>:``.
    """
    own = (f"trawlnet:{{{crawl}", f"{crawl}:")
    with Redis.from_url(url) as client:
        before = _keys(client)
        yield
        left = _keys(client) - before
        mine = {key for key in left if key.startswith(own) or key in declared}
        if mine:
            client.delete(*mine)
        foreign = sorted(key for key in left - mine if not NAME_OF_A_TEST.search(key))
        assert not foreign, f"keys outside the crawl {crawl!r} were left: {foreign[:10]}"


def _keys(client: Redis) -> set[str]:
    return {key.decode(errors="backslashreplace") for key in client.scan_iter(count=1000)}
