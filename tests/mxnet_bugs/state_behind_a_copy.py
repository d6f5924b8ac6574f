"""A computed state of an operator, and a copy from another context before it.

What: BatchNorm whose moving mean and variance are computed in the graph (from its JSON), where a node before them
takes something from another context, be it by a control dependency.

Expected: that it binds; the copy is not the state.

Seen: "mutable state cannot go across device". Without the dependency it binds.

How the project avoids it: operators that make states have no inputs and come first of all
(csrc/lower/parallel_graph.cc).
"""
import json
import sys

import mxnet as mx


def attrs(device: str, **more: str) -> dict:
    """Return the attributes of a node on a context."""
    return {"__ctx_group__": device, **more}


state = {"shape": "(3,)", "dtype": "float32"}
nodes = [
    {"op": "null", "name": "x", "inputs": [], "attrs": attrs("a")},
    {"op": "null", "name": "g", "inputs": [], "attrs": attrs("b")},
    {"op": "_copy", "name": "moved", "inputs": [[0, 0, 0]], "attrs": attrs("b")},
    {"op": "_zeros", "name": "mean", "inputs": [], "attrs": attrs("b", **state)},
    {"op": "_ones", "name": "var", "inputs": [], "attrs": attrs("b", **state)},
    {"op": "BatchNorm", "name": "y", "inputs": [[2, 0, 0], [1, 0, 0], [1, 0, 0], [3, 0, 0], [4, 0, 0]],
     "attrs": attrs("b", use_global_stats="True")}]
if sys.argv[1:] != ["first"]:
    nodes[3]["control_deps"] = [2]
symbol = mx.sym.load_json(json.dumps({"nodes": nodes, "arg_nodes": [0, 1], "node_row_ptr": list(range(7)),
                                      "heads": [[5, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}))
arguments = {"x": mx.nd.ones((2, 3)), "g": mx.nd.ones(3, ctx=mx.cpu(1))}
executor = symbol.bind(mx.cpu(), arguments, group2ctx={"a": mx.cpu(0), "b": mx.cpu(1)})
print(executor.forward()[0].shape)
