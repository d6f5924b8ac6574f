"""Runs optimize_for("soybean_mx") on plain symbols and compares with the serial symbol; a program of its own.

Usage: ``python -m tests.packaging.pass_cases NETWORK STRATEGY DEVICES``
"""
from __future__ import annotations

import os
import sys

# oneDNN's layouts go wrong in executors over several CPU contexts without it; in Gluon, soybean_mx sets it by itself.
os.environ["NNVM_EXEC_MATCH_RANGE"] = "0"

import mxnet as mx  # noqa: E402
import numpy as np  # noqa: E402

import soybean_mx  # noqa: E402


def convolutional() -> mx.sym.Symbol:
    out = mx.sym.Convolution(mx.sym.var("data"), mx.sym.var("w", init=mx.init.Xavier(), lr_mult=0.5), kernel=(3, 3),
                             num_filter=8, no_bias=True, name="conv")
    out = mx.sym.BatchNorm(out, fix_gamma=False, name="bn")
    out = mx.sym.Pooling(mx.sym.relu(out), kernel=(2, 2), stride=(2, 2), pool_type="max")
    out = mx.sym.FullyConnected(mx.sym.Flatten(out), num_hidden=6, name="fc")
    return out


def two_outputs() -> mx.sym.Symbol:
    halves = mx.sym.split(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=10, name="fc"), num_outputs=2, axis=1)
    shared = mx.sym.var("shared")
    left = mx.sym.FullyConnected(halves[0], weight=shared, num_hidden=5, no_bias=True, name="left")
    right = mx.sym.FullyConnected(halves[1], weight=shared, num_hidden=5, no_bias=True, name="right")
    odd = mx.sym.sort(right, axis=1)  # whatever has no rule is computed whole
    return mx.sym.Group([left * 2, mx.sym.broadcast_add(odd, mx.sym.sum(left, axis=1, keepdims=True))])


NETWORKS = {"convolutional": (convolutional, (8, 3, 10, 10)), "two_outputs": (two_outputs, (7, 9))}


def run(symbol: mx.sym.Symbol, args, aux, group2ctx):
    """Outputs, gradients and auxiliary states after a training step, and the outputs of an inference."""
    gradients = {name: mx.nd.zeros(array.shape) for name, array in args.items()}
    states = {name: array.copy() for name, array in aux.items()}
    executor = symbol.bind(mx.cpu(0), args, gradients, "write", states, group2ctx=group2ctx)
    outputs = [out.asnumpy() for out in executor.forward(is_train=True)]
    weights = np.random.RandomState(1)
    executor.backward([mx.nd.array(weights.standard_normal(out.shape)) for out in outputs])
    inference = [out.asnumpy() for out in executor.forward(is_train=False)]
    assert "_grad_add" not in executor.debug_str() or group2ctx is None
    return {**{f"output {i}": out for i, out in enumerate(outputs)},
            **{f"inference output {i}": out for i, out in enumerate(inference)},
            **{f"gradient of {name}": array.asnumpy() for name, array in gradients.items()},
            **{f"state {name}": array.asnumpy() for name, array in states.items()}}


def main(network: str, strategy: str, devices: int) -> None:
    mx.library.load(soybean_mx.library_path(), verbose=False)
    build, shape = NETWORKS[network]
    serial = build()
    shapes, _, aux_shapes = serial.infer_shape(data=shape)
    random = np.random.RandomState(0)
    args = {name: mx.nd.array(random.standard_normal(s) * 0.3) for name, s in zip(serial.list_arguments(), shapes)}
    aux = {name: mx.nd.ones(s) for name, s in zip(serial.list_auxiliary_states(), aux_shapes)}

    tiled = serial.optimize_for("soybean_mx", args=dict(args), aux=dict(aux), devices=devices, strategy=strategy)
    assert sorted(tiled.list_arguments()) == sorted(serial.list_arguments())
    assert sorted(tiled.list_auxiliary_states()) == sorted(serial.list_auxiliary_states())
    attributes = tiled.attr_dict()
    orders = [int(attributes[node]["__soybean_order__"]) for node in attributes]
    assert len(set(orders)) == len(orders)
    groups = {attributes[node]["__ctx_group__"] for node in attributes}
    assert groups <= {f"d{i}" for i in range(devices)} and (len(groups) > 1 or devices == 1), groups
    if network == "convolutional":
        assert attributes["w"]["__lr_mult__"] == "0.5"

    expected = run(serial, args, aux, None)
    actual = run(tiled, args, aux, {f"d{i}": mx.cpu(i) for i in range(devices)})
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        error = np.abs(actual[name] - value).max() / max(np.abs(value).max(), 1e-6)
        assert error < 1e-5, f"{name}: relative error {error}"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
