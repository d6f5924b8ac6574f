"""What crosses devices in one step, counted on a lowered symbol independently of the core.

MXNet copies an entry (one output of a node) once to every other device that has a consumer of it, and sends one
gradient back per such copy when the entry requires a gradient: when some variable behind it asks for one and no
operator on the way stops it. So every pair (entry, destination device) with the producer elsewhere counts the entry's
bytes once forward, and once more backward when it requires a gradient.
"""
from __future__ import annotations

import json
from typing import Dict, List, Set, Tuple

import mxnet as mx
import numpy as np

from tests.lower.random_graphs import Program

# Operators that no gradient passes.
BLOCKING = {"BlockGrad", "argmax", "argmin", "sign", "round", "floor", "ceil", "zeros_like", "ones_like"}


def count_bytes(program: Program, lowered: Dict) -> Tuple[Dict[str, int], int]:
    """Return the bytes {"forward", "backward", "total"} of one step and the messages (copies forward)."""
    nodes = json.loads(lowered["symbol"])["nodes"]
    groups = [_group(node) for node in nodes]
    sizes = _entry_bytes(program, lowered)
    flows = _requires_grad(program, lowered, nodes)
    copies = _copies(nodes, groups)
    forward = sum(sizes[nodes[i]["name"]][k] for i, k, _ in copies)
    returned = [(i, k) for i, k, _ in copies if flows[i]]
    backward = sum(sizes[nodes[i]["name"]][k] for i, k in returned)
    counted = {"forward": forward, "backward": backward, "total": forward + backward}
    return counted, len(copies)


def _group(node: Dict) -> str:
    return node["attrs"]["__ctx_group__"]


def _copies(nodes: List[Dict], groups: List[str]) -> Set[Tuple[int, int, str]]:
    """Return every (producer, output of it, destination) that crosses devices."""
    result = set()
    for i, node in enumerate(nodes):
        for producer, output, *_ in node["inputs"]:
            if groups[producer] != groups[i]:
                result.add((producer, output, groups[i]))
    return result


def _entry_bytes(program: Program, lowered: Dict) -> Dict[str, List[int]]:
    """Return, by node name, the bytes of each of its visible outputs, by MXNet's own inference."""
    internals = mx.sym.load_json(lowered["symbol"]).get_internals()
    arguments = set(internals.list_arguments())
    known = {v["name"]: v for v in lowered["variables"] if v["name"] in arguments}
    tiles = {n: tuple(np.subtract(v["end"], v["begin"]).tolist()) for n, v in known.items()}
    shapes = internals.infer_shape(**tiles)[1]
    types = internals.infer_type(**dict.fromkeys(known, program.dtype))[1]
    result: Dict[str, List[int]] = {}
    for entry, shape, dtype in zip(internals, shapes, types):
        result.setdefault(entry.name, []).append(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return result


def _requires_grad(program: Program, lowered: Dict, nodes: List[Dict]) -> List[bool]:
    """Return for every node whether a gradient flows back into its outputs."""
    source = {v["name"]: v["source"] for v in lowered["variables"]}
    flows: List[bool] = []
    for node in nodes:
        if node["op"] == "null":
            flows.append(program.variables[source[node["name"]]].requires_grad)
        else:
            flows.append(node["op"] not in BLOCKING and any(flows[i] for i, *_ in node["inputs"]))
    return flows
