"""What all commands share: options, the console, and one line with an exit code for each error of ours."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer
from redis.exceptions import RedisError
from rich.console import Console

from crawler.components.project import Project
from crawler.control.crawls import Crawls
from crawler.errors import ClashError, ConfigError, RedisUnreachable, TrawlnetError

EXIT_ERROR, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_STOPPED = 1, 2, 3, 4

console = Console()
errors = Console(stderr=True)

Settings = Annotated[
    list[str] | None, typer.Option("-s", "--set", metavar="NAME=VALUE", help="A setting, as in scrapy crawl.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SpiderName = Annotated[str, typer.Argument(metavar="SPIDER", help="Name of the spider.")]


def as_interrupt(number: int, frame: FrameType | None) -> None:
    """Makes SIGTERM what Ctrl-C is."""
    raise KeyboardInterrupt


@contextmanager
def main_errors() -> Iterator[None]:
    """Makes one line and an exit code of every error of ours, and of Ctrl-C or SIGTERM."""
    try:
        yield
    except RedisUnreachable as error:
        _fail(error, EXIT_UNREACHABLE)
    except (ConfigError, ClashError) as error:
        _fail(error, EXIT_USAGE)
    except TrawlnetError as error:
        _fail(error, EXIT_ERROR)
    except KeyboardInterrupt:
        errors.print("trawlnet: stopped")
        sys.exit(EXIT_STOPPED)


def _fail(error: BaseException, code: int) -> None:
    errors.print(f"trawlnet: {error}", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


def project_of(given: list[str] | None) -> Project:
    """The project around the working directory, with settings given on the command line."""
    overrides: dict[str, str] = {}
    for setting in given or []:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"a setting is given as NAME=VALUE, got {setting!r}")
        overrides[name] = value
    if os.environ.get("REDIS_URL") and "REDIS_URL" not in overrides:
        overrides["REDIS_URL"] = os.environ["REDIS_URL"]
    return Project(overrides)


@contextmanager
def crawls_of(project: Project, spider: str) -> Iterator[Crawls]:
    """A spider's crawl in Redis.

    Raises:
        RedisUnreachable: at the end of the block, for whatever Redis refused in it.
    """
    target = project.target
    client = target.client(socket_timeout=10, socket_connect_timeout=3)
    try:
        yield Crawls(client, project.crawl_of(spider), project.start_key_if_known(spider))
    except (RedisError, OSError) as error:
        raise RedisUnreachable(f"Redis at {target.shown} cannot be used: {error}; start it, or set REDIS_URL") from None
    finally:
        client.close()
