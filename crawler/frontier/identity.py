"""Who an entry is: its key in the seen filter, its instance, its page, its queue and its priority band."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

DIGEST_BYTES: Final = 16
INSTANCE_BYTES: Final = 8
_EXACT_BANDS: Final = 128
_HIGHEST_BAND: Final = 10**15  # Redis's scores are doubles, exact to 2**53


def digest(fingerprint: bytes) -> bytes:
    """The 16 bytes that stand for a request's fingerprint, of any length, in the seen filter."""
    return blake2b(fingerprint, digest_size=DIGEST_BYTES).digest()


def instance_id(parent: bytes, fingerprint: bytes, occurrence: int) -> bytes:
    """The 8 bytes that name one request of one parent, the same each time the parent runs.

    Args:
        parent: instance id of the page it came from, id of the raw seed, or `b"start"`.
        fingerprint: of the request.
        occurrence: how many requests with this fingerprint the parent made before.
    """
    content = b"".join((len(parent).to_bytes(4, "big"), parent, occurrence.to_bytes(8, "big"), fingerprint))
    return blake2b(content, digest_size=INSTANCE_BYTES).digest()


def page_key(fingerprint: bytes, instance: bytes, dont_filter: bool) -> str:
    """Hex name of a page in storage: its digest, or its instance where one URL may be asked many times."""
    return (instance if dont_filter else digest(fingerprint)).hex()


def queue_of(hostname: str | None, slot: object = None) -> str:
    """Name of the queue of a URL: the request's `download_slot` as it is, else the host in lower case."""
    if slot is not None:
        return str(slot)
    return (hostname or "").lower().rstrip(".")


def band_of(priority: int) -> int:
    """The band whose queue an entry waits in, so that many distinct priorities need few queues.

    Exact from -128 to 128, beyond that rounded away from zero to two significant digits and at most 10**15.
    A higher priority never gets a lower band.
    """
    size = abs(priority)
    if size <= _EXACT_BANDS:
        return int(priority)
    unit: int = 10 ** (len(str(min(size, _HIGHEST_BAND))) - 2)
    band = min(-(-size // unit) * unit, _HIGHEST_BAND)
    return band if priority > 0 else -band
