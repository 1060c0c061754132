"""CPU of one worker on the shared frontier beside plain Scrapy and scrapy-redis: same spider, same lab, same run.

CPU is user and system time of the worker's process, less that of a crawl of one page without links (start-up). The side
"limited" has a rule and a cap for its host, which it never reaches.
"""

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from crawler.redisdb.embedded import EmbeddedServer
from tests.bench.figures import Target, parser, tell
from tests.support.lab import Lab, LabSpec

ROOT = Path(__file__).resolve().parents[2]
FREE = 'CRAWLER_THROTTLE={"*": 0}'
NEVER_REACHED = 'CRAWLER_THROTTLE={"*": {"rate": 1e5, "burst": 10000, "concurrency": 1000}}'
SIDES = {
    "plain": "tests.support.bench_settings",
    "trawlnet": "tests.support.fleet_bench_settings",
    "limited": "tests.support.fleet_bench_settings",
    "scrapy_redis": "tests.support.control_bench_settings",
}
TRIPS = re.compile(r"'frontier/round_trips': (\d+)")


@dataclass(frozen=True, slots=True)
class Crawl:
    """Seconds of CPU of the worker and of Redis, hits on the lab, and round trips if the worker counts them."""

    cpu: float
    redis_cpu: float
    hits: int
    round_trips: int


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _server_cpu(client: Redis) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def crawl(side: str, url: str, lab: Lab, server: EmbeddedServer) -> Crawl:
    """Crawls from the URL to the end with one worker."""
    lab.reset()
    command = [sys.executable, "-m", "scrapy", "crawl", "bench", "-a", f"url={url}", "-s", f"REDIS_URL={server.url}"]
    if side in {"trawlnet", "limited"}:
        command += ["-s", FREE if side == "trawlnet" else NEVER_REACHED]
    environment = {**os.environ, "SCRAPY_SETTINGS_MODULE": SIDES[side]}
    with Redis.from_url(server.url) as client:
        for key in list(client.scan_iter(count=1000)):
            client.delete(key)
        redis_before, before = _server_cpu(client), _children_cpu()
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=600
        )
        cpu, redis_cpu = _children_cpu() - before, _server_cpu(client) - redis_before
    trips = TRIPS.search(done.stderr)
    return Crawl(cpu, redis_cpu, int(lab.stats()["hits"]), int(trips.group(1)) if trips else 0)


def measure(pages: int, rounds: int) -> dict[str, Any]:
    """Interleaved rounds of all sides; medians."""
    cpu: dict[str, list[float]] = defaultdict(list)
    redis: dict[str, list[float]] = defaultdict(list)
    trips = []
    spec = LabSpec(pages=pages, hosts=1, links=35, page_bytes=20_000)
    with (
        tempfile.TemporaryDirectory(prefix="trawlnet-bench-") as folder,
        Lab(spec) as lab,
        EmbeddedServer(Path(folder)) as server,
    ):
        for number in range(rounds):
            for side in SIDES:
                start_up = crawl(side, f"{lab.base(0)}/leaf/1", lab, server)
                whole = crawl(side, lab.url, lab, server)
                if whole.hits < pages or (side in {"trawlnet", "limited"}) != bool(whole.round_trips):
                    raise AssertionError(f"{side} fetched {whole.hits} of {pages} pages in {whole.round_trips} trips")
                cpu[side].append((whole.cpu - start_up.cpu) / pages)
                redis[side].append((whole.redis_cpu - start_up.redis_cpu) / pages)
                if side == "trawlnet":
                    trips.append(whole.round_trips / pages)
                print(f"  round {number + 1}: {side:13} {cpu[side][-1] * 1e3:7.2f} ms CPU a page", flush=True)
    worker = {side: statistics.median(values) for side, values in cpu.items()}
    server_cpu = {side: statistics.median(values) for side, values in redis.items()}
    return {
        "pages": pages,
        "rounds": rounds,
        "cpu_per_page_ratio_plain": worker["trawlnet"] / worker["plain"],
        "cpu_per_page_ratio_scrapy_redis": worker["trawlnet"] / worker["scrapy_redis"],
        "cpu_per_page_ratio_limited": worker["limited"] / worker["trawlnet"],
        "round_trips_per_page": statistics.median(trips),
        "redis_cpu_ratio_scrapy_redis": server_cpu["trawlnet"] / server_cpu["scrapy_redis"],
        **{f"cpu_ms_per_page_{side}": value * 1e3 for side, value in worker.items()},
    }


def main() -> None:
    """Measures and tells."""
    options = parser("worker", __doc__)
    options.add_argument("--pages", type=int, default=2000, help="pages of the lab, 20 KB and 35 links each (2000)")
    options.add_argument("--rounds", type=int, default=3, help="rounds of all sides (3)")
    given = options.parse_args()
    print(f"one worker, {given.pages} pages of 20 KB with 35 links, 32 requests at a time, no storage")
    figures = measure(given.pages, given.rounds)
    targets = [
        Target("cpu_per_page_ratio_plain", figures["cpu_per_page_ratio_plain"], 1.05),
        Target("cpu_per_page_ratio_limited", figures["cpu_per_page_ratio_limited"], 1.03),
        Target("round_trips_per_page", figures["round_trips_per_page"], 1.0),
    ]
    tell(targets, figures, given.json)
    for name in ("cpu_per_page_ratio_scrapy_redis", "redis_cpu_ratio_scrapy_redis"):
        print(f"  {name:38} {figures[name]:>12.4g}")


if __name__ == "__main__":
    main()
