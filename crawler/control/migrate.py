"""Takes the filter of a scrapy-redis crawl over, so that what was fetched under it is not fetched again."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from redis import Redis

from crawler.errors import ClashError, ConfigError
from crawler.frontier.identity import digest
from crawler.frontier.plan import Put
from crawler.frontier.store import SeenSpec, Session
from crawler.redisdb.keys import FEEDER_PREFIX, Partition
from crawler.redisdb.scripts import Call, run_now

BATCH = 256
SHA1_HEX_CHARACTERS = 40
LAPSE_MS = 60_000
BEAT_SECONDS = 5.0
NAME = FEEDER_PREFIX + "migrate"


@dataclass(frozen=True, slots=True)
class OldCrawl:
    """Keys of a crawl as scrapy-redis names them: SET of fingerprints, and ZSET or LIST of pickled requests."""

    dupefilter: str
    requests: str


@dataclass(slots=True)
class Migrated:
    """What a migration came to; ``foreign`` counts members that are no fingerprint of scrapy-redis."""

    read: int = 0
    new: int = 0
    foreign: int = 0


class Migration:
    """Copies fingerprints in batches. Interrupted and run again it copies the rest, and each is there once.

    Until it is through, the crawl counts as being fed, so it does not end.
    """

    def __init__(self, client: Redis, crawl: str, spec: SeenSpec, identity: dict[str, str]) -> None:
        """Takes the crawl, its filter, and the names that its workers have to share (its fingerprinter's class)."""
        self._client: Any = client
        self._session = Session(Partition(crawl), NAME, spec)
        self._identity = identity
        self._beat_at = 0.0

    def run(self, old: OldCrawl, *, delete: bool = False) -> Migrated:
        """Copies the old filter; ``delete`` removes it afterwards.

        Raises:
            ConfigError: there is no such filter.
            ClashError: requests of scrapy-redis still wait, or the crawl here is another project's.
        """
        self._check(old)
        session, migrated = self._session, Migrated()
        session.read_opened(self._ask(session.open(self._identity, LAPSE_MS, feeder=NAME)))
        for members in self._batches(old.dupefilter):
            self._keep_alive()
            found = [fingerprint for fingerprint in map(_fingerprint, members) if fingerprint is not None]
            migrated.read += len(members)
            migrated.foreign += len(members) - len(found)
            if found:
                # An entry without a body is recorded as seen, and nothing is queued.
                puts = [Put("", 0, digest(fingerprint), b"", b"") for fingerprint in found]
                (new,) = session.read(self._ask(session.put(puts)))
                migrated.new += new.count(b"1")
        self._ask(session.leave(NAME))
        if delete:
            self._client.unlink(old.dupefilter)
        return migrated

    def _check(self, old: OldCrawl) -> None:
        kind = self._client.type(old.dupefilter).decode()
        if kind != "set":
            raise ConfigError(
                f"{old.dupefilter!r} is {'not there' if kind == 'none' else f'a {kind}'}, expected the set of "
                "fingerprints that scrapy-redis keeps; SCHEDULER_DUPEFILTER_KEY names another key"
            )
        waiting = self._client.type(old.requests).decode()
        if waiting != "none":
            raise ClashError(
                f"{old.requests!r} ({waiting}) holds requests that scrapy-redis has not fetched and counts as seen; "
                "they are pickles, which are never read here: finish that crawl with scrapy-redis, or delete the key "
                "to give them up, and run this again"
            )

    def _batches(self, key: str) -> Iterator[list[bytes]]:
        cursor = 0
        while True:
            cursor, members = self._client.sscan(key, cursor, count=BATCH)
            for at in range(0, len(members), BATCH):
                yield members[at : at + BATCH]
            if not cursor:
                return

    def _keep_alive(self) -> None:
        if time.monotonic() >= self._beat_at:
            self._ask(self._session.beat(LAPSE_MS, LAPSE_MS, {"master": 1}, []))
            self._beat_at = time.monotonic() + BEAT_SECONDS

    def _ask(self, call: Call) -> Any:
        return run_now(self._client, call)


def _fingerprint(member: bytes) -> bytes | None:
    try:
        return bytes.fromhex(member.decode("ascii")) if len(member) == SHA1_HEX_CHARACTERS else None
    except ValueError:
        return None
