"""What 50 hosts with limits of their own see of a fleet whose workers come and are killed, beside scrapy-redis.

Worst excess: over all hosts and all windows of time t, the most requests above rate * t + burst, in the lab's log.
Utilisation: requests of all hosts over those that their rates allow from each host's first request to the end.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawler.redisdb.embedded import EmbeddedServer
from tests.bench.figures import Target, parser, tell
from tests.support.lab import Lab, LabSpec
from tests.support.pacing import excess_of, times_of
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
HOSTS = 50
LIMITS = ((0.5, 1), (1.0, 1), (2.0, 2), (5.0, 4), (8.0, 8))
"""Rates (requests a second) and bursts; the hosts have them in turn."""

WORKERS = 4
LATENCY_SECONDS = 0.02
START_SECONDS = 60.0


@dataclass(slots=True)
class Fleet:
    """Workers of one side."""

    command: list[str]
    environment: dict[str, str]
    folder: Path
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def add(self) -> None:
        """Starts a worker."""
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            worker = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.workers.append(worker)

    def kill(self, number: int) -> None:
        """Kills a worker, which must still run."""
        if self.workers[number].poll() is not None:
            log = (self.folder / f"worker-{number}.log").read_text(errors="replace")
            raise AssertionError(f"worker {number} has ended before its time:\n{log[-3000:]}")
        self.workers[number].kill()
        self.workers[number].wait()

    def end(self) -> None:
        """Kills what still runs."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()


@contextmanager
def fleet_of(side: str, lab: Lab, seconds: float) -> Iterator[Fleet]:
    """A fleet on a server of its own, with more work than it can do in the time."""
    more = WORKERS + 1 if side == "scrapy_redis" else 1.2
    limits = {lab.spec.address(host): LIMITS[host % len(LIMITS)] for host in range(HOSTS)}
    work = {lab.base(host): int(rate * seconds * more) + 20 for host, (rate, _) in enumerate(limits.values())}
    with tempfile.TemporaryDirectory(prefix="trawlnet-bench-") as name:
        folder = Path(name)
        plan = folder / "plan.json"
        plan.write_text(json.dumps(work))
        with EmbeddedServer(folder / "redis") as server:
            given = {"REDIS_URL": server.url, "CONCURRENT_REQUESTS": "100"}
            if side == "trawlnet":
                rules = {host: {"rate": rate, "burst": burst} for host, (rate, burst) in limits.items()}
                given |= {"CRAWLER_THROTTLE": json.dumps(rules), "CRAWLER_MEMBERSHIP_BEAT_SECONDS": "1"}
                given |= {"CRAWLER_MEMBERSHIP_LAPSE_SECONDS": "3"}
                module = "tests.support.fleet_bench_settings"
            else:
                slots = {host: {"delay": 1 / rate, "jitter": 0, "concurrency": 8} for host, (rate, _) in limits.items()}
                given |= {"DOWNLOAD_SLOTS": json.dumps(slots)}
                module = "tests.support.control_bench_settings"
            command = [sys.executable, "-m", "scrapy", "crawl", "paced", "-a", f"plan={plan}"]
            for setting in given.items():
                command += ["-s", "=".join(setting)]
            fleet = Fleet(command, {**os.environ, "SCRAPY_SETTINGS_MODULE": module}, folder)
            try:
                yield fleet
            finally:
                fleet.end()


def measure(side: str, lab: Lab, seconds: float) -> dict[str, Any]:
    """One run: a worker is added, one is killed, then both at once."""
    lab.reset()
    with fleet_of(side, lab, seconds) as fleet:
        for _ in range(WORKERS):
            fleet.add()
        wait_until(lambda: lab.stats()["hits"], START_SECONDS, "the first request")
        began = time.time()
        for share, act in ((0.2, "add"), (0.4, "kill 0"), (0.6, "kill 1"), (0.6, "add")):
            time.sleep(max(0.0, began + share * seconds - time.time()))
            fleet.add() if act == "add" else fleet.kill(int(act.split()[1]))
        time.sleep(max(0.0, began + seconds - time.time()))
        ended = time.time()
        times = times_of(lab)
    allowed = hits = 0.0
    worst = -float("inf")
    by_limit: dict[str, list[float]] = defaultdict(lambda: [-float("inf"), float("inf")])
    for host in range(HOSTS):
        rate, burst = LIMITS[host % len(LIMITS)]
        of_host = [at for at in times.get(lab.spec.address(host), []) if at <= ended]
        if not of_host:
            raise AssertionError(f"{side} never asked host {host}")
        excess, could = excess_of(of_host, rate, burst), rate * (ended - of_host[0])
        worst, allowed, hits = max(worst, excess), allowed + could, hits + len(of_host)
        seen = by_limit[f"{rate:g}/s, burst {burst}"]
        seen[0], seen[1] = max(seen[0], excess), min(seen[1], len(of_host) / could)
    for limit, (most, least) in by_limit.items():
        print(f"  {side:13} {limit:16} worst excess {most:8.2f}   least used {least:6.1%}", flush=True)
    return {"worst_excess_requests": max(0.0, worst), "utilisation": hits / allowed, "hits": int(hits)}


def main() -> int:
    """Measures and tells."""
    options = parser("politeness", __doc__)
    options.add_argument("--seconds", type=float, default=60.0, help="length of our run (60); the other's is a third")
    options.add_argument("--no-control", action="store_true", help="leave scrapy-redis out")
    given = options.parse_args()
    print(f"{HOSTS} hosts, {WORKERS} workers, {given.seconds:g} s; workers are added and killed on the way")
    with Lab(LabSpec(pages=HOSTS, hosts=HOSTS, latency_seconds=LATENCY_SECONDS)) as lab:
        figures = measure("trawlnet", lab, given.seconds)
        if not given.no_control:
            control = measure("scrapy_redis", lab, given.seconds / 3)
            figures |= {f"scrapy_redis_{name}": value for name, value in control.items()}
    targets = [
        Target("worst_excess_requests", figures["worst_excess_requests"], 0.0),
        Target("utilisation", figures["utilisation"], 0.95, at_least=True),
    ]
    tell(targets, figures, given.json)
    for name in ("scrapy_redis_worst_excess_requests", "scrapy_redis_utilisation"):
        if name in figures:
            print(f"  {name:38} {figures[name]:>12.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
