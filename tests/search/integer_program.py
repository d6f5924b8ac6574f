"""The fewest bytes of a program as an integer programme, solved by HiGHS: for networks too large for brute force.

Choices are counts of equal cuts, as `core.space` hands them out, and a conversion costs the least over all arrangements
of both sides (conversions.py), so that the optimum is a bound that no plan goes below. A binary per choice of each
variable, and a continuous one per pair of choices for each table, whose sums over either side are the other's binaries.
"""
from __future__ import annotations

import functools
import math
from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

from tests.search.conversions import PARTIAL, Cuts, Tiling, conversions, smallest_alike
from tests.search.search_space import SearchSpace, Term

Counts = Tuple[Tuple[int, int], ...]


class Solution(NamedTuple):
    """The optimum in bytes, what the solver proved it not to be less than, and how large the programme was."""

    total: int
    bound: float
    binaries: int
    pairs: int


def counts(cuts: Cuts, tiling: Tiling) -> Counts:
    """Return what all arrangements of a tiling have in common: the parts and the choice of each cut, sorted."""
    return tuple(sorted((p, choice) for p, (choice, _) in zip(cuts, tiling)))


@functools.lru_cache(maxsize=None)
def _least(cuts: Cuts, shape: Tuple[int, ...], dims: Tuple[int, ...]) -> Tuple[Dict[Counts, int], np.ndarray]:
    """Return a number for all counts, and the least that a conversion between any of their arrangements moves."""
    known = conversions(cuts, shape, dims)
    number: Dict[Counts, int] = {}
    of = np.array([number.setdefault(counts(cuts, t), len(number)) for t in known.number])
    order = np.argsort(of, kind="stable")
    starts = np.searchsorted(of[order], np.arange(len(number)))
    table = known.conversions[np.ix_(order, order)]
    return number, np.minimum.reduceat(np.minimum.reduceat(table, starts, axis=0), starts, axis=1)


def prices(cuts: Cuts, term: Term) -> np.ndarray:
    """Return the bytes of a term by the values of its sides; (1, user's values) without a source."""
    shape, itemsize, ways = term.tensor
    devices = math.prod(cuts)
    every = [*term.made] + [t for needed in term.needs for t in needed]
    dims = sorted({c for t in every for c, _ in t if c >= 0})
    if any(c == PARTIAL for t in every for c, _ in t) and any(shape[d] < devices for d in dims):
        dims = list(range(len(shape)))  # a sum may be reduced onto another dim
    small, scale = smallest_alike(cuts, [shape[d] for d in dims])
    scale *= math.prod(n for d, n in enumerate(shape) if d not in dims)
    among = {d: i for i, d in enumerate(dims)}
    number, table = _least(cuts, small, tuple(range(len(small))))

    def index(tiling: Tiling) -> int:
        return number[counts(cuts, tuple((among.get(c, c), 0) for c, _ in tiling))]

    rows = [index(t) for t in term.made]
    costs = np.zeros((len(rows), len(term.needs)), np.int64)
    for j, needed in enumerate(term.needs):
        for t in needed:
            costs[:, j] += table[rows, index(t)]
    costs *= scale * itemsize * ways
    return costs if term.source is not None else costs.min(axis=0, keepdims=True)


