"""Recomputation: a parallel graph whose backward pass computes activations again instead of keeping them.

MXNet 1.9.1 can *mirror* a node: the backward pass then has a second one that computes the same when it is needed. The
gradient of a mirrored node reads the mirrored inputs, that of any other node the original ones, which are kept. So
here everything is mirrored but

- what is kept on purpose: the graph is divided into segments, and a tensor that a later segment reads is kept, by an
  identity behind it that is not mirrored;
- what receives a tensor from another device, or sends one (a copy or an identity behind what made it), so that nothing
  is sent twice;
- what draws random numbers.

A segment is computed again from the kept tensors when its backward pass begins: about one more forward pass in all,
for the memory of the segments' borders and of one segment (Chen et al., arXiv 1604.06174).

MXNet mirrors control dependencies too; a chain of them through all nodes, as the lowering writes it to fix their
order, would compute the whole graph again at once. It is left to the nodes that are not mirrored.
"""
from __future__ import annotations

import json
import math
from typing import Any, Dict, List, Optional, Set, Tuple

from soybean_mx.graph import draws

Node = Dict[str, Any]

# Operators that do nothing where nobody reads their output, as with a mirrored one at the end of a segment. Others may
# refuse to run then: Convolution and Embedding do.
_INDIFFERENT = {"Activation", "relu", "sigmoid", "tanh", "elemwise_add", "elemwise_mul", "elemwise_sub", "_plus_scalar",
                "_mul_scalar", "_minus_scalar", "_div_scalar", "_soybean_mx_channel_sums"}
# Operators whose gradient does not ask for their inputs: where one sends, no identity is needed behind it.
_CHEAP_TO_KEEP = {"_copy", "null", "SliceChannel", "Reshape", "_split_v2", "slice", "slice_axis", "elemwise_add"}
# Around an even division of the graph, the part of a segment in which the place with the fewest tensors is sought.
_SLACK = 0.5


def with_recomputation(symbol: str) -> str:
    """A lowered graph that is to be trained, with the marks that make MXNet recompute.

    Parameters
    ----------
    symbol : str
        JSON text of a symbol; every node has ``__ctx_group__``, but for operators that MXNet places by their input.

    Returns
    -------
    str
        JSON text of a symbol with the same variables and outputs.
    """
    graph = json.loads(symbol)
    nodes: List[Node] = graph["nodes"]
    operators = [index for index, node in enumerate(nodes) if node["op"] != "null"]
    segment = _segments(nodes, operators)
    fixed, sent = _fixed(nodes)
    saved = sent | {source for index in operators for source, *_ in nodes[index]["inputs"]
             if source in segment and source not in fixed and segment[source] != segment[index]}
    fixed |= _refusing(nodes, fixed, saved)
    return json.dumps(_marked(graph, fixed, saved - fixed))


def _device(nodes: List[Node], index: int) -> str:
    """The device's group; of an operator without one, that of its first input, where MXNet places it."""
    while "__ctx_group__" not in nodes[index]["attrs"]:
        index = nodes[index]["inputs"][0][0]
    return nodes[index]["attrs"]["__ctx_group__"]


def _fixed(nodes: List[Node]) -> Tuple[Set[int], Set[int]]:
    """The nodes that are not to be computed twice, and those of the others whose outputs are sent."""
    result, sent = set(), set()
    for index, node in enumerate(nodes):
        if node["op"] == "null" or draws(node, training=True) or node.get("subgraphs"):
            result.add(index)
        for source, *_ in node["inputs"]:
            if _device(nodes, source) != _device(nodes, index):
                result.add(index)
                (result if nodes[source]["op"] in _CHEAP_TO_KEEP else sent).add(source)
    return result, sent - result


def _refusing(nodes: List[Node], fixed: Set[int], saved: Set[int]) -> Set[int]:
    """The operators that would be mirrored for nobody to read, and cannot be."""
    read, result = set(), set()  # by mirrored nodes
    for index in reversed(range(len(nodes))):
        node = nodes[index]
        unread = index in saved or index not in read
        if unread and index not in fixed and node["op"] not in _INDIFFERENT:
            result.add(index)
        elif index not in fixed:
            read.update(source for source, *_ in node["inputs"])
    return result


