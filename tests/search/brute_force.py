"""The fewest bytes of a program over all of its plans: every choice, every exchange of equal cuts, every order.

All prices are exact (conversions.py), whatever the sizes. The least sum is found by dynamic programming over the graph:
variable by variable, the best of its values for every combination of values of the variables it meets.
"""
from __future__ import annotations

import math
from typing import Dict, List, Tuple

import numpy as np

from tests.search.conversions import arrangements, conversions
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
    shape = term.tensor.shape
    known = conversions(space.cuts, shape, tuple(range(len(shape))))
    rows = np.array([known.number[t] for t in term.made])
    width = max(len(needed) for needed in term.needs)
    costs = np.zeros((len(term.made), len(term.needs)), np.int64)
    for k in range(width):
        given = np.array([len(needed) > k for needed in term.needs])
        columns = [known.number[needed[min(k, len(needed) - 1)]] for needed in term.needs]
        costs += np.where(given, known.conversions[np.ix_(rows, columns)], 0)
    costs *= term.tensor.itemsize * term.tensor.ways
    if term.source is None:
        return (term.user,), costs.min(axis=0)
    if term.source > term.user:
        return (term.user, term.source), costs.T
    return (term.source, term.user), costs


def least_sum(sizes: List[int], tables: List[Table]) -> int:
    """Return the least total of the tables over all values of the variables (0 .. size - 1 each)."""
    left = list(tables)
    variables = {v for names, _ in tables for v in names}
    total = 0
    while variables:
        met = {v: {u for names, _ in left if v in names for u in names} - {v} for v in variables}
        v = min(variables, key=lambda v: (math.prod(sizes[u] for u in met[v]) * sizes[v], v))
        names = tuple(sorted(met[v]))
        if math.prod(sizes[u] for u in names) * sizes[v] > LARGEST:
            raise TooLarge
        joint = np.zeros([sizes[u] for u in names] + [sizes[v]], np.int64)
        for own, costs in left:
            if v in own:
                order = sorted(range(len(own)), key=lambda i: (own[i] == v, own[i]))
                costs = costs.transpose(order)
                joint += costs.reshape([sizes[u] if u in own else 1 for u in names] + [sizes[v]])
        left = [t for t in left if v not in t[0]]
        variables.remove(v)
        if names:
            left.append((names, joint.min(axis=-1)))
        else:
            total += int(joint.min())
    return total
