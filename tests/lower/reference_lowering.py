"""A lowering that is right by its simplicity, to prove that the tests' own machinery is.

Every operator is computed whole, on a random device. Parameters and inputs are cut along a random dim into tiles on
random devices and concatenated where they are used; outputs are cut with slice_axis. Nothing is computed in tiles, so
there is nothing to get wrong but the copies, which are MXNet's own.
"""
from __future__ import annotations

import json
from typing import Dict, List, Optional, Set, Tuple

import numpy as np

from tests.lower.fan_out import MOST_CONSUMERS, limit_consumers

Reference = Tuple[int, int]  # node, output of it


class ReferenceCore:
    """Stands in for soybean_mx.core where the tests test themselves.

    Parameters
    ----------
    most_consumers : int
        No tensor gets more consumers than this. At 8, MXNet sums gradients wrongly across devices.
    """

    def __init__(self, most_consumers: int = MOST_CONSUMERS) -> None:
        self.most_consumers = most_consumers

    def plan(self, graph: Dict, options: Dict) -> Dict:
        """Return a plan that is only a seed for `lower`."""
        seed = int(options["strategy"].split(":")[1]) if ":" in options["strategy"] else 0
        return {"devices": options["devices"], "seed": seed}

    def lower(self, graph: Dict, plan: Dict) -> Dict:
        """Return the lowered graph, without bytes and messages."""
        return _Lowering(graph, plan, self.most_consumers).run()


class _Lowering:
    def __init__(self, graph: Dict, plan: Dict, most_consumers: int) -> None:
        self.graph, self.serial = graph, json.loads(graph["symbol"])
        self.devices, self.most_consumers = plan["devices"], most_consumers
        self.rs = np.random.RandomState(plan["seed"] % 2**32)
        self.nodes: List[Dict] = []
        self.variables: List[Dict] = []
        self.state_tiles: Set[Reference] = set()  # updated by their operator

    def run(self) -> Dict:
        mapped: List[List[Reference]] = []
        self.states = {i for n in self.serial["nodes"] for i in self._state_inputs(n)}
        for number, node in enumerate(self.serial["nodes"]):
            if number in self.states:
                mapped.append([])  # placed with the operator that updates it
            elif node["op"] == "null":
                mapped.append([self._variable(node["name"])])
            else:
                mapped.append(self._operator(node, mapped))
        heads, outputs = [], []
        for index, (node, output, *_) in enumerate(self.serial["heads"]):
            shape = self.graph["shapes"][self.serial["nodes"][node]["name"]][output]
            for device, begin, end, axis in self._tiles(shape):
                heads.append(self._slice(mapped[node][output], f"out{index}", device, begin, end, axis))
                outputs.append({"index": index, "device": device, "begin": begin, "end": end})
        symbol = {
            "nodes": self.nodes,
            "arg_nodes": [i for i, n in enumerate(self.nodes) if n["op"] == "null"],
            "heads": [[i, k, 0] for i, k in heads],
            "attrs": self.serial["attrs"],
        }
        text = limit_consumers(json.dumps(symbol), self.most_consumers)
        return {"symbol": text, "variables": self.variables, "outputs": outputs}

    def _state_inputs(self, node: Dict) -> List[int]:
        auxiliary = {n for n, v in self.graph["variables"].items() if v["role"] == "auxiliary"}
        return [i for i, *_ in node["inputs"] if self.serial["nodes"][i]["name"] in auxiliary]

    def _add(self, op: str, name: str, device: int, inputs: List[Reference], attrs: Optional[Dict] = None) -> int:
        attrs = {**(attrs or {}), "__ctx_group__": f"d{device}"}
        references = [[*entry, int(entry in self.state_tiles)] for entry in inputs]
        self.nodes.append({"op": op, "name": f"{name}@{len(self.nodes)}", "attrs": attrs, "inputs": references})
        return len(self.nodes) - 1

    def _tiles(self, shape: List[int]) -> List[Tuple[int, List[int], List[int], int]]:
        """Return the tiles (device, begin, end, axis) of a random cut along one dim."""
        axis = self.rs.randint(len(shape))
        parts = self.rs.randint(1, min(self.devices, shape[axis]) + 1)
        bounds = [0, *sorted(self.rs.choice(np.arange(1, shape[axis]), parts - 1, replace=False).tolist()), shape[axis]]
        tiles = []
        for low, high in zip(bounds, bounds[1:]):
            begin, end = [0] * len(shape), list(shape)
            begin[axis], end[axis] = int(low), int(high)
            tiles.append((int(self.rs.randint(self.devices)), begin, end, axis))
        return tiles

    def _variable(self, name: str) -> Reference:
        parts, tiles = [], self._tiles(self.graph["shapes"][name][0])
        for device, begin, end, _ in tiles:
            variable = self._bound(name, device, begin, end)
            # The only consumer of a variable is an identity on its own device: the gradient needs a home.
            parts.append((self._add("_copy", f"{name}_read", device, [variable]), 0))
        if len(parts) == 1:
            return parts[0]
        attrs = {"dim": str(tiles[0][3]), "num_args": str(len(parts))}
        return self._add("Concat", f"{name}_whole", int(self.rs.randint(self.devices)), parts, attrs), 0

    def _bound(self, name: str, device: int, begin: List[int], end: List[int]) -> Reference:
        number = self._add("null", name, device, [])
        bound = self.nodes[number]["name"]
        self.variables.append({"name": bound, "source": name, "device": device, "begin": begin, "end": end})
        return number, 0

    def _operator(self, node: Dict, mapped: List[List[Reference]]) -> List[Reference]:
        device = int(self.rs.randint(self.devices))
        inputs = []
        for i, output, *_ in node["inputs"]:
            if i in self.states:
                name = self.serial["nodes"][i]["name"]
                inputs.append(self._bound(name, device, [0], list(self.graph["shapes"][name][0])))
                self.state_tiles.add(inputs[-1])
            else:
                inputs.append(mapped[i][output])
        number = self._add(node["op"], node["name"], device, inputs, node.get("attrs"))
        return [(number, k) for k in range(len(self.graph["shapes"][node["name"]]))]

    def _slice(self, entry: Reference, name: str, device: int, begin: List[int], end: List[int], axis: int):
        attrs = {"axis": str(axis), "begin": str(begin[axis]), "end": str(end[axis])}
        return self._add("slice_axis", name, device, [entry], attrs), 0
