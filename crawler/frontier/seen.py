"""What is known of a seen filter from its description: how often it takes a new URL for a seen one."""

import math
from collections.abc import Sequence

BLOCK_BITS = 512
PROBES = 10


def false_positive_rate(layers: Sequence[Sequence[float]]) -> float:
    """Expected share of new URLs that a Bloom filter takes for seen ones.

    Args:
        layers: as lib/seen_bloom.lua keeps them: blocks, capacity, members, error rate.

    The load of a block is Poisson distributed (Putze, Sanders, Singler 2007); layers err independently.
    """
    right = 1.0
    for blocks, _, members, _ in layers:
        right *= 1.0 - _layer_rate(members / blocks if blocks else 0.0)
    return 1.0 - right


def _layer_rate(load: float) -> float:
    if load <= 0:
        return 0.0
    total, chance = 0.0, math.exp(-load)
    for members in range(int(load + 12 * math.sqrt(load)) + 20):
        fill = 1.0 - (1.0 - 1.0 / BLOCK_BITS) ** (PROBES * members)
        total += chance * fill**PROBES
        chance *= load / (members + 1)
    return total
