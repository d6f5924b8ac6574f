"""Faults of MXNet 1.9.1 that shape what the lowering may write, each in the smallest program that shows it.

These tests fail when MXNet no longer has the fault, and then the lowering can be simplified. Each runs in a child
process, as some of the faults are crashes.
"""
from __future__ import annotations

import pytest

from tests.child import ChildFailure, run_child

START = """
import json, sys
import mxnet as mx, numpy as np

def step(symbol, requests=None, **shapes):
    executor = symbol.simple_bind(mx.cpu(0), grad_req=requests or "write", **shapes)
    for array in executor.arg_arrays:
        array[:] = mx.nd.array(np.random.RandomState(0).rand(*array.shape))
    for array in executor.grad_arrays:
        if array is not None:
            array[:] = -7
    executor.forward(is_train=True)
    executor.backward([mx.nd.ones(o.shape) for o in executor.outputs])
    return {n: g.asnumpy() for n, g in executor.grad_dict.items() if g is not None}

x, w = mx.sym.Variable("x"), mx.sym.Variable("w")
"""


def channels_joined(operator: str, attributes: str) -> str:
    """Return a program that joins 4 + 4 channels between two convolutions."""
    return START + f"""
parts = [mx.sym.Convolution(x, num_filter=4, kernel=(3, 3), pad=(1, 1), name=n) for n in "ab"]
joined = mx.sym.Concat(*parts, dim=1)
graph = json.loads(mx.sym.Convolution(joined, num_filter=8, kernel=(3, 3), pad=(1, 1), name="y").tojson())
for node in graph["nodes"]:
    if node["op"] == "Concat":
        node["op"], node["attrs"] = "{operator}", {attributes}
gradients = step(mx.sym.load_json(json.dumps(graph)), x=(4, 8, 13, 13))
print(float(gradients["a_weight"].sum()))
"""


CONCAT = channels_joined("Concat", '{"num_args": "2", "dim": "1"}')
CONCATENATE = channels_joined("_npi_concatenate", '{"num_args": "2", "axis": "1"}')


def test_concat_on_few_channels_fails_in_backward():
    # oneDNN keeps the gradient in blocks of 8 or 16 channels and cannot take 4 out of one: a floating point exception,
    # or "could not construct a sub-memory" for 12 + 12.
    with pytest.raises(ChildFailure):
        run_child(CONCAT)


