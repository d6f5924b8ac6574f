"""The fewest bytes of a program over all of its plans: every choice, every exchange of equal cuts, every order.

All prices are exact (conversions.py), whatever the sizes. The least sum is found by dynamic programming over the graph:
variable by variable, the best of its values for every combination of values of the variables it meets.
"""
from __future__ import annotations

import heapq
import math
from typing import Dict, List, Tuple

import numpy as np

from tests.search.conversions import arrangements, conversions, smallest_alike
from tests.search.search_space import SearchSpace, Term

Table = Tuple[Tuple[int, ...], np.ndarray]  # the variables that it mentions, ascending, and a cost for all their values

LARGEST = 40_000_000  # entries of a table


class TooLarge(ValueError):
    """The dynamic programme would need a table of more than LARGEST entries."""


def optimal_bytes(graph: Dict, devices: int) -> int:
    """Return the fewest bytes that one step moves, of all devices together."""
    space = SearchSpace(graph, {"devices": devices, "spatial": "no"}, arrangements)
    return least_sum([len(d) for d in space.domains], [table(space, term) for term in space.terms])


def table(space: SearchSpace, term: Term) -> Table:
    """Return what a term costs, in bytes."""
    shape, scale = smallest_alike(space.cuts, term.tensor.shape)
    known = conversions(space.cuts, shape, tuple(range(len(shape))))
    rows = np.array([known.number[t] for t in term.made])
    width = max(len(needed) for needed in term.needs)
    costs = np.zeros((len(term.made), len(term.needs)), np.int64)
    for k in range(width):
        given = np.array([len(needed) > k for needed in term.needs])
        columns = [known.number[needed[min(k, len(needed) - 1)]] for needed in term.needs]
        costs += np.where(given, known.conversions[np.ix_(rows, columns)], 0)
    costs *= scale * term.tensor.itemsize * term.tensor.ways
    if term.source is None:
        return (term.user,), costs.min(axis=0)
    if term.source == term.user:
        return (term.user,), costs.diagonal()
    if term.source > term.user:
        return (term.user, term.source), costs.T
    return (term.source, term.user), costs


def least_sum(sizes: List[int], tables: List[Table]) -> int:
    """Return the least total of the tables over all values of the variables (0 .. size - 1 each)."""
    beside: Dict[int, List[Table]] = {}  # the tables of each variable that is left
    for names, costs in tables:
        for v in names:
            beside.setdefault(v, []).append((names, costs))
    met = {v: {u for names, _ in own for u in names} - {v} for v, own in beside.items()}

    def size_without(v: int) -> int:
        return math.prod(sizes[u] for u in met[v]) * sizes[v]

    queue = [(size_without(v), v) for v in beside]
    heapq.heapify(queue)
    total = 0
    while queue:
        size, v = heapq.heappop(queue)
        if v not in beside or size != size_without(v):
            continue
        if size > LARGEST:
            raise TooLarge
        names = tuple(sorted(met.pop(v)))
        joint = np.zeros([sizes[u] for u in names] + [sizes[v]], np.int64)
        for own, costs in beside.pop(v):
            order = sorted(range(len(own)), key=lambda i: (own[i] == v, own[i]))
            joint += costs.transpose(order).reshape([sizes[u] if u in own else 1 for u in names] + [sizes[v]])
        best = joint.min(axis=-1)
        if not names:
            total += int(best)
        for u in names:
            beside[u] = [t for t in beside[u] if v not in t[0]] + [(names, best)]
            met[u] = (met[u] | set(names)) - {u, v}
            heapq.heappush(queue, (size_without(u), u))
    return total
