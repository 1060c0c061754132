"""Commands that say where URLs are."""

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from crawler.cli.parts import EXIT_ERROR, Json, Settings, SpiderName, console, crawls_of, project_of
from crawler.control.screen import audit_panel, retry_table


def retries(
    spider: SpiderName,
    most: Annotated[int, typer.Option("--most", min=1, help="How many, the next ones first.")] = 100,
    as_json: Json = False,
    settings: Settings = None,
) -> None:
    """Show failed URLs that wait for their new try: when, which one, and why."""
    with crawls_of(project_of(settings), spider) as crawls:
        found = crawls.retries(most)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found]))
    else:
        console.print(retry_table(found))


def audit(spider: SpiderName, as_json: Json = False, settings: Settings = None) -> None:
    """Show where all URLs are, and check that none is missing; ends with 1 where one is."""
    with crawls_of(project_of(settings), spider) as crawls:
        found = crawls.audit()
    if as_json:
        typer.echo(json.dumps(found.as_dict()))
    else:
        console.print(audit_panel(found))
    if found.differences:
        sys.exit(EXIT_ERROR)


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(retries)
    app.command()(audit)
