"""Plans drawn at random here, without the core's search: any tiling of any tensor, divided in any order.

A search leaves out what never pays; a plan may be edited by hand, and the lowering must be right for whatever the core
accepts. The core is only asked for the program as it is planned, and for its rules.
"""
from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from soybean_mx import core

REPLICATED, OWNER = "replicated", "owner"


def prime_factors(devices: int) -> List[int]:
    """Return the prime factors, ascending: the cuts of that many devices."""
    factors, p = [], 2
    while devices > 1:
        while devices % p == 0:
            factors.append(p)
            devices //= p
        p += 1
    return factors


def draw_plan(graph: Dict, devices: int, boundary: str, seed: int) -> Dict:
    """Draw a plan of a graph (docs/interface.md) for that many devices.

    Parameters
    ----------
    boundary : str
        ``tiled``, or ``whole``: variables and outputs whole on the first device.

    Returns
    -------
    dict
        A plan without bytes and messages.
    """
    return _Draw(graph, devices, boundary, seed).plan()


class _Draw:
    def __init__(self, graph: Dict, devices: int, boundary: str, seed: int) -> None:
        self.rs = np.random.RandomState(seed)
        self.batch_norm = str(self.rs.choice(["exact", "fused"]))
        self.training, self.boundary = graph["training"], boundary
        self.devices, self.cuts = devices, prime_factors(devices)
        planned = core.space(graph, {"devices": 1, "batch_norm": self.batch_norm})
        self.nodes, self.results = planned["nodes"], [r["tensor"] for r in planned["results"]]

    def plan(self) -> Dict:
        operators = {n["name"]: self._operator(n) for n in self.nodes if n["op"] != "null"}
        states = self._states(operators)
        tensors = {}
        for node in self.nodes:
            for k, output in enumerate(node["outputs"]):
                name = f"{node['name']}:{k}" if k else node["name"]
                tensors[name] = states.get(name) or self._tensor(node, output["shape"])
        shapes = [self.nodes[i]["outputs"][k]["shape"] for i, k in self.results]
        whole = self.boundary == "whole"
        return {
            "version": 1, "devices": self.devices, "cuts": self.cuts, "strategy": "drawn",
            "batch_norm": self.batch_norm, "boundary": self.boundary, "tensors": tensors, "operators": operators,
            "outputs": [[OWNER] * len(self.cuts) if whole else self._tiling(s, [OWNER]) for s in shapes],
        }

    def _chosen(self, room: Sequence[int], others: Sequence[str], even: Optional[Sequence[bool]] = None) -> List:
        """Draw a choice per cut: an index into `room`, the extents that may be divided, or one of the others."""
        parts, chosen = [1] * len(room), []
        for p in self.cuts:
            fitting = [i for i, n in enumerate(room)
                       if parts[i] * p <= n and not (even and even[i] and n % (parts[i] * p))]
            if fitting and (not others or self.rs.rand() < 0.8):
                i = int(self.rs.choice(fitting))
                parts[i] *= p
                chosen.append(i)
            else:
                chosen.append(str(self.rs.choice(others)))
        return chosen

    def _ordered(self, chosen: Sequence, texts: Dict[int, str]) -> List[str]:
        """Write choices down, half of the time with an order of division that is drawn, too."""
        if self.rs.rand() < 0.5:
            return [texts.get(c, c) for c in chosen]
        levels = {}
        for choice in texts:
            same = [i for i, c in enumerate(chosen) if c == choice]
            levels.update(zip(same, self.rs.permutation(len(same)).tolist()))
        return [f"{texts[c]}/{levels[i]}" if c in texts else c for i, c in enumerate(chosen)]

    def _tiling(self, shape: Sequence[int], others: Sequence[str]) -> List[str]:
        return self._ordered(self._chosen(shape, others), {d: f"split {d}" for d in range(len(shape))})

    def _tensor(self, node: Dict, shape: Sequence[int]) -> List[str]:
        if node["op"] != "null":
            return self._tiling(shape, [REPLICATED, OWNER])
        if self.boundary == "whole":
            return [OWNER] * len(self.cuts)
        once = node["role"] == "parameter" or node["requires_grad"]
        return self._tiling(shape, [OWNER] if once else [REPLICATED, OWNER])

    def _is_state(self, node: int) -> bool:
        return self.nodes[node]["role"] == "auxiliary"

    def _operator(self, node: Dict) -> List[str]:
        rule = node["rule"]
        if not rule["known"]:
            return [OWNER] * len(self.cuts)
        factors = rule["factors"]
        # Of a replicated operator that changes a state, copies that nothing uses would not change theirs.
        changes = self.training and any(self._is_state(i) for i, *_ in node["inputs"])
        others = [OWNER] if rule["random"] or changes else [REPLICATED, OWNER]
        chosen = self._chosen([f["size"] for f in factors], others, [f["even"] for f in factors])
        return self._ordered(chosen, {i: f["name"] for i, f in enumerate(factors)})

    def _states(self, operators: Dict[str, List[str]]) -> Dict[str, List[str]]:
        """Return how auxiliary states rest: as their operator needs them. Where they cannot, it is cut no more."""
        uses: Dict[str, List[Tuple[Dict, int]]] = {}
        for node in self.nodes:
            for k, (i, _) in enumerate(node["inputs"]):
                # The weight of a Deconvolution that is computed whole is none, but must not be converted either.
                weight = node["op"] == "Deconvolution" and k == 1 and not node["rule"]["known"]
                if self._is_state(i) or weight and self.nodes[i]["op"] == "null":
                    uses.setdefault(self.nodes[i]["name"], []).append((node, k))
        for found in uses.values():
            if self.boundary == "whole" or len(found) > 1:
                for node, _ in found:
                    operators[node["name"]] = [OWNER] * len(self.cuts)
        states: Dict[str, List[str]] = {}
        for name, ((node, k), *_) in uses.items():
            states[name] = self._needed(node["rule"], k, operators[node["name"]])
        return states

    @staticmethod
    def _needed(rule: Dict, k: int, cuts: Sequence[str]) -> List[str]:
        if not rule["known"]:
            return list(cuts)
        names = [f["name"] for f in rule["factors"]]
        dims = rule["inputs"][k]["dims"]
        needed = []
        for cut in cuts:
            name, slash, level = cut.partition("/")
            if name in (REPLICATED, OWNER):
                needed.append(name)
            elif names.index(name) in dims:
                needed.append(f"split {dims.index(names.index(name))}{slash}{level}")
            else:
                needed.append(REPLICATED)
        return needed
