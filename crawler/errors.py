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


class UnknownCallback(TrawlnetError):
    """An entry names a callback or errback that the spider does not have; ``url`` is the entry's, where it is known."""

    url = ""


class BadSeed(TrawlnetError):
    """A start URL entry is malformed."""
