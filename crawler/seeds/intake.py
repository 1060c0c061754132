"""Takes raw seeds from a spider's start URLs key; each stays in Redis under a lease until it is in the frontier."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgpack

from crawler.errors import TrawlnetError
from crawler.redisdb.keys import Intake
from crawler.redisdb.scripts import Call, read_script


class WrongKeyType(TrawlnetError):
    """The start URLs key holds something that is not a list, set or sorted set."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Raw seeds by id, how many are unread, and how many are between the key and the frontier."""

    seeds: Sequence[tuple[str, bytes]]
    unread: int
    outstanding: int


class IntakeScripts:
    """Builds the calls of the intake and reads their replies."""

    def __init__(self, keys: Intake) -> None:
        self.keys = keys
        self._take = read_script("seeds", "take")
        self._taken = read_script("seeds", "taken")

    def take(self, most: int, lease_ms: int) -> Call:
        """Takes up to ``most`` seeds; those whose taker died come first."""
        return Call(self._take, self.keys.script_keys(), [most, lease_ms])

    def taken(self, ids: Sequence[str]) -> Call:
        """Says that seeds are in the frontier."""
        return Call(self._taken, self.keys.script_keys(), list(ids))

    def read(self, reply: bytes) -> Taken:
        """Reads the reply of ``take``.

        Raises:
            WrongKeyType: names the key and its type.
        """
        status, *rest = msgpack.unpackb(reply, raw=True)
        if status == b"type":
            raise WrongKeyType(
                f"start URLs key {self.keys.start!r} is a {rest[0].decode()}, expected a list, set or sorted set; "
                f"rename it or delete it, then seed with: redis-cli lpush {self.keys.start} URL"
            )
        seeds, unread, outstanding = rest
        return Taken([(seed_id.decode(), raw) for seed_id, raw in seeds], unread, outstanding)
