"""Small parameters that are converted alike travel together (csrc/lower/buckets.h).

That results are right then, random plans show.
"""
from __future__ import annotations

import json

import mxnet as mx

from soybean_mx import core
from soybean_mx.graph import describe

LAYERS, CHANNELS = 20, 16


def lowered(channels: int, layers: int = LAYERS):
    """Plan and lowered graph of convolutions with biases, cut along the batch over 8 devices."""
    x = mx.sym.var("data")
    shapes = {}
    for i in range(layers):
        x = mx.sym.Convolution(x, kernel=(1, 1), num_filter=channels, name=f"conv{i}")
        shapes[f"conv{i}_weight"] = ((channels, channels, 1, 1), "float32")
        shapes[f"conv{i}_bias"] = ((channels,), "float32")
    graph = describe(x, {"data": ((8, channels, 8, 8), "float32")}, shapes, set(shapes), True)
    plan = core.plan(graph, {"devices": 8, "strategy": "data"})
    return plan, core.lower(graph, plan)


def copies(graph, part: str) -> int:
    """How many tensors whose names hold `part` cross devices."""
    nodes = json.loads(graph["symbol"])["nodes"]
    device = [node["attrs"]["__ctx_group__"] for node in nodes]
    return sum(part in nodes[source]["name"] and device[source] != node["attrs"]["__ctx_group__"]
               for node in nodes for source, *_ in node["inputs"])


def test_biases_travel_in_buckets_of_16():
    plan, graph = lowered(CHANNELS)
    assert graph["bytes"] == {key: plan["bytes"][key] for key in graph["bytes"]}
    one = copies(graph, "weight") // LAYERS  # messages that one tensor needs
    assert copies(graph, "~bucket") == 2 * one
    assert copies(graph, "bias") == copies(graph, "~bucket")
    assert graph["messages"] == plan["messages"] - (LAYERS - 2) * one


def test_uneven_and_lone_parameters_travel_alone():
    for arguments in ((9,), (CHANNELS, 1)):  # 9 elements on 8 devices; nothing to travel with
        plan, graph = lowered(*arguments)
        assert copies(graph, "~bucket") == 0
        assert graph["messages"] == plan["messages"]
