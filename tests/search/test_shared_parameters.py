"""A parameter that several operators take is brought to where they need it once, not once for each."""
from __future__ import annotations

from typing import Dict

import mxnet as mx
import numpy as np
import pytest

from soybean_mx import core
from tests.lower.execution import graph_of, head_gradients, run_lowered, run_serial
from tests.lower.random_graphs import Program, Variable

WIDTH = 24


def program(symbol: mx.sym.Symbol, inputs: Dict[str, tuple], parameters: Dict[str, tuple],
            **given: np.ndarray) -> Program:
    """A program in double precision, with drawn values; `given` ones are inputs without a gradient."""
    rng = np.random.RandomState(0)
    variables = {name: Variable("input", True, rng.uniform(-1, 1, shape))
                 for name, shape in inputs.items()}
    variables.update({name: Variable("parameter", True, rng.uniform(-1, 1, shape))
                      for name, shape in parameters.items()})
    variables.update({name: Variable("input", False, value.astype("float64")) for name, value in given.items()})
    return Program(symbol, variables, True, "float64")


def unrolled(steps: int, batch: int, width: int = WIDTH) -> Program:
    """A recurrent network, unrolled, with a loss at every position."""
    w, u, b, h, outputs = *(mx.sym.var(name) for name in "wubh"), []
    for step in range(steps):
        x = mx.sym.FullyConnected(mx.sym.var(f"x{step}"), w, b, num_hidden=width, name=f"input{step}")
        h = mx.sym.tanh(x + mx.sym.FullyConnected(h, u, num_hidden=width, no_bias=True, name=f"state{step}"))
        outputs.append(h)
    shapes = {"h": (batch, width), **{f"x{step}": (batch, width) for step in range(steps)}}
    return program(mx.sym.Group(outputs), shapes, {"w": (width, width), "u": (width, width), "b": (width,)})


def tied() -> Program:
    """An embedding whose matrix makes the logits too, as is and transposed."""
    e = mx.sym.var("e")
    h = mx.sym.Embedding(mx.sym.var("words"), e, input_dim=50, output_dim=WIDTH, name="embedded")
    logits = mx.sym.FullyConnected(h, e, num_hidden=50, no_bias=True, flatten=False, name="logits")
    other = mx.sym.dot(mx.sym.reshape(h, (-1, WIDTH)), e, transpose_b=True, name="other")
    words = np.random.RandomState(1).randint(0, 50, size=(6, 5))
    return program(mx.sym.Group([logits, other]), {}, {"e": (50, WIDTH)}, words=words)


def siamese() -> Program:
    """A convolution, a normalization and a transposed convolution, each for two images."""
    names = ("w", "gamma", "beta", "v")
    w, gamma, beta, v = (mx.sym.var(name) for name in names)
    outputs = []
    for name in ("x", "y"):
        h = mx.sym.Convolution(mx.sym.var(name), w, kernel=(3, 3), num_filter=8, no_bias=True, name=f"{name}_conv")
        h = mx.sym.LayerNorm(h, gamma, beta, axis=1, name=f"{name}_norm")
        outputs.append(mx.sym.Deconvolution(h, v, kernel=(2, 2), stride=(2, 2), num_filter=4, name=f"{name}_up"))
    return program(mx.sym.Group(outputs), {"x": (4, 3, 9, 9), "y": (3, 3, 7, 5)},
                   {"w": (8, 3, 3, 3), "gamma": (8,), "beta": (8,), "v": (8, 4, 2, 2)})


@pytest.mark.parametrize("devices", [2, 5, 8])
def test_data_parallelism_moves_each_parameter_twice_however_often_it_is_used(devices):
    """Gathered once and its gradient reduced once, as MXNet's own does: (devices - 1) times its bytes, both ways."""
    for steps in (2, 3, 12):
        serial = unrolled(steps, batch=16)
        plan = core.plan(graph_of(serial), {"devices": devices, "strategy": "data"})
        held = sum(v.value.nbytes for v in serial.variables.values() if v.role == "parameter")
        assert plan["bytes"]["total"] == 2 * (devices - 1) * held, steps


def test_the_best_plan_for_many_uses_is_not_worse_than_data_parallelism():
    graph = graph_of(unrolled(20, batch=64))
    total = {s: core.plan(graph, {"devices": 8, "strategy": s})["bytes"]["total"] for s in ("optimal", "data")}
    assert total["optimal"] <= total["data"]


@pytest.mark.parametrize("build", [lambda: unrolled(4, batch=7), tied, siamese], ids=["unrolled", "tied", "siamese"])
@pytest.mark.parametrize("strategy", ["optimal", "data", "model", *(f"random:{seed}" for seed in range(4))])
def test_results_and_gradients_are_those_of_one_device(build, strategy):
    serial = build()
    heads = head_gradients(serial, 0)
    expected = run_serial(serial, heads)
    for devices, boundary in ((2, "tiled"), (3, "whole"), (8, "tiled")):
        graph = graph_of(serial)
        plan = core.plan(graph, {"devices": devices, "strategy": strategy, "boundary": boundary})
        found = run_lowered(serial, core.lower(graph, plan, {}), devices, heads)
        for name, value in {**expected.gradients, **dict(enumerate(expected.outputs))}.items():
            other = found.outputs[name] if isinstance(name, int) else found.gradients[name]
            assert np.abs(other - value).max() <= 1e-12 * np.abs(value).max(), (devices, name)


def test_what_must_be_a_variable_stays_one():
    """BatchNorm writes into its gamma, and oneDNN's transposed convolution takes nothing but a variable."""
    gamma, beta, mean, var, v = (mx.sym.var(name) for name in ("gamma", "beta", "mean", "var", "v"))
    x = mx.sym.var("x")
    for _ in range(2):
        x = mx.sym.BatchNorm(mx.sym.Deconvolution(x, v, kernel=(1, 1), num_filter=4), gamma, beta, mean, var)
    variables = {"x": Variable("input", True, np.ones((4, 4, 5, 5), "float32")),
                 "v": Variable("parameter", True, np.ones((4, 4, 1, 1), "float32"))}
    variables.update({name: Variable("parameter", True, np.ones(4, "float32")) for name in ("gamma", "beta")})
    variables.update({name: Variable("auxiliary", False, np.ones(4, "float32")) for name in ("mean", "var")})
    plan = core.plan(graph_of(Program(x, variables, True, "float32")), {"devices": 2})
    assert not [name for name in plan["operators"] if name.endswith("_shared")]
