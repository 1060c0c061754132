"""Numbers that depend on nothing but the seed and a name: the same on every machine and Python."""

import struct
from hashlib import shake_128

FULL = 1 << 32
"""Draws are integers from 0 to one below this."""


def draws(seed: int, name: str, count: int) -> tuple[int, ...]:
    """``count`` numbers of 32 bits for one name."""
    digest = shake_128(f"{seed}/{name}".encode()).digest(4 * count)
    return struct.unpack(f"<{count}I", digest)


def fraction(seed: int, name: str) -> float:
    """One number from 0 to below 1."""
    return draws(seed, name, 1)[0] / FULL
