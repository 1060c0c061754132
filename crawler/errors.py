"""Every error that Trawlnet raises on purpose; each message says what, got and next."""


class TrawlnetError(Exception):
    """Base of all errors of this package."""


class ConfigError(TrawlnetError):
    """A setting or an argument cannot be used as it is."""


class RedisUnreachable(TrawlnetError):
    """No answer from Redis within the time that was set for the start."""


class ServerUnfit(TrawlnetError):
    """The Redis or Valkey server is too old, or lacks what the frontier needs."""


class ClashError(TrawlnetError):
    """The crawl's keys in Redis belong to another project, spider, filter or fingerprinter."""


class StaleSession(TrawlnetError):
    """Redis no longer holds this worker's session: it restarted, was purged, or lost its last writes."""


class StorageError(TrawlnetError):
    """A backend could not write now; the same batch may succeed later."""


class RecordRefused(TrawlnetError):
    """A backend will never take this one record."""


class WireError(TrawlnetError):
    """Bytes of an entry cannot be read by this version."""


class UnserialisableRequest(TrawlnetError):
    """A request holds a value that cannot travel through Redis."""


class Undeliverable(TrawlnetError):
    """An entry that no request is made of; ``kind`` is its dead letter's class, ``url`` its own, where it is known."""

    kind = ""
    url = ""


class UnknownCallback(Undeliverable):
    """An entry names a callback or errback that the spider does not have."""

    kind = "unknown_callback"


class HostRefused(Undeliverable):
    """An operator refuses the entry's host."""

    kind = "host_refused"


class HostLost(Undeliverable):
    """The entry's host has failed for too long."""

    kind = "host_lost"


class BadSeed(TrawlnetError):
    """A start URL entry is malformed."""