def test_numpy_concatenate_on_few_channels_works():
    without_onednn = {"MXNET_MKLDNN_ENABLED": "0", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"}
    expected = float(run_child(CONCAT, env=without_onednn))
    assert float(run_child(CONCATENATE)) == pytest.approx(expected, rel=1e-5)


DECONVOLUTION = START + """
weight = mx.sym.identity(w) if sys.argv[1] == "computed" else w
step(mx.sym.Deconvolution(x, weight, kernel=(3, 2), num_filter=4, no_bias=True), x=(2, 3, 4, 5))
"""


def test_deconvolution_of_a_computed_weight_fails():
    run_child(DECONVOLUTION, ["variable"])
    with pytest.raises(ChildFailure, match="could not execute a primitive"):
        run_child(DECONVOLUTION, ["computed"])


FROZEN_WEIGHT = START + """
layer = mx.sym.FullyConnected(x, w, num_hidden=3, name="fc")
print(step(layer, {"x": "write", "w": "null", "fc_bias": "write"}, x=(4, 5))["fc_bias"].tolist())
"""


def test_bias_gradient_is_not_written_beside_a_frozen_weight():
    assert run_child(FROZEN_WEIGHT).strip() == "[-7.0, -7.0, -7.0]"
    env = {"MXNET_MKLDNN_ENABLED": "0", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"}
    assert run_child(FROZEN_WEIGHT, env=env).strip() == "[4.0, 4.0, 4.0]"


MANY_CONSUMERS = START + """
e = mx.sym.expand_dims(x, axis=2)
heads = [mx.sym.add_n(*[e * float(i) for i in range(8)]), mx.sym.reverse(e, axis=2), mx.sym.Reshape(e, shape=(6, 2, 1))]
print(float(step(mx.sym.Group(heads), x=(6, 2))["x"][0, 0]))
"""


def test_gradient_of_many_consumers_is_wrong_on_one_device():
    # 0 + 1 + ... + 7 from the sum, 1 from each of the others.
    assert float(run_child(MANY_CONSUMERS)) != 30
    assert float(run_child(MANY_CONSUMERS, env={"MXNET_EXEC_INPLACE_GRAD_SUM_CAP": "100"})) == 30


OWN_OPERATOR = START + """
from soybean_mx import operators

assert operators.are_usable([mx.cpu()])
sums, beta = mx.sym.Variable("sums", dtype="float64"), mx.sym.Variable("beta")
graph = {"nodes": [{"op": "null", "name": n, "inputs": []} for n in ("sums", "gamma", "beta")] + [
            {"op": "_soybean_mx_batch_norm_factors", "name": "y", "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0]],
             "attrs": {"count": "4", "eps": "0.01", "fix_gamma": "False"}}],
         "arg_nodes": [0, 1, 2], "node_row_ptr": [0, 1, 2, 3, 6], "heads": [[3, 0, 0]],
         "attrs": {"mxnet_version": ["int", 10901]}}
symbol = mx.sym.load_json(json.dumps(graph))
arguments = {"sums": mx.nd.ones((2, 3), dtype="float64"), "gamma": mx.nd.ones(3), "beta": mx.nd.ones(3)}
gradients = {"beta": mx.nd.ones(3)}
executor = symbol.bind(mx.cpu(), arguments, gradients, {"sums": "null", "gamma": "null", "beta": "add"})
executor.forward(is_train=True)
executor.backward([mx.nd.ones((2, 3))])
print(gradients["beta"].asnumpy().tolist())
"""


def test_operators_of_a_library_overwrite_where_they_are_to_add():
    assert run_child(OWN_OPERATOR).splitlines()[-1] == "[1.0, 1.0, 1.0]"  # and not 2


STATE = START + """
attrs = lambda device, **more: {"__ctx_group__": device, **more}
graph = {"nodes": [
    {"op": "null", "name": "x", "inputs": [], "attrs": attrs("a")},
    {"op": "null", "name": "g", "inputs": [], "attrs": attrs("b")},
    {"op": "_copy", "name": "moved", "inputs": [[0, 0, 0]], "attrs": attrs("b")},
    {"op": "_zeros", "name": "mean", "inputs": [], "attrs": attrs("b", shape="(3,)", dtype="float32")},
    {"op": "_ones", "name": "var", "inputs": [], "attrs": attrs("b", shape="(3,)", dtype="float32")},
    {"op": "BatchNorm", "name": "y", "inputs": [[2, 0, 0], [1, 0, 0], [1, 0, 0], [3, 0, 0], [4, 0, 0]],
     "attrs": attrs("b", use_global_stats="True")}],
    "arg_nodes": [0, 1], "node_row_ptr": list(range(7)), "heads": [[5, 0, 0]],
    "attrs": {"mxnet_version": ["int", 10901]}}
if sys.argv[1] == "behind":  # what a control dependency alone makes of it
    graph["nodes"][3]["control_deps"] = [2]
symbol = mx.sym.load_json(json.dumps(graph))
x, g = mx.nd.ones((2, 3)), mx.nd.ones(3, ctx=mx.cpu(1))
executor = symbol.bind(mx.cpu(), {"x": x, "g": g}, group2ctx={"a": mx.cpu(0), "b": mx.cpu(1)})
print(executor.forward()[0].shape)
"""


def test_states_may_be_computed_but_not_behind_a_copy():
    assert run_child(STATE, ["first"]).splitlines()[-1] == "(2, 3)"
    with pytest.raises(ChildFailure, match="mutable state cannot go across device"):
        run_child(STATE, ["behind"])


def test_operators_that_mistake_a_control_dependency_are_known():
    """Of those that have a rule; tests/parity/traps.py trains a graph with them."""
    assert run_child("tests.lower.control_dependencies").split() == ["gather_nd", "scatter_nd"]
