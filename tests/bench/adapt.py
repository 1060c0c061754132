"""A server that allows 20, then 5, then 20 requests a second: how soon a fleet keeps to it, and what it uses of it.

Of each phase the first seconds are for finding out; after them the share of 429s counts, and the share used of what the
server allows.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from crawler.redisdb.embedded import EmbeddedServer
from tests.bench.figures import Target, parser, tell
from tests.support.lab import Lab, LabSpec
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 4
PHASES = (20, 5, 20)
FINDING_OUT_SECONDS = 30.0


def crawl(lab: Lab, folder: Path, given: dict[str, str], seconds: float) -> list[tuple[float, float]]:
    """Runs the phases; begin and end of each, epoch seconds."""
    plan = folder / "plan.json"
    plan.write_text(json.dumps({lab.base(0): int(max(PHASES) * seconds * len(PHASES) * 2)}))
    command = [sys.executable, "-m", "scrapy", "crawl", "paced", "-a", f"plan={plan}"]
    for setting in given.items():
        command += ["-s", "=".join(setting)]
    environment = {**os.environ, "SCRAPY_SETTINGS_MODULE": "tests.support.fleet_bench_settings"}
    with (folder / "log").open("wb") as log:
        workers = [
            subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            for _ in range(WORKERS)
        ]
    phases = []
    try:
        wait_until(lambda: lab.stats()["hits"], FINDING_OUT_SECONDS, "the first request")
        for rate in PHASES:
            lab.mood(0, rate=rate)
            began = time.time()
            time.sleep(seconds)
            phases.append((began, time.time()))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return phases


def main() -> int:
    """Measures and tells."""
    options = parser("adapt", __doc__)
    options.add_argument("--seconds", type=float, default=75.0, help="length of each of the three phases (75)")
    options.add_argument("--rate", type=float, default=20.0, help="rate of the rule (20); 0: no rule")
    given = options.parse_args()
    with (
        Lab(LabSpec(pages=1, hosts=1)) as lab,
        tempfile.TemporaryDirectory(prefix="trawlnet-bench-") as name,
        EmbeddedServer(Path(name) / "redis") as server,
    ):
        lab.mood(0, rate=PHASES[0])
        settings = {"REDIS_URL": server.url, "RETRY_TIMES": "1000000"}
        if given.rate:
            settings["CRAWLER_THROTTLE"] = json.dumps({"*": {"rate": given.rate, "burst": 2}})
        phases = crawl(lab, Path(name), settings, given.seconds)
        hits = lab.times()
    worst_refused, least_used = 0.0, 1.0
    for rate, (began, ended) in zip(PHASES, phases, strict=True):
        counted = [hit for hit in hits if began + FINDING_OUT_SECONDS <= hit.at < ended]
        refused = sum(hit.status == 429 for hit in counted) / len(counted)
        used = sum(hit.status == 200 for hit in counted) / (rate * (ended - began - FINDING_OUT_SECONDS))
        worst_refused, least_used = max(worst_refused, refused), min(least_used, used)
        print(f"  {rate:3} requests/s allowed: {refused:6.2%} of answers 429, {used:6.1%} used", flush=True)
    figures = {"refused_after_30_s": worst_refused, "least_used": least_used}
    tell(
        [Target("refused_after_30_s", worst_refused, 0.02), Target("least_used", least_used, 0.7, at_least=True)],
        figures,
        given.json,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
