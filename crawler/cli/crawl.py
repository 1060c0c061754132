"""Commands that start, feed, show and end crawls."""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from crawler import __version__
from crawler.cli.account import add_to
from crawler.cli.parts import EXIT_ERROR, Json, Settings, SpiderName, console, crawls_of, errors, project_of
from crawler.components.project import Project
from crawler.control.local import LocalFleet, WorkersFailed
from crawler.control.screen import dead_table, status_panel, summary_lines
from crawler.control.watch import watch_fleet
from crawler.frontier.store import SeenSpec
from crawler.master import Fed, Master
from crawler.redisdb.embedded import EmbeddedServer
from crawler.seeds.places import Places, places_of, seeds_of
from crawler.storage.backends import open_storage
from crawler.storage.export import export as export_records

AUDIT_SECONDS = 30.0

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
dead_app = typer.Typer(
    no_args_is_help=True, help="Dead letters: URLs and seeds that finally failed, each with its reason."
)
app.add_typer(dead_app, name="dead")
add_to(app)


@app.command()
def version() -> None:
    """Print the version."""
    console.print(__version__, highlight=False)


@app.command()
def status(
    spider: SpiderName,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every second until Ctrl-C.")] = False,
    settings: Settings = None,
) -> None:
    """Show what waits, is under way and is done, and who is at work."""
    with crawls_of(project_of(settings), spider) as crawls:
        if watch and not as_json:
            with Live(console=console, auto_refresh=False) as live:
                while True:
                    live.update(status_panel(crawls.status()), refresh=True)
                    time.sleep(1)
        while True:
            found = crawls.status()
            if as_json:
                typer.echo(json.dumps(found.as_dict()))
            else:
                console.print(status_panel(found))
            if not watch:
                return
            time.sleep(1)


@app.command()
def seed(
    spider: SpiderName,
    urls: Annotated[list[str] | None, typer.Argument(metavar="[URL]...", help="URLs, or JSON objects.")] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", help="File with a URL or JSON object a line; - is standard input."),
    ] = None,
    sitemap: Annotated[
        list[str] | None, typer.Option("--sitemap", help="URL or file of a sitemap or sitemap index.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also fetch URLs that were seen before.")] = False,
    as_json: Json = False,
    settings: Settings = None,
) -> None:
    """Put URLs into a spider's frontier. Interrupted and run again, each URL is there once."""
    project = project_of(settings)
    places = places_of(urls or [], file or [], sitemap or [])
    fed = asyncio.run(_feed(project, spider, places, again=again))
    _tell_fed(fed, as_json=as_json)


@app.command()
def master(
    spider: SpiderName,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", help="File with a URL or JSON object a line; - is standard input."),
    ] = None,
    sitemap: Annotated[
        list[str] | None, typer.Option("--sitemap", help="URL or file of a sitemap or sitemap index.")
    ] = None,
    url: Annotated[list[str] | None, typer.Option("--url", help="A URL.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End when the crawl is finished.")] = False,
    as_json: Json = False,
    settings: Settings = None,
) -> None:
    """Feed sources into the frontier, bring back what dead workers held, and report until Ctrl-C."""
    project = project_of(settings)
    places = places_of(url or [], file or [], sitemap or []) if (url or file or sitemap) else None
    asyncio.run(_preside(project, spider, places, once=once, as_json=as_json))


async def _feed(project: Project, spider: str, places: Places, *, again: bool) -> Fed:
    make = project.seed_maker(spider, again=again)
    node = Master(project.config, project.target, project.crawl_of(spider), places.name)
    through = False
    try:
        await node.open(feeding=True)
        await node.feed(seeds_of(places), make, lambda fed: None)
        through = True
    finally:
        await node.close(through=through)
    return node.fed


def _tell_fed(fed: Fed, *, as_json: bool) -> None:
    for warning in fed.warnings:
        errors.print(f"trawlnet: warning: {warning}", markup=False, soft_wrap=True)
    if as_json:
        counts = {"read": fed.read, "new": fed.new, "known": fed.known, "bad": fed.bad, "over_budget": fed.over_budget}
        typer.echo(json.dumps(counts))
    else:
        console.print(fed.line, highlight=False)
    if fed.bad:
        sys.exit(EXIT_ERROR)


async def _preside(project: Project, spider: str, places: Places | None, *, once: bool, as_json: bool) -> None:
    node = Master(project.config, project.target, project.crawl_of(spider), places.name if places else "reporter")
    through = False
    try:
        await node.open(feeding=places is not None)
        if places is not None:
            await node.feed(seeds_of(places), project.seed_maker(spider, again=False), lambda fed: None)
            _say(f"fed {node.fed.line}", as_json=as_json)
        through = True
        await node.through()
        await asyncio.to_thread(_report, project, spider, once, as_json)
    finally:
        await node.close(through=through)


def _say(line: str, *, as_json: bool) -> None:
    (errors if as_json else console).print(line, highlight=False)


def _report(project: Project, spider: str, once: bool, as_json: bool) -> None:
    audited = 0.0
    with crawls_of(project, spider) as crawls:
        while True:
            found = crawls.status()
            if time.monotonic() >= audited + AUDIT_SECONDS:
                audited = time.monotonic()
                for each in crawls.audit().differences:
                    errors.print(f"trawlnet: warning: URLs are missing: {each}", highlight=False, soft_wrap=True)
            if as_json:
                typer.echo(json.dumps(found.as_dict()))
            else:
                console.print(*summary_lines(found), sep="\n", highlight=False)
            if once and found.state == "finished":
                return
            time.sleep(5 if not once else 1)


