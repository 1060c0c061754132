"""A fleet on one machine: an embedded server where none is given, and workers as child processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from crawler.errors import TrawlnetError

KILL_SECONDS = 10.0


@dataclass(slots=True)
class LocalFleet:
    """Workers of one spider; their logs go to files, ``worker-1.log`` and so on."""

    spider: str
    log_dir: Path
    environment: Mapping[str, str]
    settings: Sequence[str] = ()
    arguments: Sequence[str] = ()
    grace_seconds: float = 25.0
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    _logs: list[IO[bytes]] = field(default_factory=list)

    def start(self, workers: int) -> None:
        """Starts that many workers more."""
        self.log_dir.mkdir(parents=True, exist_ok=True)
        for _ in range(workers):
            log = (self.log_dir / f"worker-{len(self.processes) + 1}.log").open("wb")
            self._logs.append(log)
            command = [sys.executable, "-m", "scrapy", "crawl", self.spider]
            for setting in self.settings:
                command += ["-s", setting]
            for argument in self.arguments:
                command += ["-a", argument]
            environment = {**os.environ, **self.environment}
            # Ctrl-C reaches this process alone, which then asks the workers to stop.
            process = subprocess.Popen(  # noqa: S603 - this interpreter, and arguments of whoever runs it
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
            self.processes.append(process)

    @property
    def running(self) -> int:
        """How many workers run."""
        return sum(process.poll() is None for process in self.processes)

    @property
    def failed(self) -> list[int]:
        """Numbers, from 1, of the workers that ended with an error."""
        return [number for number, process in enumerate(self.processes, 1) if process.poll() not in {None, 0}]

    def wait(self, look: Callable[[], None], every_seconds: float = 0.5) -> None:
        """Waits until all workers have ended; ``look`` is called meanwhile."""
        while self.running:
            look()
            for process in self.processes:
                if process.poll() is None:
                    try:
                        process.wait(every_seconds)
                    except subprocess.TimeoutExpired:
                        break
        look()

    def stop(self) -> None:
        """Asks the workers to stop and gives them their time; then ends those that are left."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + self.grace_seconds
        while self.running and time.monotonic() < deadline:
            self._reap_one(0.1)
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + KILL_SECONDS
        while self.running and time.monotonic() < deadline:
            self._reap_one(0.1)
        self._signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.close()

    def _reap_one(self, seconds: float) -> None:
        for process in self.processes:
            if process.poll() is None:
                try:
                    process.wait(seconds)
                except subprocess.TimeoutExpired:
                    return

    def _signal(self, number: int) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)

    def close(self) -> None:
        """Closes the log files."""
        for log in self._logs:
            log.close()

    def last_error(self, number: int) -> str:
        """The last error line in the log of a worker, for a message."""
        lines = (self.log_dir / f"worker-{number}.log").read_text(errors="replace").splitlines()
        wrong = [line for line in lines if " ERROR: " in line or line.startswith("trawlnet:") or "Error:" in line]
        return (wrong or lines or ["no output"])[-1].strip()


class WorkersFailed(TrawlnetError):
    """Workers ended with an error."""
