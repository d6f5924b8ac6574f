"""The core's request for a block."""
from __future__ import annotations

import json

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn

from soybean_mx import core
from soybean_mx.graph import InferenceError, describe, is_random, weights_beside_trained_biases
from tests.rules.cases import CASES


class UsedTwice(nn.HybridBlock):
    """One layer that is called three times, and a variable whose name looks like the second call's."""

    def __init__(self):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.layer = nn.Dense(4, in_units=4, prefix="layer_")
            self.other = self.params.get("layer_fwd_2", shape=(1, 4))

    def hybrid_forward(self, F, x, other):
        return F.broadcast_add(self.layer(self.layer(self.layer(x))), other)


def test_operators_of_a_block_that_is_used_again_have_names_of_their_own():
    net = UsedTwice()
    net.initialize(mx.init.Normal(1))
    symbol = net(mx.sym.Variable("x"))
    parameters = {name: (p.shape, "float32") for name, p in net.collect_params().items()}
    graph = describe(symbol, {"x": ((3, 4), "float32")}, parameters, set(parameters), True)
    names = [node["name"] for node in json.loads(graph["symbol"])["nodes"]]
    assert len(set(names)) == len(names) == len(graph["shapes"])
    assert core.plan(graph, {"devices": 2, "strategy": "optimal"})["whole"] == []
    values = {name: p.data() for name, p in net.collect_params().items()}
    values["x"] = mx.nd.array(np.arange(12).reshape(3, 4))
    renamed = mx.sym.load_json(graph["symbol"])
    found = [s.bind(mx.cpu(), {n: values[n] for n in s.list_arguments()}).forward()[0].asnumpy()
             for s in (symbol, renamed)]
    np.testing.assert_array_equal(*found)


def test_a_shape_that_depends_on_values_is_refused_by_the_operator_s_name():
    symbol = mx.sym.contrib.boolean_mask(mx.sym.Variable("x") * 2, mx.sym.Variable("mask"), name="chosen") + 1
    with pytest.raises(InferenceError, match=r"'chosen' \(_contrib_boolean_mask\)"):
        describe(symbol, {"x": ((4, 3), "float32"), "mask": ((4,), "float32")}, {}, set(), True)
    with pytest.raises(InferenceError, match="full shapes"):
        describe(mx.sym.Variable("x") * mx.sym.Variable("w"), {"x": (None, "float32")}, {"w": (None, "float32")}, set(),
                 True)


@pytest.mark.parametrize("op", sorted({case.op for case in CASES if not case.exact and case.op != "Dropout"}))
def test_operators_that_draw_are_known_as_random(op):
    assert is_random(json.dumps({"nodes": [{"op": op, "name": "op", "inputs": []}]}), False)


def test_weights_that_biases_need_the_gradients_of():
    x, w, b = (mx.sym.Variable(name) for name in "xwb")
    out = mx.sym.FullyConnected(x, mx.sym.tanh(w * mx.sym.Variable("v")), b, num_hidden=3)
    assert weights_beside_trained_biases(out, {"b"}) == {"w", "v"}
    assert not weights_beside_trained_biases(out, {"b", "v"}) and not weights_beside_trained_biases(out, {"x"})
    assert not weights_beside_trained_biases(mx.sym.FullyConnected(x, w, no_bias=True, num_hidden=3), {"x"})