@app.command()
def up(
    spider: SpiderName,
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="How many workers.")] = 2,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder of the embedded server and the logs; kept between runs."),
    ] = None,
    settings: Settings = None,
    argument: Annotated[list[str] | None, typer.Option("-a", metavar="NAME=VALUE", help="A spider argument.")] = None,
) -> None:
    """Start an embedded server (unless REDIS_URL is set), and workers, on this machine; end when the crawl ends."""
    project = project_of(settings)
    project.start_key(spider)
    folder = data or Path(tempfile.mkdtemp(prefix="trawlnet-"))
    if project.settings.get("REDIS_URL"):
        _run_fleet(project, spider, workers, folder, settings or [], argument or [])
        return
    with EmbeddedServer(folder / "redis") as server:
        given = [*(settings or []), f"REDIS_URL={server.url}"]
        _run_fleet(project_of(given), spider, workers, folder, given, argument or [])


def _run_fleet(
    project: Project, spider: str, workers: int, folder: Path, settings: list[str], arguments: list[str]
) -> None:
    fleet = LocalFleet(spider, folder / "log", {}, settings, arguments)
    with crawls_of(project, spider) as crawls:
        fleet.start(workers)
        try:
            watch_fleet(fleet, crawls, console)
        except KeyboardInterrupt:
            console.print("stopping: unstarted URLs go back, downloads get 20 s; press Ctrl-C again to stop at once")
            fleet.stop()
            raise
        console.print(*summary_lines(crawls.status()), sep="\n", highlight=False)
    console.print(f"logs: {folder / 'log'}", highlight=False, soft_wrap=True)
    if fleet.failed:
        number = fleet.failed[0]
        raise WorkersFailed(
            f"{len(fleet.failed)} of {workers} workers failed; worker {number}: {fleet.last_error(number)}"
        )


@app.command()
def purge(
    spider: SpiderName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Even while workers are at it.")] = False,
    as_json: Json = False,
    settings: Settings = None,
) -> None:
    """Remove everything that Redis has of a spider's crawl; its start URLs key stays."""
    with crawls_of(project_of(settings), spider) as crawls:
        before = crawls.status()
        count = sum(1 for _ in crawls.own_keys()) if dry_run else crawls.purge(force=force)
    facts = {
        "keys": count,
        "waiting": before.waiting,
        "in_flight": before.in_flight,
        "dead": before.dead,
        "seen": before.seen,
    }
    if as_json:
        typer.echo(json.dumps({**facts, "removed": not dry_run}))
        return
    verb = "would remove" if dry_run else "removed"
    console.print(
        f"{verb} {count} keys: {before.waiting} waiting URLs, {before.in_flight} in flight, {before.dead} "
        "dead letters, "
        f"a filter of {before.seen} URLs",
        highlight=False,
    )


@app.command()
def migrate(
    spider: SpiderName,
    delete: Annotated[bool, typer.Option("--delete", help="Remove scrapy-redis's filter afterwards.")] = False,
    as_json: Json = False,
    settings: Settings = None,
) -> None:
    """Take over the filter of a scrapy-redis crawl, so that nothing is fetched again. Interrupted, run it again."""
    project = project_of(settings)
    identity, old = project.fingerprinter_identity(spider), project.old_crawl(spider)
    with crawls_of(project, spider) as crawls:
        migrated = crawls.migration(SeenSpec.of(project.config), identity).run(old, delete=delete)
    if as_json:
        typer.echo(json.dumps(asdict(migrated)))
        return
    console.print(f"{migrated.read} fingerprints of {old.dupefilter}: {migrated.new} new here", highlight=False)
    if migrated.foreign:
        errors.print(f"trawlnet: warning: {migrated.foreign} members are no SHA-1 of scrapy-redis and were left out")


@dead_app.command("list")
def dead_list(
    spider: SpiderName,
    most: Annotated[int, typer.Option("--most", min=1, help="How many, newest first.")] = 100,
    as_json: Json = False,
    settings: Settings = None,
) -> None:
    """Show dead letters."""
    with crawls_of(project_of(settings), spider) as crawls:
        letters = list(crawls.dead_letters(most))
    if as_json:
        typer.echo(
            json.dumps([{"id": letter.id, "replayable": letter.replayable, **letter.fields} for letter in letters])
        )
    else:
        console.print(dead_table(letters))


@dead_app.command("replay")
def dead_replay(
    spider: SpiderName,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Which; all without.")] = None,
    as_json: Json = False,
    settings: Settings = None,
) -> None:
    """Put dead letters back into the queue; those that go back leave the list."""
    with crawls_of(project_of(settings), spider) as crawls:
        count = crawls.replay(ids or None)
    typer.echo(json.dumps({"replayed": count})) if as_json else console.print(
        f"{count} URLs are queued again", highlight=False
    )


@app.command()
def export(
    storage: Annotated[
        str,
        typer.Argument(metavar="STORAGE", help="As in CRAWLER_STORAGE: sqlite:///items.db, jsonlines:DIR."),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="File; - is standard output.")] = "-",
    form: Annotated[str, typer.Option("--format", help="jsonl or csv.")] = "jsonl",
) -> None:
    """Write the stored items, merged and each once, as JSON Lines or CSV."""
    write: Callable[..., int] = export_records
    store = open_storage(storage)
    store.open()
    try:
        if output == "-":
            write(store, sys.stdout, form)
        else:
            with Path(output).open("w", encoding="utf-8", newline="") as out:
                count = write(store, out, form)
            errors.print(f"{count} items in {output}", highlight=False, soft_wrap=True)
    finally:
        store.close()
