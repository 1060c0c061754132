"""``./run chaos``: many crawls with a killed worker, beside scrapy-redis, and what each lost."""

import argparse
import json
import random
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.chaos.killed_worker import RunResult, scrapy_redis_run, trawlnet_run
from tests.support.lab import Lab, LabSpec

HEAD = f"{'':13}{'pages':>6}{'never':>8}{'missing':>9}{'double':>8}{'fetches':>9}{'killed':>8}{'held by':>9}{'':>8}"
SUBHEAD = f"{'':13}{'':>6}{'fetched':>8}{'items':>9}{'items':>8}{'':>9}{'at':>8}{'killed':>9}{'seconds':>8}"


def _line(result: RunResult) -> str:
    r = result
    return (
        f"{r.impl:13}{r.pages:>6}{r.never_fetched:>8}{r.missing_items:>9}{r.duplicate_items:>8}"
        f"{r.hits:>9}{r.killed_at:>8}{r.killed_held:>9}{r.seconds:>8}"
    )


def main() -> int:
    """Runs, prints a line a run, and fails if a run of ours broke the promise."""
    parser = argparse.ArgumentParser(prog="./run chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="crawls of each kind (default 20)")
    parser.add_argument("--pages", type=int, default=3000, help="pages of the lab (default 3000)")
    parser.add_argument("--seed", type=int, default=None, help="seed of the random moments; printed when not given")
    parser.add_argument("--no-control", action="store_true", help="leave scrapy-redis out")
    parser.add_argument("--json", type=Path, default=None, help="file for the figures")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    chance = random.Random(seed)
    print(f"{options.runs} runs of {options.pages} pages, three workers, one killed with SIGKILL; --seed {seed}")
    print(HEAD, SUBHEAD, sep="\n", flush=True)
    results: list[RunResult] = []
    with Lab(LabSpec(pages=options.pages, hosts=20, latency_seconds=0.02)) as lab:
        for _ in range(options.runs):
            kinds = [trawlnet_run] if options.no_control else [trawlnet_run, scrapy_redis_run]
            for kind in kinds:
                lab.reset()
                with tempfile.TemporaryDirectory(prefix="trawlnet-chaos-") as folder:
                    results.append(kind(lab, Path(folder), chance))
                print(_line(results[-1]), flush=True)
    broken = [result for result in results if result.impl == "trawlnet" and not result.kept_promise]
    for impl in dict.fromkeys(result.impl for result in results):
        of_it = [result for result in results if result.impl == impl]
        lost = sum(result.missing_items for result in of_it)
        print(f"{impl}: {lost} items lost in {len(of_it)} runs, {sum(r.duplicate_items for r in of_it)} stored twice")
    if options.json:
        options.json.write_text(json.dumps({"seed": seed, "runs": [asdict(result) for result in results]}, indent=1))
    print("every page fetched, every item stored once" if not broken else f"BROKEN in {len(broken)} runs")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
