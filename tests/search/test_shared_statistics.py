"""A BatchNorm that is used twice moves each tile of its statistics twice, whatever the plan."""
from __future__ import annotations

from collections import Counter

import mxnet as mx
import pytest

from soybean_mx import core
from soybean_mx.graph import describe

SHAPES = {"x": (8, 3, 20, 20), "y": (8, 3, 9, 9), "w": (24, 3, 3, 3), "gamma": (24,), "beta": (24,), "mean": (24,),
          "var": (24,)}


def twice():
    """Two images sizes through one convolution and one BatchNorm."""
    variables = {name: mx.sym.var(name) for name in SHAPES}
    outputs = []
    for name in ("x", "y"):
        h = mx.sym.Convolution(variables[name], variables["w"], kernel=(3, 3), num_filter=24, no_bias=True)
        outputs.append(mx.sym.BatchNorm(h, variables["gamma"], variables["beta"], variables["mean"], variables["var"],
                                        fix_gamma=False))
    return mx.sym.Group(outputs)


@pytest.mark.parametrize("strategy", ["optimal", "data", "model", *(f"random:{seed}" for seed in range(12))])
@pytest.mark.parametrize("devices", [2, 6, 8])
def test_all_statistics_of_a_state_are_left_alike(strategy, devices):
    types = {name: (shape, "float32") for name, shape in SHAPES.items()}
    inputs = {name: types.pop(name) for name in ("x", "y")}
    graph = describe(twice(), inputs, types, {"w", "gamma", "beta"}, True)
    plan = core.plan(graph, {"devices": devices, "strategy": strategy})
    lowered = core.lower(graph, plan, {})
    for state in ("mean", "var"):
        places = Counter((item["device"], *item["begin"], *item["end"]) for item in lowered["statistics"]
                         if item["source"] == state)
        assert places and set(places.values()) == {2}
