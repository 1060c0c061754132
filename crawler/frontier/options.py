"""Sizes and times of a worker's side of the frontier."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slots:
    """Concurrent requests of a worker, and of it on one host."""

    concurrency: int = 16
    per_host: int = 8
    lease_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """Sizes and times of the dispatcher."""

    identity: dict[str, str]
    slots: Slots
    lease_max_seconds: float = 3600.0
    lapse_seconds: float = 10.5
    tick_seconds: float = 0.05
    settle_seconds: float = 0.1
    buffer_entries: int = 2000
    keep_seen: bool = False
    worker: str = ""
