"""BatchNorm over the whole batch, cut along it, against float64."""
from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

from soybean_mx import operators
from tests.runtime.pairs import pair

EPS = 1e-5


def network(prefix: str) -> gluon.HybridBlock:
    """BatchNorm alone."""
    net = gluon.nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(gluon.nn.BatchNorm(in_channels=3, epsilon=EPS))
    return net


def normalized(x: np.ndarray, head: np.ndarray):
    """The output and the gradient of x, in float64."""
    x, head, axes = x.astype("float64"), head.astype("float64"), (0, 2, 3)
    mean, var = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    y = (x - mean) / np.sqrt(var + EPS)
    gradient = (head - head.mean(axis=axes, keepdims=True) - y * (head * y).mean(axis=axes, keepdims=True))
    return y, gradient / np.sqrt(var + EPS)


# Elements that are further from 0 than from each other are known less well; sums of their squares would lose the square
# of that ratio: at 1e6 in double precision, all but 4 digits.
@pytest.mark.parametrize("dtype, mean", [("float32", 0.0), ("float32", 100.0), ("float64", 0.0), ("float64", 1e6)])
@pytest.mark.parametrize("image", [(16, 16), (1, 1)])
@pytest.mark.parametrize("own", [True, False])
def test_values_and_gradients(dtype, mean, image, own, monkeypatch):
    if not own:
        monkeypatch.setattr(operators, "are_usable", lambda contexts: False)
    rng = np.random.RandomState(0)
    x, head = rng.normal(mean, 1.0, size=(8, 3, *image)).astype(dtype), rng.normal(size=(8, 3, *image))
    data = mx.nd.array(x, dtype=dtype)
    _, net = pair(network, data, devices="cpu:4", strategy="data", dtype=dtype)
    data.attach_grad()
    with autograd.record():
        out = net(data)
    out.backward(mx.nd.array(head, dtype=dtype))
    y, gradient = normalized(x, head)
    tolerance = 50 * np.finfo(dtype).eps * (1 + mean)
    assert np.abs(out.asnumpy() - y).max() < tolerance
    assert np.abs(data.grad.asnumpy() - gradient).max() < tolerance
    moved = 1 - float(np.float32(0.9))  # MXNet keeps BatchNorm's momentum in single precision
    assert np.abs(net[0].running_mean.data().asnumpy() - moved * x.mean(axis=(0, 2, 3))).max() < tolerance
    assert np.abs(net[0].running_var.data().asnumpy() - 0.9 - moved * x.var(axis=(0, 2, 3))).max() < 1e-6
