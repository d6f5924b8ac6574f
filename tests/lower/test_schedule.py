"""The order of the parallel graph: the model's step can be, is no worse than the serial one, and is what MXNet runs."""
from __future__ import annotations

import json
from typing import Dict, List

import mxnet as mx
import numpy as np
import pytest

from soybean_mx import core
from tests.child import run_child
from tests.lower.execution import graph_of
from tests.lower.random_graphs import Program, Variable
from tests.lower.schedules import Timeline, lowered_both_ways, nodes_of

LAYERS, WIDTH, BATCH = 6, 256, 4096


def mlp() -> Program:
    """Dense layers for which data parallelism is right: the batch is much larger than they are wide."""
    x = mx.sym.Variable("x")
    variables = {"x": Variable("input", False, np.zeros((BATCH, WIDTH), "float32"))}
    for i in range(LAYERS):
        x = mx.sym.FullyConnected(x, mx.sym.Variable(f"w{i}"), no_bias=True, num_hidden=WIDTH, name=f"fc{i}")
        variables[f"w{i}"] = Variable("parameter", True, np.zeros((WIDTH, WIDTH), "float32"))
    return Program(x, variables, True, "float32")


def lowered_mlp(strategy: str = "data", devices: int = 4, copy_engines: bool = True) -> Dict[str, Dict]:
    graph = graph_of(mlp())
    return lowered_both_ways(graph, core.plan(graph, {"devices": devices, "strategy": strategy}), copy_engines)


def test_random_programs():
    """The graph, the figures and the events agree with each other."""
    printed = run_child("tests.lower.schedules", ["--seeds", "0-120"])
    assert int(printed.strip().splitlines()[-1].split()[4]) > 50  # most are not the serial order


def test_mxnet_runs_the_order_of_the_model_and_computes_the_same():
    run_child("tests.lower.schedules", ["--seeds", "200-240", "--bind", "--run"])


def test_nothing_is_idle_without_communication():
    serial = lowered_mlp(devices=1)["serial"]["schedule"]
    assert serial["seconds"] == pytest.approx(serial["critical_path"]) and serial["idle"] == [0.0]


def positions(nodes: List[Dict], layer: int, device: int) -> Dict[str, List[int]]:
    """Where the gathering of a layer's weight on a device and its product stand."""
    name, group = f"w{layer}", f"d{device}"
    gather = [i for i, n in enumerate(nodes) if n["op"] != "null" and n["name"].startswith((f"{name}@", f"{name}~"))
              and n["attrs"]["__ctx_group__"] == group]
    return {"gather": gather, "product": [i for i, n in enumerate(nodes) if n["name"] == f"fc{layer}@{device}"]}


@pytest.mark.parametrize("order", ["serial", "scheduled"])
def test_weights_are_gathered_one_layer_ahead(order):
    nodes = nodes_of(lowered_mlp()[order])
    ahead = 0
    for device in range(4):
        for layer in range(2, LAYERS):
            gather = positions(nodes, layer, device)["gather"]
            before, last = (positions(nodes, layer - k, device)["product"][0] for k in (2, 1))
            assert before < min(gather) and max(gather) < positions(nodes, layer, device)["product"][0]
            ahead += min(gather) < last
    assert ahead == (0 if order == "serial" else 4 * (LAYERS - 2))


def test_gradients_are_reduced_before_the_layers_below_are_done():
    """All of a layer's reduction is handed over before the backward product of the layer but one below it."""
    lowered = lowered_mlp()["scheduled"]
    handed = [(e["kind"], e["node"]) for e in lowered["timeline"] if e["kind"] != "copy"]
    for layer in range(2, LAYERS):
        reduced = [i for i, (kind, node) in enumerate(handed)
                   if kind in ("backward", "sum") and node.startswith((f"w{layer}@", f"w{layer}~"))]
        assert reduced and max(reduced) < min(handed.index(("backward", f"fc{layer - 2}@{d}")) for d in range(4))


def test_a_copy_engine_takes_copies_off_a_device():
    times = [lowered_mlp(copy_engines=engines)["scheduled"] for engines in (False, True)]
    own, beside = (Timeline(item, engines) for item, engines in zip(times, (False, True)))
    assert own.copies and len(own.copies) == len(beside.copies)
    assert {c["to"] for c in own.copies} == {0, 1, 2, 3}
    # On the receiving side of one device, too, one copy at a time.
    for device in range(4):
        arriving = sorted((c["begin"], c["end"]) for c in beside.copies if c["to"] == device)
        assert all(b[0] >= a[1] - beside.margin for a, b in zip(arriving, arriving[1:]))


def test_a_topology_gives_the_figures():
    graph = graph_of(mlp())
    plan = core.plan(graph, {"devices": 4, "strategy": "data"})
    seconds = []
    for flops in (1e9, 2e9):
        topology = {"device": {"flops": flops, "memory": 1e9, "memory_bandwidth": 1e15},
                    "levels": [{"groups": 2, "bandwidth": 1e12}, {"bandwidth": 1e12}]}
        seconds.append(core.lower(graph, plan, {"topology": topology})["schedule"]["seconds"])
    # Forward once; backward the gradients of both operands, but that of the input, which nobody asks for.
    products = 2 * WIDTH * WIDTH * BATCH / 4
    assert seconds[0] == pytest.approx((3 * LAYERS - 1) * products / 1e9, rel=0.01)
    assert seconds[0] == pytest.approx(2 * seconds[1], rel=0.01)


@pytest.mark.parametrize("options, said", [
    ({"order": "random"}, "option order is 'random'"),
    ({"copy_engines": 1}, "copy_engines"),
    ({"topology": {"device": {"flops": 1e9, "memory_bandwidth": 1e9},
                   "levels": [{"groups": 2, "bandwidth": 1e9}]}}, "2 devices"),
])
def test_messages(options, said):
    graph = graph_of(mlp())
    plan = core.plan(graph, {"devices": 4})
    with pytest.raises(core.PlanError, match=said):
        core.lower(graph, plan, options)


def test_the_same_again():
    first, second = (json.dumps(lowered_mlp()) for _ in range(2))
    assert first == second
