"""A worker that cannot use its Redis says so at the start in one line, never shows a password, and ends with a code."""

import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

from crawler.redisdb.embedded import EmbeddedServer
from tests.support.lab import Lab, LabSpec
from tests.support.labcrawl import ROOT, lab_crawl
from tests.support.servers import own_server

PASSWORD = "opensesame"  # noqa: S105 - of no server but the test's own
WAIT_SECONDS = 1.0
LONG_WAIT_SECONDS = 300.0
RUN_SECONDS = 60.0
SOCKET = 'REDIS_PARAMS={"socket_timeout": 300}'
"""A run must end long before its socket gives up, or the long wait is over."""


def _run(redis_url: str, wait_seconds: float) -> tuple[int, str]:
    settings = [f"REDIS_URL={redis_url}", f"CRAWLER_REDIS_WAIT_SECONDS={wait_seconds}", "CRAWLER_STORAGE=", SOCKET]
    given = [part for setting in settings for part in ("-s", setting)]
    ran = subprocess.run(
        [sys.executable, "-m", "scrapy", "crawl", "lab", *given],
        cwd=ROOT,
        env={**os.environ, "SCRAPY_SETTINGS_MODULE": "tests.support.lab_settings"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def _only_error(output: str) -> str:
    assert "Traceback" not in output, output
    (line,) = (line for line in output.splitlines() if " ERROR: " in line or " CRITICAL: " in line)
    return line


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize(("kind", "cause"), [("closed", "Error "), ("silent", "no answer; start it")])
def test_an_unreachable_server_is_named_in_one_line_after_the_wait(
    kind: str, cause: str, closed_port: int, silent_port: int
) -> None:
    port = closed_port if kind == "closed" else silent_port
    code, output = _run(f"redis://crawler:{PASSWORD}@127.0.0.1:{port}/0", WAIT_SECONDS)
    assert code == 3, output
    assert f"Redis at 127.0.0.1:{port}/0 cannot be used after 1 s: {cause}" in _only_error(output)
    assert PASSWORD not in output


def test_a_wrong_password_is_told_at_once(tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        with Redis.from_url(server.url) as client:
            client.config_set("requirepass", "another")
        code, output = _run(f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0", LONG_WAIT_SECONDS)
    assert code == 3, output
    assert f"Redis at 127.0.0.1:{server.port}/0 refuses its use: invalid username-password" in _only_error(output)
    assert PASSWORD not in output


class _OldServer(socketserver.StreamRequestHandler):
    """Answers as Redis 6.0.16 does, as far as a client asks before it knows the version."""

    INFO = b"# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\n"

    def handle(self) -> None:
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2].upper())
            if words[0] == b"INFO":
                self.wfile.write(b"$%d\r\n%s\r\n" % (len(self.INFO), self.INFO))
            elif words[0] == b"HELLO":
                fields = [b"server", b"redis", b"version", b"6.0.16", b"proto", b"3"]
                self.wfile.write(b"%%%d\r\n" % (len(fields) // 2) + b"".join(b"+%s\r\n" % field for field in fields))
            else:
                self.wfile.write(b"+OK\r\n")


@contextmanager
def _old_server() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _OldServer) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_is_too_old_is_refused() -> None:
    with _old_server() as port:
        code, output = _run(f"redis://127.0.0.1:{port}/0", LONG_WAIT_SECONDS)
    assert code == 1, output
    assert f"127.0.0.1:{port}/0 is Redis 6.0.16; Trawlnet needs Redis 6.2 or newer" in _only_error(output)


def test_a_server_that_evicts_is_warned_about_and_used(tmp_path: Path) -> None:
    with Lab(LabSpec(pages=6, hosts=2, links=2)) as lab, lab_crawl(lab, tmp_path) as crawl:
        _set_policy(crawl.server, "allkeys-lru")
        crawl.start()
        assert crawl.wait() == [0]
        (line,) = (line for line in crawl.log(0).splitlines() if " WARNING: " in line)
        assert "allkeys-lru" in line
        assert "set maxmemory-policy noeviction" in line
        crawl.assert_complete()


def _set_policy(server: EmbeddedServer, policy: str) -> None:
    with Redis.from_url(server.url) as client:
        client.config_set("maxmemory-policy", policy)
