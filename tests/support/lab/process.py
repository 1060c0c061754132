"""A lab in a process of its own, for tests, demo and benchmarks to hold."""

import json
import subprocess
import sys
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from tests.support.lab.hits import Hit
from tests.support.lab.site import RobotsAnswer
from tests.support.lab.spec import LabSpec
from tests.support.lab.truth import Truth

ROOT = Path(__file__).resolve().parents[3]
ANSWER_LIMIT_SECONDS = 60.0
END_LIMIT_SECONDS = 5.0


class LabFailed(Exception):
    """The lab's process did not start, or answers no more."""


class Lab:
    """Starts when built, and is ready then; ends with ``close`` or the ``with`` block, or with this process.

    ``spec`` has the port that was taken. Raises LabFailed where the lab cannot start.
    """

    def __init__(self, spec: LabSpec | None = None) -> None:
        asked = spec or LabSpec()
        # This end of the pipe closes however this process ends, also by SIGKILL: the lab outlives nobody.
        # A session of its own keeps a Ctrl-C in the terminal from it, while workers still finish their pages.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.lab", "--until-stdin-closes", *asked.arguments()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise LabFailed(f"the lab ended with {self._process.returncode} at its start; it says why on stderr")
        self.spec = replace(asked, port=json.loads(line)["port"])

    @property
    def port(self) -> int:
        """The port of all hosts."""
        return self.spec.port

    @property
    def url(self) -> str:
        """The start URL: page 0, on host 0."""
        return self.base(0) + "/p/0"

    @property
    def pid(self) -> int:
        """The process, to stop, continue or measure."""
        return self._process.pid

    def base(self, host: int) -> str:
        """Scheme, address and port of a host, without a slash at the end."""
        return self.spec.base(host)

    def hits(self) -> dict[str, int]:
        """How often each URL was hit, by any method, robots.txt and odd pages included."""
        return cast("dict[str, int]", self._ask("GET", "hits")["counts"])

    def times(self) -> list[Hit]:
        """Every hit, oldest first."""
        return [Hit(*each) for each in self._ask("GET", "hits?times=1")["times"]]

    def truth(self) -> Truth:
        """What a faithful crawl finds, as the running lab says; the same as ``truth_of(lab.spec)``."""
        return cast("Truth", self._ask("GET", "truth"))

    def stats(self) -> dict[str, float]:
        """``hits`` so far, and ``hits_per_second`` from the first to the last."""
        return cast("dict[str, float]", self._ask("GET", "stats"))

    def reset(self) -> None:
        """Forget all hits; flaky pages fail again."""
        self._ask("POST", "reset")

    def mood(self, host: int, *, rate: float = 0.0, status: int = 0) -> None:
        """From now on a host takes so many requests a second, or answers all with a status; 0 and 0: as it was."""
        self._ask("POST", f"mood?host={host}&rate={rate}&status={status}")

    def plan_robots(self, plans: dict[int, list[RobotsAnswer]]) -> None:
        """Until the next reset, robots.txt of these hosts answers as planned, hit by hit; the last answer stays."""
        self._ask("POST", "robots", json.dumps(plans))

    def close(self) -> None:
        """End the process; does nothing the second time."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.terminate()
        try:
            self._process.wait(END_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, what: str, body: str = "") -> dict[str, Any]:
        connection = HTTPConnection(self.spec.address(0), self.port, timeout=ANSWER_LIMIT_SECONDS)
        try:
            connection.request(method, f"/_lab/{what}", body or None)
            response = connection.getresponse()
            answer = response.read()
        except OSError as error:
            state = self._process.poll()
            ended = "still runs" if state is None else f"has ended with {state}"
            raise LabFailed(f"no answer to /_lab/{what} ({error}); the lab's process {ended}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise LabFailed(f"/_lab/{what} answered {response.status}: {answer[:200]!r}")
        return cast("dict[str, Any]", json.loads(answer))
