"""What a host sees of each strategy with the same rate and burst, as a table and as the picture of docs/politeness.md.

Each strategy has a host of the lab, and a crawl of its own with the throttle in memory. Nothing was asked before; then
more requests wait than the host may be asked, until all are done. They come shortly before the end of a fixed window.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crawler.throttle.rules import STRATEGIES, Rule
from tests.bench.figures import Target, parser, tell
from tests.support.lab import Lab, LabSpec
from tests.support.pacing import excess_of, times_of

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "bursts.svg"

RATE, BURST = 5, 10
WINDOW_SECONDS = BURST / RATE
REQUESTS = 50
LEAD_SECONDS = 0.5
"""How long before the end of a fixed window the requests come."""

LIMIT_SECONDS = 60.0
SHOWN_SECONDS = 9.0
BIN_SECONDS = 0.2

LEFT, WIDTH, TOP, ROW, BARS, FOOT = 130, 640, 44, 92, 52, 44
INK, FAINT, BAR, GROUND = "#24292f", "#d0d7de", "#2f6fb2", "#ffffff"


def most_in(times: Sequence[float], seconds: float) -> int:
    """The most hits in any window that is so long and half open."""
    return max(sum(first <= at < first + seconds for at in times) for first in times)


def crawl(lab: Lab, host: int, strategy: str) -> list[float]:
    """Times of one host's hits, from the first on; seconds."""
    with tempfile.TemporaryDirectory(prefix="trawlnet-bench-") as name:
        plan = Path(name) / "plan.json"
        plan.write_text(json.dumps({lab.base(host): REQUESTS}))
        window_us = Rule(RATE, BURST, strategy="fixed_window").packed()[1]
        rules = {"*": {"rate": RATE, "burst": BURST, "strategy": strategy}}
        command = [sys.executable, "-m", "scrapy", "crawl", "flood", "-a", f"plan={plan}"]
        command += ["-a", f"window={window_us / 1e6}", "-a", f"lead={LEAD_SECONDS}"]
        command += ["-s", f"CRAWLER_THROTTLE={json.dumps(rules)}", "-s", "CONCURRENT_REQUESTS_PER_DOMAIN=32"]
        environment = {**os.environ, "SCRAPY_SETTINGS_MODULE": "tests.support.throttle_settings"}
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=LIMIT_SECONDS, check=False
        )
    times = times_of(lab).get(lab.spec.address(host), [])
    if ended.returncode or len(times) != REQUESTS:
        raise AssertionError(f"{len(times)} hits, exit code {ended.returncode}:\n{ended.stderr.decode()[-3000:]}")
    return [at - times[0] for at in times]


def row_of(number: int, strategy: str, times: Sequence[float]) -> list[str]:
    """One row of the picture: a bar for each bin, as high as it has hits, and a tick for each hit."""
    base = TOP + number * ROW + BARS
    scale = WIDTH / SHOWN_SECONDS
    bins = [0] * round(SHOWN_SECONDS / BIN_SECONDS)
    for at in times:
        if at < SHOWN_SECONDS:
            bins[int(at / BIN_SECONDS)] += 1
    parts = [f'<text x="{LEFT - 12}" y="{base - 18}" text-anchor="end" font-weight="600">{strategy}</text>']
    parts.append(f'<text x="{LEFT - 12}" y="{base - 2}" text-anchor="end">{most_in(times, 1)} in 1 s</text>')
    for index, hits in enumerate(bins):
        if not hits:
            continue
        x, height = LEFT + index * BIN_SECONDS * scale, min(1.0, hits / BURST) * (BARS - 14)
        wide = BIN_SECONDS * scale - 2
        parts.append(
            f'<rect x="{x + 1:.1f}" y="{base - height:.1f}" width="{wide:.1f}" height="{height:.1f}" fill="{BAR}"/>'
        )
        if hits > 1:
            parts.append(
                f'<text x="{x + wide / 2 + 1:.1f}" y="{base - height - 3:.1f}" text-anchor="middle">{hits}</text>'
            )
    parts.append(f'<path d="M{LEFT} {base}h{WIDTH}" stroke="{INK}"/>')
    ticks = "".join(f"M{LEFT + at * scale:.1f} {base + 5}v12" for at in times if at < SHOWN_SECONDS)
    parts.append(f'<path d="{ticks}" stroke="{INK}"/>')
    return parts


def picture_of(seen: dict[str, list[float]]) -> str:
    """The hits of each strategy over time, as SVG."""
    height = TOP + len(seen) * ROW + FOOT
    bottom = height - FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">',
        "<title>Hits that a host saw of each strategy</title>",
        f'<rect width="100%" height="100%" fill="{GROUND}"/>',
        f'<text x="{LEFT}" y="20">rate {RATE}, burst {BURST}: hits in each {BIN_SECONDS:g} s, and each hit, '
        f"as the server logged them</text>",
    ]
    for second in range(int(SHOWN_SECONDS) + 1):
        x = LEFT + second * WIDTH / SHOWN_SECONDS
        parts.append(f'<path d="M{x:.1f} {TOP - 8}V{bottom}" stroke="{FAINT}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{second}</text>')
    parts.append(f'<text x="{LEFT + WIDTH / 2}" y="{bottom + 34}" text-anchor="middle">seconds</text>')
    for number, (strategy, times) in enumerate(seen.items()):
        parts += row_of(number, strategy, times)
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    """Measures, tells and draws."""
    options = parser("bursts", __doc__)
    options.add_argument("--svg", type=Path, default=None, help=f"file for the picture, such as {PICTURE.name}")
    given = options.parse_args()
    with Lab(LabSpec(pages=len(STRATEGIES), hosts=len(STRATEGIES))) as lab:
        seen = {strategy: crawl(lab, host, strategy) for host, strategy in enumerate(STRATEGIES)}
    print(f"rate {RATE}, burst {BURST}: most hits in any   0.2 s   1 s   {WINDOW_SECONDS:g} s   seconds for all")
    figures: dict[str, Any] = {}
    for strategy, times in seen.items():
        most = [most_in(times, seconds) for seconds in (BIN_SECONDS, 1, WINDOW_SECONDS)]
        figures[strategy] = {"times": times, "most": most}
        print(f"  {strategy:32} {most[0]:8} {most[1]:5} {most[2]:5} {times[-1]:12.1f}")
    allowed = {"token_bucket": excess_of(seen["token_bucket"], RATE, BURST)}
    allowed["sliding_window"] = most_in(seen["sliding_window"], WINDOW_SECONDS) - BURST
    allowed["fixed_window"] = most_in(seen["fixed_window"], WINDOW_SECONDS) - 2 * BURST
    tell([Target(f"{strategy}_excess", excess, 0.0) for strategy, excess in allowed.items()], figures, given.json)
    if given.svg is not None:
        given.svg.write_text(picture_of(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
