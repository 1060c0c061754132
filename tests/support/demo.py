"""``./run demo``: a server, a master and three workers on this machine crawl the lab, or a real site, to the end."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from redis import Redis

from crawler.cli.parts import console, main_errors
from crawler.control.crawls import Crawls
from crawler.control.local import LocalFleet, WorkersFailed
from crawler.control.watch import watch_fleet
from crawler.errors import ConfigError
from crawler.redisdb.connect import RedisTarget
from crawler.redisdb.embedded import server_url_or_start
from crawler.storage.backends import open_storage
from tests.support.lab import Lab, LabSpec

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "var" / "demo"
SITE_PAGES = 200
EXIT_STOPPED = 4


def main() -> None:
    """Parses the options and runs the demo."""
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("url", nargs="?", default="", help="a site to crawl instead of the lab; stays on its host")
    parser.add_argument(
        "--pages", type=int, default=0, help=f"pages of the lab (3000), or limit of a site ({SITE_PAGES})"
    )
    parser.add_argument("--workers", type=int, default=3, help="how many workers (3)")
    parser.add_argument("--json", type=Path, default=None, help="file for the figures")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _as_interrupt)
    with main_errors():
        if options.url and urlsplit(options.url).scheme not in {"http", "https"}:
            raise ConfigError(f"a site is given by its URL, as in https://example.com/, got {options.url!r}")
        FOLDER.mkdir(parents=True, exist_ok=True)
        with server_url_or_start(os.environ, FOLDER / "redis") as redis_url:
            figures = _site(options, redis_url) if options.url else _lab(options, redis_url)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _lab(options: argparse.Namespace, redis_url: str) -> dict[str, Any]:
    spec = LabSpec(pages=options.pages or 3000, hosts=20, latency_seconds=0.05)
    with Lab(spec) as lab:
        console.print(
            f"The lab: {spec.pages:,} pages on {spec.hosts} hosts of this machine, {spec.links} links a page."
        )
        figures = _crawl("lab", "tests.support.lab_settings", ["--url", lab.url], options, redis_url, {})
        truth = lab.truth()["pages"]
        hits = {url: count for url, count in lab.hits().items() if url in truth}
        ids = Counter(figures.pop("ids"))
        wanted = {item["id"] for item in truth.values()}
    figures |= {
        "pages": spec.pages,
        "never_fetched": len(truth) - len(hits),
        "missing_items": len(wanted - set(ids)),
        "duplicate_items": sum(count - 1 for count in ids.values()),
    }
    console.print(
        f"By the lab's own record: {figures['never_fetched']} pages missed, {figures['missing_items']} items missing, "
        f"{figures['duplicate_items']} twice.",
        highlight=False,
    )
    return figures


def _site(options: argparse.Namespace, redis_url: str) -> dict[str, Any]:
    pages = options.pages or SITE_PAGES
    host = urlsplit(options.url).hostname
    console.print(f"{host}: about {pages} pages, robots.txt obeyed, at most 8 requests at a time:", highlight=False)
    console.print("on one host three workers are no faster than one; many hosts are their use.", highlight=False)
    share = str(max(1, pages // options.workers))
    figures = _crawl("site", "settings.local", [], options, redis_url, {"url": options.url, "pages": share})
    figures.pop("ids")
    return figures


def _crawl(
    spider: str, settings: str, seeds: list[str], options: argparse.Namespace, redis_url: str, arguments: dict[str, str]
) -> dict[str, Any]:
    items = FOLDER / f"{spider}.db"
    # Whoever names a site here may crawl it, in their own network too.
    given = [
        f"REDIS_URL={redis_url}",
        f"CRAWLER_STORAGE=sqlite:///{items}",
        "CRAWLER_TARGETS_PRIVATE_ALLOWED=True",
    ]
    environment = {"SCRAPY_SETTINGS_MODULE": settings}
    fleet = LocalFleet(
        spider, FOLDER / "log", environment, given, [f"{name}={value}" for name, value in arguments.items()]
    )
    with Redis.from_url(redis_url) as client:
        crawls = Crawls(client, spider)
        if spider == "lab":
            # Each lab has a port of its own: what was left of an earlier one is nowhere to be fetched.
            crawls.purge(force=True)
        if crawls.status().state != "open":
            # A crawl that was stopped half-way goes on; a finished one begins anew, with a table of its own.
            for old in FOLDER.glob(f"{items.name}*"):
                old.unlink()
        console.print(
            f"Redis at {RedisTarget(redis_url).shown}, one master, {options.workers} workers.", highlight=False
        )
        started = time.monotonic()
        with _master(spider, settings, seeds, redis_url):
            fleet.start(options.workers)
            try:
                watch_fleet(fleet, crawls, console)
            except KeyboardInterrupt:
                console.print("Stopping: what is not done goes back to the queue, and ./run demo goes on with it.")
                fleet.stop()
                raise
        seconds = time.monotonic() - started
        found = crawls.status()
    fleet.close()
    if fleet.failed:
        number = fleet.failed[0]
        raise WorkersFailed(f"worker {number} failed: {fleet.last_error(number)}")
    return _tell(spider, found.as_dict(), items, seconds)


@contextmanager
def _master(spider: str, settings: str, seeds: list[str], redis_url: str) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "crawler.cli",
        "master",
        spider,
        *seeds,
        "--once",
        "-s",
        f"REDIS_URL={redis_url}",
    ]
    (FOLDER / "log").mkdir(exist_ok=True)
    with (FOLDER / "log" / "master.log").open("wb") as log:
        master = subprocess.Popen(
            command,
            env={**os.environ, "SCRAPY_SETTINGS_MODULE": settings},
            cwd=ROOT,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield
    finally:
        master.terminate()
        master.wait()


def _tell(spider: str, found: dict[str, Any], items: Path, seconds: float) -> dict[str, Any]:
    store = open_storage(f"sqlite:///{items}")
    store.open()
    ids = [str(record.data.get("id", record.data.get("url"))) for record in store.records()]
    store.close()
    rate = found["done"] / seconds
    console.print(
        f"{found['state'].capitalize()}: {found['done']:,} pages, {len(ids):,} items, {found['dead']} dead letters "
        f"in {seconds:.1f} s ({rate:.0f} pages/s).",
        highlight=False,
    )
    shown = items.relative_to(ROOT)
    console.print(f"Items: {shown}", highlight=False)
    console.print(f"CSV:   .venv/bin/trawlnet export sqlite:///{shown} --format csv", highlight=False)
    console.print(f"Logs:  {(FOLDER / 'log').relative_to(ROOT)}/", highlight=False)
    return {
        "state": found["state"],
        "done": found["done"],
        "dead": found["dead"],
        "items": len(ids),
        "seconds": round(seconds, 2),
        "pages_per_second": round(rate, 1),
        "items_file": str(shown),
        "ids": ids,
    }


if __name__ == "__main__":
    main()
