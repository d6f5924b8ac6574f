"""Parts of a symbol's graph, as graphs of their own: what a stage of a pipeline computes."""
from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

Tensor = Tuple[int, int]  # a node's index in the whole graph, and which of its outputs


class SymbolPart(NamedTuple):
    """Some operators of a graph, with a variable for each tensor that another operator makes.

    Parameters
    ----------
    nodes : list of dict
        As in MXNet's JSON, in the order of the whole graph.
    places : dict of int to int
        Where each operator is in ``nodes``, by its index in the whole graph.
    received : dict of str to Tensor
        The variables that stand for tensors of other operators.
    """

    nodes: List[Dict[str, Any]]
    places: Dict[int, int]
    received: Dict[str, Tensor]

    def symbol_json(self, heads: Iterable[Tensor], attributes: Mapping[str, Any]) -> str:
        """The part as MXNet's JSON: its outputs, by the whole graph's indices, and the attributes of the whole."""
        return json.dumps({
            "nodes": self.nodes, "arg_nodes": [place for place, node in enumerate(self.nodes) if node["op"] == "null"],
            "node_row_ptr": list(range(len(self.nodes) + 1)), "attrs": attributes,
            "heads": [[self.places[source], output, 0] for source, output in heads]})


def cut_out(nodes: Sequence[Mapping[str, Any]], inside: Set[int]) -> SymbolPart:
    """Cut operators out of a graph.

    Parameters
    ----------
    nodes : sequence of mapping
        The whole graph's, as in MXNet's JSON.
    inside : set of int
        The operators' indices.
    """
    part = SymbolPart([], {}, {})
    variables: Dict[Tensor, int] = {}

    def variable(tensor: Tensor) -> List[int]:
        if tensor not in variables:
            node = nodes[tensor[0]]
            if node["op"] != "null":
                node = {"op": "null", "name": f"_received_{tensor[0]}_{tensor[1]}", "inputs": []}
                part.received[node["name"]] = tensor
            variables[tensor] = len(part.nodes)
            part.nodes.append(dict(node))
        return [variables[tensor], 0, 0]

    for index in sorted(inside):
        sources = [[part.places[source], output, *rest] if source in inside else variable((source, output))
                   for source, output, *rest in nodes[index]["inputs"]]
        part.places[index] = len(part.nodes)
        part.nodes.append({**nodes[index], "inputs": sources})
    return part
