"""Names, types and lifetimes of every key that Trawlnet has in Redis."""

from dataclasses import dataclass

SCHEMA = "1"
"""Raised when keys or scripts change in a way that older workers cannot share."""

FEEDER_PREFIX = "feeder-"
"""How masters are called in the roster."""

FIXED = (
    "",  # the prefix itself: where scripts build the keys that they find only inside
    "state",  # HASH   generation, phase, start lease, last lease id, last time seen; kept
    "hosts",  # ZSET   host with waiting entries -> ms from which it may be asked
    "delayed",  # ZSET   packed {host, band, element, {url, try, cause, detail}} -> due ms
    "inflight",  # HASH   lease id -> packed {worker, host, band, element}
    "lease",  # ZSET   lease id -> expiry ms
    "suspects",  # LIST   packed {host, band, element} whose worker died; handed out one a worker at a time
    "dead",  # STREAM dead letters; kept until replayed or dropped
    "counters",  # HASH   waiting, put, seen, done, dead, duplicate, ...: frontier/account.py; of one generation
    "workers",  # ZSET   worker or feeder -> ms at which it counts as dead
    "idle",  # SET    workers that found nothing to claim
    "wake",  # STRING counter that changes when idle workers should look again; 60 s
    "feeders",  # SET    feeders that are not through with their source
    "garbage",  # SET    seen filters of old generations, swept bit by bit
    "limits",  # HASH   rules of hosts: default, globs, r:<host or domain>; kept
    "blocks",  # ZSET   host -> ms until which nobody may ask it; kept until it is over
    "slowed",  # ZSET   host that is asked less often than its rule says -> ms until which its pace:<host> counts
    "flight",  # HASH   host with a cap -> requests that the fleet may have under way on it just now
    "spent",  # HASH   budget -> URLs accepted of it; of one generation
)
"""Keys in the order in which every frontier script has them in KEYS; two of the caller's own follow."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Key names of one partition of a crawl; all share one hash tag, so scripts run on a cluster too."""

    crawl: str
    number: int = 0

    @property
    def prefix(self) -> str:
        """Beginning of every key of the partition."""
        return f"trawlnet:{{{self.crawl}:{self.number}}}:"

    def key(self, name: str) -> str:
        """Name of one key: one of FIXED, or ``q:<host>:<band>`` (LIST), ``prio:<host>`` (ZSET of bands); of hosts with
        a limit ``host:<host>`` (HASH) and ``turns:<host>`` (LIST), of hosts that asked for patience ``heard:<host>``,
        that fail ``failing:<host>``, that are slowed down ``pace:<host>``, of a scheme and authority ``robots:<site>``
        (HASHes), each until it tells nothing any more; ``busy:<worker>`` (HASH host -> permits) and ``addresses``
        (HASH host -> address) for a day; ``cookies:<generation>:<jar>`` (HASH of domains)
        and ``jars`` (ZSET of their changes) for a lifetime.
        """
        return self.prefix + name

    def session(self, worker: str) -> str:
        """HASH of a worker's ordered stream: token, sequence, kept reply, report; one day after its last beat."""
        return self.prefix + "session:" + worker

    def held(self, worker: str) -> str:
        """SET of lease ids that a worker holds."""
        return self.prefix + "held:" + worker

    def seen(self, generation: int) -> str:
        """Base of the seen filter; its parts are ``<base>:<layer>:<segment>`` or ``<base>:<bucket>``."""
        return f"{self.prefix}seen:{generation}"

    def once(self, generation: int) -> str:
        """Base of the exact set of instances that were put (entries with ``dont_filter``)."""
        return f"{self.prefix}once:{generation}"

    def script_keys(self, worker: str) -> list[str]:
        """KEYS of the frontier scripts when called by a worker."""
        return [*(self.prefix + name for name in FIXED), self.session(worker), self.held(worker)]


@dataclass(frozen=True, slots=True)
class Intake:
    """Keys through which raw start URLs go; all in the slot of the start URLs key."""

    start: str

    @property
    def raw(self) -> str:
        """HASH seed id -> raw seed that was taken and is not in the frontier yet."""
        return f"trawlnet:{{{self.start}}}:intake"

    @property
    def due(self) -> str:
        """ZSET seed id -> ms at which another worker may take it."""
        return f"trawlnet:{{{self.start}}}:intake_due"

    def script_keys(self) -> list[str]:
        """KEYS of the intake scripts."""
        return [self.start, self.raw, self.due]