def _segments(nodes: List[Node], operators: List[int]) -> Dict[int, int]:
    """Which segment each operator belongs to."""
    last_use: Dict[int, int] = {}
    order = {index: position for position, index in enumerate(operators)}
    for index in operators:
        for source, *_ in nodes[index]["inputs"]:
            last_use[source] = max(last_use.get(source, 0), order[index])
    # How many tensors of operators are in use between one operator and the next.
    crossing, open_until = [], [0] * (len(operators) + 1)
    count = 0
    for position, index in enumerate(operators):
        count -= open_until[position]
        if index in last_use and last_use[index] > position:
            count += 1
            open_until[last_use[index]] += 1
        crossing.append(count)
    devices = len({_device(nodes, index) for index in operators})
    segments = max(1, int(math.sqrt(len(operators) / devices)) // 2)
    length = len(operators) / segments

    def ends_row(position: int) -> bool:
        """Whether the last device has just computed what may be mirrored for nobody to read."""
        here, behind = (nodes[operators[place]]["op"] for place in (position, min(position + 1, len(operators) - 1)))
        return here in _INDIFFERENT and behind not in _INDIFFERENT

    borders = []
    for number in range(1, segments):
        around = range(max(0, int(length * (number - _SLACK / 2))),
                       min(len(operators) - 1, int(length * (number + _SLACK / 2))) + 1)
        borders.append(min(around, key=lambda position: (crossing[position], not ends_row(position),
                                                         abs(position - number * length))))
    result: Dict[int, int] = {}
    for position, index in enumerate(operators):
        result[index] = sum(border < position for border in borders)
    return result


def _fixed_before(nodes: List[Node], index: Optional[int], fixed: Set[int]) -> List[int]:
    """What a node must follow, of the nodes that are not mirrored."""
    while index is not None:
        before = nodes[index].get("control_deps")
        index = before[0] if before else None
        if index in fixed:
            return [index]
    return []


def _marked(graph: Dict[str, Any], fixed: Set[int], saved: Set[int]) -> Dict[str, Any]:
    """The graph with an identity behind each saved node, mirrored nodes marked, and control dependencies cut."""
    nodes: List[Node] = graph["nodes"]
    outputs_read: Dict[int, Set[int]] = {index: set() for index in range(len(nodes))}
    for node in nodes:
        for source, output, *_ in node["inputs"]:
            outputs_read[source].add(output)
    position: List[int] = []  # of each node in the new graph
    behind: Dict[Tuple[int, int], int] = {}  # of the identity behind an output
    total = 0
    for index in range(len(nodes)):
        position.append(total)
        total += 1
        if index in saved:
            for output in sorted(outputs_read[index]):
                behind[index, output] = total
                total += 1
    new: List[Node] = []
    for index, node in enumerate(nodes):
        node = dict(node)
        node["inputs"] = [[behind[source, output], 0, *rest] if (source, output) in behind
                          else [position[source], output, *rest] for source, output, *rest in node["inputs"]]
        order = [position[other] for other in _fixed_before(nodes, index, fixed)]
        node.pop("control_deps", None)
        if index not in fixed:
            node["attrs"] = {**node["attrs"], "__force_mirroring__": "True"}
        elif order:
            node["control_deps"] = order
        new.append(node)
        for output in sorted(outputs_read[index]) if index in saved else ():
            new.append({"op": "_copy", "name": f"{node['name']}~saved{output}",
                        "inputs": [[position[index], output, 0]], "attrs": {"__ctx_group__": _device(nodes, index)}})
    return {"nodes": new, "arg_nodes": [position[index] for index in graph["arg_nodes"]],
            "heads": [[position[source], *rest] for source, *rest in graph["heads"]], "attrs": graph["attrs"]}
