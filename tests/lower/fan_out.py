"""Keeps the consumers of every tensor of a symbol few, where MXNet's sum of many gradients is wrong.

When a tensor has 8 or more consumers, MXNet 1.9.1 adds their gradients one by one in place, and loses some: across
devices almost always, but on one device, too (an entry with 8 scaled consumers, a reversed and a reshaped one). So a
serial program cannot serve as the reference as it stands.
"""
from __future__ import annotations

import json
from typing import Dict, List, Tuple

MOST_CONSUMERS = 5


def limit_consumers(symbol: str, most: int = MOST_CONSUMERS) -> str:
    """Return the symbol's JSON with copies of every tensor that has more than `most` consumers.

    The copies form a chain, as MXNet merges identical copies of one tensor into one. A copy stands where the producer
    stands (``__ctx_group__``).
    """
    graph = json.loads(symbol)
    limited = _Limited(graph, most)
    return limited.text()


class _Limited:
    def __init__(self, graph: Dict, most: int) -> None:
        self.graph, self.most = graph, most
        self.nodes: List[Dict] = []
        self.place: List[int] = []  # of the nodes before, in the nodes after
        self.used: Dict[Tuple[int, int], int] = {}
        self.next: Dict[Tuple[int, int], Tuple[int, int]] = {}

    def text(self) -> str:
        for node in self.graph["nodes"]:
            inputs = [self._consume(i, *rest) for i, *rest in node["inputs"]]
            self.nodes.append({**node, "inputs": inputs})
            self.place.append(len(self.nodes) - 1)
        result = {
            "nodes": self.nodes,
            "arg_nodes": [i for i, n in enumerate(self.nodes) if n["op"] == "null"],
            "heads": [self._consume(i, *rest) for i, *rest in self.graph["heads"]],
            "attrs": self.graph["attrs"],
        }
        return json.dumps(result)

    def _consume(self, node: int, output: int, version: int = 0) -> List[int]:
        entry = (self.place[node], output)
        if version:
            return [*entry, version]  # an auxiliary state: its operator must see the variable itself
        while entry in self.next:
            entry = self.next[entry]
        self.used[entry] = self.used.get(entry, 0) + 1
        if self.used[entry] < self.most:
            return [*entry, 0]
        producer = self.nodes[entry[0]]
        attrs = {k: v for k, v in producer.get("attrs", {}).items() if k == "__ctx_group__"}
        name = f"{producer['name']}_more{entry[1]}"
        self.nodes.append({"op": "_copy", "name": name, "attrs": attrs, "inputs": [[*entry, 0]]})
        self.next[entry] = (len(self.nodes) - 1, 0)
        self.used[self.next[entry]] = 1
        return [len(self.nodes) - 1, 0, 0]
