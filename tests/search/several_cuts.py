"""The optimal bytes of a small branching program over several cuts, by trying every way to cut every operator.

It takes the rules of the operators from the core and nothing else: the conversions are worked out here. A tiling is a
tuple with one choice per cut: a dim, ``R`` (replicated), ``O`` (first group) or ``P`` (partial sum). A step changes
the choice of one cut, at the price of one_cut.py, times the number of copies that the other cuts keep (each cut with R
or P multiplies them); a conversion is the cheapest sequence of steps. The parts of the last cut are the outermost
blocks of a dim, so a step may split or join a dim only where no earlier cut splits it. The program moves

    sum over tensors t, uses u:  C(made(t) -> rest(t)) + C(rest(t) -> need(u))

bytes, twice that where t has a gradient. All dims must divide by the number of devices.
"""
from __future__ import annotations

import functools
import heapq
import itertools
import json
from fractions import Fraction
from typing import Dict, List, Sequence, Tuple, Union

from soybean_mx import core
from tests.search.one_cut import moved

Choice = Union[int, str]
Tiling = Tuple[Choice, ...]


def prime_factors(n: int) -> Tuple[int, ...]:
    """Return the prime factors, ascending."""
    for p in range(2, n + 1):
        if n % p == 0:
            return (p,) + prime_factors(n // p)
    return ()


@functools.lru_cache(maxsize=None)
def conversions(start: Tiling, cuts: Tuple[int, ...], dims: int) -> Dict[Tiling, Fraction]:
    """Return what it moves to turn `start` into every tiling, as a multiple of the tensor's size (Dijkstra)."""
    choices: List[Choice] = [*range(dims), "R", "O"]
    best = {start: Fraction(0)}
    queue = [(Fraction(0), str(start), start)]
    while queue:
        cost, _, tiling = heapq.heappop(queue)
        if cost > best[tiling]:
            continue
        for i, choice in itertools.product(range(len(cuts)), choices):
            step = _step(tiling, i, choice, cuts)
            after = tiling[:i] + (choice,) + tiling[i + 1 :]
            if step is not None and cost + step < best.get(after, cost + step + 1):
                best[after] = cost + step
                heapq.heappush(queue, (best[after], str(after), after))
    return best


def _step(tiling: Tiling, i: int, choice: Choice, cuts: Sequence[int]) -> Union[Fraction, None]:
    before = tiling[i]
    if before == choice:
        return None
    if any(isinstance(c, int) and c in tiling[:i] for c in (before, choice)):
        return None
    copies = 1
    for j, other in enumerate(tiling):
        if j != i and other in ("R", "P"):
            copies *= cuts[j]
    return copies * moved(_letter(before), _letter(choice), cuts[i])


def _letter(choice: Choice) -> str:
    return f"S{choice}" if isinstance(choice, int) else choice


class Program:
    """A serial graph as the search sees it: tensors, their uses, and the operators' rules."""

    def __init__(self, graph: Dict, devices: int) -> None:
        self.graph, self.cuts = graph, prime_factors(devices)
        symbol = json.loads(graph["symbol"])
        self.nodes, self.heads = symbol["nodes"], [h[0] for h in symbol["heads"]]
        self.rules = core.rules(graph)
        self.shapes = [graph["shapes"][n["name"]][0] for n in self.nodes]
        self.operators = [i for i, n in enumerate(self.nodes) if n["op"] != "null"]
        self.known: Dict[Tuple, int] = {}  # what a tensor moves, by how it is made and needed
        self.grad: List[bool] = []
        for node in self.nodes:
            variable = graph["variables"].get(node["name"])
            self.grad.append(variable["requires_grad"] if variable else any(self.grad[i] for i, *_ in node["inputs"]))

    def optimum(self) -> int:
        """Return the fewest bytes over all ways to cut all operators."""
        ways = [self._ways(i) for i in self.operators]
        return min(self._cost(dict(zip(self.operators, cuts))) for cuts in itertools.product(*ways))

    def _ways(self, operator: int) -> List[Tuple[int, ...]]:
        factors = range(len(self.rules[self.nodes[operator]["name"]]["factors"]))
        return list(itertools.product(factors, repeat=len(self.cuts)))

    def _tiling(self, dims: Sequence[int], factors: Sequence[Dict], cuts: Sequence[int]) -> Tiling:
        """Return how a tensor with these factors along its dims stands when the operator is cut so."""
        result: List[Choice] = []
        for factor in cuts:
            if factor in dims:
                result.append(list(dims).index(factor))
            else:
                result.append("P" if factors[factor]["reduced"] else "R")
        return tuple(result)

    def _need(self, operator: int, position: int, cuts: Tuple[int, ...]) -> Tiling:
        rule = self.rules[self.nodes[operator]["name"]]
        tiling = self._tiling(rule["inputs"][position]["dims"], rule["factors"], cuts)
        return tuple("R" if c == "P" else c for c in tiling)  # an input without the factor is replicated

    def _made(self, operator: int, cuts: Tuple[int, ...]) -> Tiling:
        rule = self.rules[self.nodes[operator]["name"]]
        return self._tiling(rule["outputs"][0]["dims"], rule["factors"], cuts)

    def _cost(self, ways: Dict[int, Tuple[int, ...]]) -> int:
        total = 0
        for tensor in range(len(self.nodes)):
            needs = []
            for operator in self.operators:
                for position, (source, *_) in enumerate(self.nodes[operator]["inputs"]):
                    if source == tensor:
                        needs.append(self._need(operator, position, ways[operator]))
            made = self._made(tensor, ways[tensor]) if tensor in ways else None
            key = (tensor, made, *needs)
            if key not in self.known:
                self.known[key] = self._tensor_cost(tensor, made, needs)
            total += self.known[key]
        return total

    def _tensor_cost(self, tensor: int, made: Union[Tiling, None], needs: Sequence[Tiling]) -> int:
        shape, variable = self.shapes[tensor], self.graph["variables"].get(self.nodes[tensor]["name"])
        choices: List[Choice] = list(range(len(shape)))
        if variable is None:
            choices += ["R", "O"]
        elif variable["role"] == "input":
            choices += ["R"]
        best = min(self._at(rest, made, needs, tensor) for rest in itertools.product(choices, repeat=len(self.cuts)))
        size = 4
        for n in shape:
            size *= n
        return int(best * size * (2 if self.grad[tensor] else 1))

    def _at(self, rest: Tiling, made: Union[Tiling, None], needs: Sequence[Tiling], tensor: int) -> Fraction:
        dims = len(self.shapes[tensor])
        cost = sum((conversions(rest, self.cuts, dims)[need] for need in needs), Fraction(0))
        if made is not None:
            cost += conversions(made, self.cuts, dims)[rest]
        if tensor in self.heads:  # left in any tiling that holds every element once
            kept = itertools.product([*range(dims), "O"], repeat=len(self.cuts))
            cost += min(conversions(rest, self.cuts, dims)[tiling] for tiling in kept)
        return cost


def optimal_bytes(graph: Dict, devices: int) -> int:
    """Return the fewest bytes that one step of the program moves."""
    return Program(graph, devices).optimum()
