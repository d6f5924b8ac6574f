"""The planner's search space as `core.space` hands it out: what is to be chosen, and what the choices cost together.

    sum over tensors t, uses u:  C(made(t) -> rest(t)) + C(rest(t) -> need(u))  +  sum over statistics s:  C(s)

is the least over the choices of all variables: how each operator is cut, how each tensor with several users rests, how
each result is left. C is twice a conversion where a gradient passes back. Inputs of one operator that need a tensor in
the same tiling share a conversion. What is used once rests as its user needs it if it is computed, and in the best of
its tilings if it is a variable of the graph. An operator that is cut along what it takes statistics over joins them.
"""
from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from soybean_mx import core
from tests.search.conversions import OWNER, PARTIAL, REPLICATED, Cuts, Tiling

Expand = Callable[[Cuts, Tuple[int, ...]], Sequence[Tiling]]


class Tensor(NamedTuple):
    """What decides the price of a conversion; `ways` is 2 where a gradient goes back."""

    shape: Tuple[int, ...]
    itemsize: int
    ways: int


class Term(NamedTuple):
    """A tensor that `user` needs, by its value, in all of some tilings, out of the one that `source` makes.

    Without a source, `made` are all the tilings that it may be in, and it is in the best of them. Where `source` is
    `user`, it is what the operator makes for itself.
    """

    tensor: Tensor
    source: Optional[int]
    made: List[Tiling]
    user: int
    needs: List[Tuple[Tiling, ...]]


def _along(dims: Sequence[int], node: Dict, way: Tiling, otherwise: Callable[[Dict], int]) -> Tiling:
    """Return the tiling of an operand or an output whose dims carry these factors, for a way to cut the operator."""
    if not node["rule"]["known"]:
        return way
    out = []
    for choice, level in way:
        if choice >= 0 and choice not in dims:
            out.append((otherwise(node["rule"]["factors"][choice]), 0))
        else:
            out.append((list(dims).index(choice) if choice >= 0 else choice, level))
    return tuple(out)


def _need(node: Dict, position: int, way: Tiling) -> Tiling:
    if not node["rule"]["known"]:
        return way
    operand = node["rule"]["inputs"][position]
    once = operand["addend"]  # enters a sum once: the first group adds it
    return _along(operand["dims"], node, way, lambda f: OWNER if once and f["reduced"] else REPLICATED)


def _made(node: Dict, index: int, way: Tiling) -> Tiling:
    if not node["rule"]["known"]:
        return way
    dims = node["rule"]["outputs"][index]["dims"]
    return _along(dims, node, way, lambda f: PARTIAL if f["reduced"] else REPLICATED)


class SearchSpace:
    """The variables (``domains``, by number, with ``names``) and the ``terms`` of the sum.

    Parameters
    ----------
    graph : dict
        The serial program (docs/interface.md).
    options : dict
        Those of ``core.plan``; image height and width must be left uncut, ``{"spatial": "no"}``.
    expand : callable
        Gives the ways that a choice of the space stands for.
    """

    def __init__(self, graph: Dict, options: Dict, expand: Expand) -> None:
        assert options["spatial"] == "no", "halos are not counted here"
        space = core.space(graph, options)
        self.cuts: Cuts = tuple(space["cuts"])
        self.names: List[str] = []
        self.domains: List[List[Tiling]] = []
        self.terms: List[Term] = []
        self._expand = expand
        self._nodes = space["nodes"]
        operators = {
            i: self._variable(node["name"], node["choices"]) for i, node in enumerate(self._nodes) if "choices" in node
        }
        results = [self._variable(f"result {r}", item["choices"]) for r, item in enumerate(space["results"])]
        resting = {tuple(item["tensor"]): item["choices"] for item in space["tensors"]}

        users: Dict[Tuple[int, int], Dict[int, List[Tuple[Tiling, ...]]]] = {}
        for i, variable in operators.items():
            for entry in {tuple(e) for e in self._nodes[i]["inputs"]}:
                positions = [k for k, e in enumerate(self._nodes[i]["inputs"]) if tuple(e) == entry]
                users.setdefault(entry, {})[variable] = [
                    tuple(sorted({_need(self._nodes[i], k, way) for k in positions})) for way in self.domains[variable]
                ]
        for variable, item in zip(results, space["results"]):
            users.setdefault(tuple(item["tensor"]), {})[variable] = [(t,) for t in self.domains[variable]]
        for i, variable in operators.items():
            self._add_statistics(self._nodes[i], variable)
        for entry, needs in sorted(users.items()):
            self._add(entry, operators.get(entry[0]), needs, resting.get(entry))

    def _variable(self, name: str, choices: Sequence[Sequence[int]]) -> int:
        self.names.append(name)
        self.domains.append([way for choice in choices for way in self._expand(self.cuts, tuple(choice))])
        return len(self.domains) - 1

    def _add_statistics(self, node: Dict, variable: int) -> None:
        for item in node["rule"]["statistics"] if node["rule"]["known"] else ():
            gradient = item["gradient"] and self._nodes[node["inputs"][0][0]]["requires_grad"]
            tensor = Tensor(tuple(item["shape"]), item["itemsize"], 2 if gradient else 1)
            made, needed = (
                [_along(item["dims"], node, way, lambda f, joined=joined: joined if f["statistic"] else REPLICATED)
                 for way in self.domains[variable]] for joined in (PARTIAL, REPLICATED))
            if made != needed:
                self.terms.append(Term(tensor, variable, made, variable, [(t,) for t in needed]))

    def _add(
        self, entry: Tuple[int, int], producer: Optional[int], needs: Dict[int, List[Tuple[Tiling, ...]]],
        resting: Optional[Sequence[Sequence[int]]],
    ) -> None:
        node = self._nodes[entry[0]]
        output = node["outputs"][entry[1]]
        tensor = Tensor(tuple(output["shape"]), output["itemsize"], 2 if node["requires_grad"] else 1)
        source, made = producer, []
        if producer is not None:
            made = [_made(node, entry[1], way) for way in self.domains[producer]]
        if resting is not None and producer is None and len(needs) == 1:
            made = [t for choice in resting for t in self._expand(self.cuts, tuple(choice))]
        elif resting is not None:
            source = self._variable(f"{node['name']} {entry[1]} at rest", resting)
            if producer is not None:
                self.terms.append(Term(tensor, producer, made, source, [(t,) for t in self.domains[source]]))
            made = self.domains[source]
        for user, needed in needs.items():
            self.terms.append(Term(tensor, source, made, user, needed))
