"""Lua scripts: read from their files, composed with the libraries they name, run in one round trip."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import NoScriptError

_LIBRARIES = re.compile(r"^--! (.+)\n")


@dataclass(frozen=True, slots=True)
class Script:
    """A composed script and the digest under which Redis knows it."""

    name: str
    text: str
    sha: str


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a script; KEYS, then ARGV."""

    script: Script
    keys: Sequence[str]
    args: Sequence[bytes | str | int]

    def command(self) -> list[bytes | str | int]:
        """The EVALSHA command that runs it."""
        return ["EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args]


def read_script(package: str, name: str, **variants: str) -> Script:
    """Reads ``lua/<name>.lua`` of a package of ``crawler``.

    Its first line ``--! a b_{x} other/c`` names libraries of ``lua/lib/``, with ``{x}`` from variants, and those of
    other packages.
    """
    text = _lua(package).joinpath(f"{name}.lua").read_text(encoding="utf-8")
    first = _LIBRARIES.match(text)
    parts = []
    if first:
        for library in first.group(1).format(**variants).split():
            *other, file = library.split("/")
            lib = _lua(*other or [package]).joinpath("lib", f"{file}.lua")
            parts.append(lib.read_text(encoding="utf-8"))
    composed = "\n".join([*parts, text])
    return Script(name, composed, hashlib.sha1(composed.encode(), usedforsecurity=False).hexdigest())


def _lua(package: str) -> Traversable:
    return files(f"crawler.{package}") / "lua"


async def run(client: AsyncRedis, calls: Sequence[Call]) -> list[Any]:
    """Runs the calls in order in one round trip; a failed one has its exception in its place.

    Scripts that the server has lost are loaded and the calls sent again from the first that was refused on.

    Raises:
        redis.exceptions.RedisError: when the connection fails; then nothing is known of what ran.
    """
    results = await _send(client, calls)
    missing = next((i for i, result in enumerate(results) if isinstance(result, NoScriptError)), None)
    if missing is None:
        return results
    for script in {call.script.sha: call.script for call in calls[missing:]}.values():
        await client.script_load(script.text)
    return results[:missing] + await _send(client, calls[missing:])


def run_now(client: Redis, call: Call) -> Any:
    """Runs one script call on a blocking client."""
    try:
        return client.execute_command(*call.command())
    except NoScriptError:
        return client.execute_command("EVAL", call.script.text, len(call.keys), *call.keys, *call.args)


async def _send(client: AsyncRedis, calls: Sequence[Call]) -> list[Any]:
    if len(calls) == 1:
        try:
            return [await client.execute_command(*calls[0].command())]
        except NoScriptError as error:
            return [error]
    pipeline = client.pipeline(transaction=False)
    for call in calls:
        pipeline.execute_command(*call.command())
    return list(await pipeline.execute(raise_on_error=False))
