"""Dropout under any plan: one mask for all who read the tensor and for the gradient, and another one for every tile.

Masks cannot agree with one device's, so the other tests draw Dropout with p = 0 only.
"""
from __future__ import annotations

import itertools
from typing import Dict

import mxnet as mx
import numpy as np
import pytest

from soybean_mx import core
from tests.lower.execution import Result, TiledExecutor, check_interface, graph_of, region_of
from tests.lower.random_graphs import Program, Variable

PLANS = [(d, s) for d in (1, 2, 3, 4, 8) for s in ("optimal", "data", "model", "random:1", "random:2", "random:3")]


def dropout_program() -> Program:
    """Return y = dropout(x), z = y w'."""
    rs = np.random.RandomState(0)
    x, w = mx.sym.Variable("x"), mx.sym.Variable("w")
    y = mx.sym.Dropout(x, p=0.5, name="drop")
    z = mx.sym.FullyConnected(y, w, num_hidden=12, no_bias=True, name="fc")
    variables = {
        "x": Variable("input", True, rs.uniform(1, 2, (24, 16))),
        "w": Variable("parameter", True, rs.uniform(1, 2, (12, 16))),
    }
    return Program(mx.sym.Group([y, z]), variables, True, "float64")


@pytest.mark.parametrize("devices, strategy", PLANS)
def test_one_mask_for_all(devices, strategy):
    program = dropout_program()
    graph = graph_of(program)
    lowered = core.lower(graph, core.plan(graph, {"devices": devices, "strategy": strategy}))
    check_interface(program, lowered, devices)
    rs = np.random.RandomState(1)
    heads = [rs.uniform(1, 2, (24, 16)), rs.uniform(1, 2, (24, 12))]
    result = TiledExecutor(program, lowered, devices).run(heads)
    assert_consistent(program, heads, result)
    assert_tiles_differ(lowered, result.outputs[0])


def assert_consistent(program: Program, heads, result: Result) -> None:
    """Both outputs and both gradients tell of the same mask."""
    x, w = program.variables["x"].value, program.variables["w"].value
    y, z = result.outputs
    mask = y != 0
    np.testing.assert_allclose(y, np.where(mask, 2 * x, 0), rtol=1e-12)
    assert 0.3 < mask.mean() < 0.7
    np.testing.assert_allclose(z, y @ w.T, rtol=1e-12)
    np.testing.assert_allclose(result.gradients["w"], heads[1].T @ y, rtol=1e-12)
    np.testing.assert_allclose(result.gradients["x"], (heads[0] + heads[1] @ w) * 2 * mask, rtol=1e-12)


def assert_tiles_differ(lowered: Dict, y: np.ndarray) -> None:
    """No two tiles of the output were dropped by the same mask (2**-16 by chance in the smallest)."""
    masks = [y[region_of(o)] != 0 for o in lowered["outputs"] if o["index"] == 0]
    for a, b in itertools.combinations(masks, 2):
        assert a.shape != b.shape or a.size < 16 or (a != b).any()
