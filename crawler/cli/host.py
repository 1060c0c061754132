"""Commands that show hosts and change what holds for them while a crawl runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from crawler.cli.parts import Json, Settings, SpiderName, console, crawls_of, project_of
from crawler.control.hosts import HostDesk
from crawler.control.screen import host_facts, host_table
from crawler.errors import ConfigError
from crawler.throttle.rules import HIGHEST_RATE, LEAST_RATE

host_app = typer.Typer(
    no_args_is_help=True,
    help="Hosts: what holds for them, and orders that every worker follows within a second. A domain stands for "
    "all hosts below it too.",
)

HostName = Annotated[str, typer.Argument(metavar="HOST", help="A host or a domain.")]


@contextmanager
def _desk(settings: list[str] | None, spider: str) -> Iterator[HostDesk]:
    project = project_of(settings)
    with crawls_of(project, spider) as crawls:
        yield crawls.hosts()


def _say(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


@host_app.command("list")
def host_list(
    spider: SpiderName,
    most: Annotated[int, typer.Option("--most", min=1, help="How many.")] = 50,
    as_json: Json = False,
    settings: Settings = None,
) -> None:
    """Show hosts: those ordered, blocked or slowed down first, then those with URLs."""
    with _desk(settings, spider) as desk:
        found = desk.overview(most)
    if as_json:
        typer.echo(json.dumps([each.as_dict() for each in found]))
    else:
        console.print(host_table(found))


@host_app.command("show")
def host_show(spider: SpiderName, host: HostName, as_json: Json = False, settings: Settings = None) -> None:
    """Show all that holds for a host."""
    with _desk(settings, spider) as desk:
        [found] = desk.show([host])
    if as_json:
        typer.echo(json.dumps(found.as_dict()))
    else:
        console.print(host_facts(found))


@host_app.command("slow")
def host_slow(
    spider: SpiderName,
    host: HostName,
    rate: Annotated[float, typer.Argument(metavar="RATE", help="Requests a second, such as 0.5.")],
    settings: Settings = None,
) -> None:
    """Give a host so many requests a second, whatever its rule says."""
    if not LEAST_RATE <= rate <= HIGHEST_RATE:
        raise ConfigError(f"got the rate {rate:g}; it must be from {LEAST_RATE:g} to {HIGHEST_RATE:g} a second")
    with _desk(settings, spider) as desk:
        desk.slow(host, rate)
    _say(f"{host} gets {rate:g} requests a second, until: trawlnet host resume {spider} {host}")


@host_app.command("pause")
def host_pause(spider: SpiderName, host: HostName, settings: Settings = None) -> None:
    """Let nobody ask a host; its URLs wait."""
    with _desk(settings, spider) as desk:
        desk.pause(host)
    _say(f"{host} is paused, until: trawlnet host resume {spider} {host}")


@host_app.command("block")
def host_block(spider: SpiderName, host: HostName, settings: Settings = None) -> None:
    """Let nobody ask a host; its URLs become dead letters (trawlnet dead)."""
    with _desk(settings, spider) as desk:
        desk.block(host)
    _say(f"{host} is blocked, until: trawlnet host resume {spider} {host}")


@host_app.command("resume")
def host_resume(spider: SpiderName, host: HostName, settings: Settings = None) -> None:
    """Lift an order, a block and what slows a host down."""
    with _desk(settings, spider) as desk:
        had = desk.resume(host)
    _say(f"{host} is as its rule says" + ("" if had else "; there was no order for it"))
