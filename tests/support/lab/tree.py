"""A random-looking tree over 0..size-1 with root 0, computed on asking: no table, whatever the size."""

from math import gcd

from tests.support.lab.draws import draws

ARITY = 3
"""Most children of a node: 3,000 pages are then at most seven links from the start."""


class Tree:
    """A complete tree whose nodes are shuffled by an affine permutation, so that neighbours lie apart."""

    def __init__(self, size: int, arity: int, seed: int) -> None:
        self._size = size
        self._arity = arity
        self._rest = max(size - 1, 1)
        first, self._shift = draws(seed, f"tree/{size}", 2)
        step = first % self._rest or 1
        while gcd(step, self._rest) != 1:
            step += 1
        self._step = step
        self._back = pow(step, -1, self._rest)

    def children(self, node: int) -> list[int]:
        """Every node but 0 is a child of exactly one node."""
        first = self._arity * self._place(node) + 1
        return [self._node(place) for place in range(first, min(first + self._arity, self._size))]

    def _place(self, node: int) -> int:
        return 0 if node == 0 else 1 + (self._step * (node - 1) + self._shift) % self._rest

    def _node(self, place: int) -> int:
        return 0 if place == 0 else 1 + self._back * (place - 1 - self._shift) % self._rest
