"""How many pages a second one lab serves, as wrk sees it: python -m tests.support.lab.bench."""

import shutil
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

from tests.support.lab.process import Lab
from tests.support.lab.spec import LabSpec

SCRIPT = Path(__file__).with_name("random_page.lua")


def main() -> int:
    """Print wrk's report; 2 where wrk is missing."""
    parser = ArgumentParser(prog="python -m tests.support.lab.bench", description=__doc__)
    parser.add_argument("--pages", type=int, default=3000)
    parser.add_argument("--page-bytes", type=int, default=2048)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=5)
    options = parser.parse_args()
    wrk = shutil.which("wrk")
    if wrk is None:
        print("wrk is not on PATH; install it, for example by `apt-get install wrk`", file=sys.stderr)
        return 2
    with Lab(LabSpec(pages=options.pages, hosts=1, page_bytes=options.page_bytes)) as lab:
        load = ["-t1", f"-c{options.connections}", f"-d{options.seconds}", "-s", str(SCRIPT)]
        report = subprocess.run(
            [wrk, *load, lab.base(0), "--", str(options.pages)], check=True, capture_output=True, text=True
        )
        print(report.stdout)
        print(f"hits logged: {lab.stats()['hits']:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
