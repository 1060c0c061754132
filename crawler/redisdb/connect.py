"""Connections: from the settings that scrapy-redis users know to clients with the behaviour that Trawlnet needs."""

import asyncio
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from redis import Redis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)
from redis.retry import Retry

from crawler.errors import ConfigError, RedisUnreachable, ServerUnfit

OLDEST_SERVER = (6, 2)
"""LPOP and ZMSCORE as the scripts use them came with 6.2."""

ANSWER_SECONDS = 1.0
"""Time that every try is given: who is not to wait for a server still hears one that is there."""

PASSING = re.compile(
    r"^(LOADING|READONLY|MISCONF|BUSY|OOM|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|MASTERDOWN|NOSCRIPT|UNKILLABLE)\b"
    r"|command not allowed (when used memory|under OOM)",
    re.IGNORECASE,
)
"""Errors after which the same batch is sent again."""


@dataclass(frozen=True, slots=True)
class RedisTarget:
    """Where Redis is. ``params`` go to the client as they are (``REDIS_PARAMS``)."""

    url: str = "redis://localhost:6379/0"
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    socket_seconds: float = 20.0

    @property
    def shown(self) -> str:
        """The address without user, password or query."""
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        return f"{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "socket_timeout": self.socket_seconds,
            "socket_connect_timeout": min(5.0, self.socket_seconds),
            "socket_keepalive": True,
            "client_name": "trawlnet",
        }
        options.update(self.params)
        # Scripts answer in bytes: REDIS_DECODE_RESPONSES is for a spider's own connection only.
        options.update(decode_responses=False)
        return options

    def async_client(self) -> AsyncRedis:
        """A client for the event loop; retries are the caller's, since only it knows what may run twice."""
        # One connection: batches are in order anyway, and a fleet of many workers must not cost many connections.
        pool = BlockingConnectionPool.from_url(
            self.url, retry=AsyncRetry(NoBackoff(), 0), max_connections=1, timeout=None, **self._options()
        )
        return AsyncRedis.from_pool(pool)

    def client(self, **more: Any) -> Redis:
        """A blocking client, for threads and for commands of the operator."""
        return Redis.from_url(self.url, retry=Retry(NoBackoff(), 0), **{**self._options(), **more})


def target_from(get: Mapping[str, Any]) -> RedisTarget:
    """Reads REDIS_URL (beats the rest), REDIS_HOST, REDIS_PORT, REDIS_DB, REDIS_PARAMS, REDIS_ENCODING as
    scrapy-redis does.

    Raises:
        ConfigError: for an address that is none.
    """
    params = _params(get.get("REDIS_PARAMS") or {})
    if get.get("REDIS_ENCODING"):
        params["encoding"] = get["REDIS_ENCODING"]
    url = get.get("REDIS_URL") or params.pop("url", None)
    if not url and not get.get("REDIS_HOST") and "host" not in params:
        url = os.environ.get("REDIS_URL")
    if not url:
        host = get.get("REDIS_HOST") or params.pop("host", None) or "localhost"
        port = get.get("REDIS_PORT") or params.pop("port", None) or 6379
        db = get.get("REDIS_DB") or params.pop("db", None) or 0
        url = f"redis://{quote(str(host), safe=':[]')}:{port}/{db}"
    if not re.match(r"^(rediss?|unix)://", str(url)):
        scheme = str(url).split(":", 1)[0] if "://" in str(url) else "none"
        raise ConfigError(
            f"REDIS_URL must begin with redis://, rediss:// or unix://, got the scheme {scheme!r}; set for example "
            "REDIS_URL=redis://localhost:6379/0"
        )
    try:
        urlsplit(str(url)).port  # noqa: B018 - reading it is the check
    except ValueError as error:
        raise ConfigError(f"REDIS_URL has no usable port ({error}); set for example redis://localhost:6379/0") from None
    return RedisTarget(str(url), params)


def _params(given: Any) -> dict[str, Any]:
    """REDIS_PARAMS as a dict, or as the JSON that ``-s`` gives."""
    try:
        params = dict(json.loads(given) if isinstance(given, str) else given)
    except (TypeError, ValueError):
        raise ConfigError("REDIS_PARAMS must be a dict of the client's parameters, or that as JSON") from None
    return {key: value for key, value in params.items() if key not in {"redis_cls", "decode_responses"}}


def is_passing(error: BaseException) -> bool:
    """Whether the same call may succeed later: the connection failed, or the server cannot take it just now."""
    if isinstance(error, AuthenticationError):
        return False
    if isinstance(
        error,
        (RedisConnectionError, RedisTimeoutError, BusyLoadingError, ReadOnlyError, OutOfMemoryError, OSError),
    ):
        return True
    return isinstance(error, ResponseError) and bool(PASSING.search(str(error)))


async def wait_until_ready(client: AsyncRedis, target: RedisTarget, wait_seconds: float) -> list[str]:
    """Waits for a server that answers and is fit; returns warnings about how it is set up.

    Raises:
        RedisUnreachable: no answer in time; names host and port, never a password.
        ServerUnfit: the server is older than 6.2.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_seconds
    while True:
        try:
            # A server that takes connections and is silent would else be waited for as long as its socket.
            async with asyncio.timeout(max(deadline - loop.time(), ANSWER_SECONDS)):
                info: dict[str, Any] = await client.info("server")
            break
        except (RedisError, OSError) as error:
            cause = _cause(error, target)
            if not is_passing(error):
                raise RedisUnreachable(
                    f"Redis at {target.shown} refuses its use: {cause}; check user, password and database in REDIS_URL"
                ) from None
            if loop.time() >= deadline:
                raise RedisUnreachable(
                    f"Redis at {target.shown} cannot be used after {wait_seconds:g} s: {cause}; "
                    "start it, or set REDIS_URL"
                ) from None
        await asyncio.sleep(min(0.25, max(0.01, deadline - loop.time())))
    version = str(info.get("redis_version", "0.0"))
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVER:
        raise ServerUnfit(
            f"the server at {target.shown} is Redis {version}; Trawlnet needs Redis 6.2 or newer, or Valkey"
        )
    memory: dict[str, Any] = await client.info("memory")
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        return [
            f"the server at {target.shown} has maxmemory-policy {policy!r}: under memory pressure it "
            "deletes queued URLs; "
            "set maxmemory-policy noeviction"
        ]
    return []


def _cause(error: BaseException, target: RedisTarget) -> str:
    text = str(error) or ("no answer" if isinstance(error, TimeoutError) else type(error).__name__)
    password = urlsplit(target.url).password
    for secret in filter(None, (password, target.params.get("password"))):
        text = text.replace(str(secret), "***")
    return text.rstrip(".")