class CostNetwork:
    """Unary and pairwise cost tables over variables with few values, to be reduced and then minimised."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.constant = 0
        self.unary: List[np.ndarray] = [np.zeros(n, np.int64) for n in sizes]
        self.pairs: Dict[Tuple[int, int], np.ndarray] = {}

    def add(self, u: int, v: int, costs: np.ndarray) -> None:
        """Add a table with u's values as rows and v's as columns."""
        if u > v:
            u, v, costs = v, u, costs.T
        self.pairs[u, v] = self.pairs[u, v] + costs if (u, v) in self.pairs else costs

    def _towards(self, u: int) -> List[np.ndarray]:
        """Return the tables of a variable, its own values as rows."""
        rows = [t for (a, _), t in self.pairs.items() if a == u]
        return rows + [t.T for (_, b), t in self.pairs.items() if b == u]

    def reduce(self) -> None:
        """Drop values that another one is never dearer than, and tables that choose nothing. The optimum stays."""
        changed = True
        while changed:
            changed = False
            self._normalise()
            beside: Dict[int, List[Tuple[int, int]]] = {}
            for pair in self.pairs:
                for u in pair:
                    beside.setdefault(u, []).append(pair)
            for u in range(len(self.unary)):
                kept = self._undominated(u, beside.get(u, []))
                if len(kept) == len(self.unary[u]):
                    continue
                changed = True
                self.unary[u] = self.unary[u][kept]
                for pair in beside.get(u, []):
                    self.pairs[pair] = self.pairs[pair][kept] if pair[0] == u else self.pairs[pair][:, kept]

    def _normalise(self) -> None:
        for (u, v), table in list(self.pairs.items()):
            rows = table.min(axis=1)
            self.unary[u] = self.unary[u] + rows
            table = table - rows[:, None]
            columns = table.min(axis=0)
            self.unary[v] = self.unary[v] + columns
            self.pairs[u, v] = table - columns
            if not self.pairs[u, v].any():
                del self.pairs[u, v]
        for u, costs in enumerate(self.unary):
            self.constant += int(costs.min())
            self.unary[u] = costs - costs.min()

    def _undominated(self, u: int, beside: List[Tuple[int, int]]) -> List[int]:
        n = len(self.unary[u])
        dearer = self.unary[u][:, None] - self.unary[u][None]  # [a, b]: a costs at least so much more than b
        for pair in beside:
            table = self.pairs[pair] if pair[0] == u else self.pairs[pair].T
            dearer = dearer + (table[:, None] - table[None]).min(axis=2)
        kept = list(range(n))
        for a in range(n):
            if any(b != a and dearer[a, b] >= 0 for b in kept):
                kept.remove(a)
        return kept

    def minimise(self) -> Solution:
        """Solve the integer programme.

        Raises
        ------
        RuntimeError
            When the solver does not prove an optimum.
        """
        every = list(self.unary) + list(self.pairs.values())
        unit = math.gcd(*(int(np.gcd.reduce(costs, axis=None)) for costs in every)) or 1
        first = np.cumsum([0] + [len(costs) for costs in self.unary])
        binaries = int(first[-1])
        rows, columns, signs, sums = [], [], [], []
        line = 0
        for u, costs in enumerate(self.unary):
            rows.append(np.full(len(costs), line))
            columns.append(np.arange(first[u], first[u + 1]))
            signs.append(np.ones(len(costs)))
            sums.append(1)
            line += 1
        at = binaries
        for (u, v), table in self.pairs.items():
            numbers = at + np.arange(table.size).reshape(table.shape)
            at += table.size
            for side, own in ((u, numbers), (v, numbers.T)):
                n = len(own)
                rows += [np.repeat(np.arange(line, line + n), own.shape[1]), np.arange(line, line + n)]
                columns += [own.ravel(), np.arange(first[side], first[side + 1])]
                signs += [np.ones(own.size), -np.ones(n)]
                sums += [0] * n
                line += n
        costs = np.concatenate([c.ravel() for c in every]) / unit
        matrix = coo_matrix((np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns))), (line, at))
        integral = np.concatenate([np.ones(binaries), np.zeros(at - binaries)])
        result = milp(
            costs, integrality=integral, bounds=Bounds(0, 1), constraints=LinearConstraint(matrix.tocsr(), sums, sums),
            options={"mip_rel_gap": 0},
        )
        if result.status != 0:
            raise RuntimeError(f"HiGHS proves no optimum: {result.message}")
        values = [int(np.argmax(result.x[first[u] : first[u + 1]])) for u in range(len(self.unary))]
        total = self.constant + sum(int(costs[a]) for costs, a in zip(self.unary, values))
        total += sum(int(table[values[u], values[v]]) for (u, v), table in self.pairs.items())
        return Solution(total, self.constant + result.mip_dual_bound * unit, binaries, at - binaries)


def integer_optimum(graph: Dict, devices: int) -> Solution:
    """Return the optimum of a program over so many devices."""
    space = SearchSpace(
        graph, {"devices": devices, "spatial": "no"}, lambda cuts, choices: (tuple((c, 0) for c in choices),)
    )
    network = CostNetwork([len(d) for d in space.domains])
    for term in space.terms:
        costs = prices(space.cuts, term)
        if term.source is None:
            network.unary[term.user] = network.unary[term.user] + costs[0]
        elif term.source == term.user:
            network.unary[term.user] = network.unary[term.user] + costs.diagonal()
        else:
            network.add(term.source, term.user, costs)
    network.reduce()
    return network.minimise()
