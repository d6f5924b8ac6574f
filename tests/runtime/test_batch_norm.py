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


@pytest.mark.parametrize("mean", [0.0, 100.0])
@pytest.mark.parametrize("own", [True, False])
def test_values_and_gradients(mean, own, monkeypatch):
    if not own:
        monkeypatch.setattr(operators, "are_usable", lambda contexts: False)
    rng = np.random.RandomState(0)
    x, head = rng.normal(mean, 1.0, size=(8, 3, 16, 16)).astype("float32"), rng.normal(size=(8, 3, 16, 16))
    data = mx.nd.array(x)
    _, net = pair(network, data, devices="cpu:4", strategy="data")
    data.attach_grad()
    with autograd.record():
        out = net(data)
    out.backward(mx.nd.array(head))
    y, gradient = normalized(x, head)
    # An element of 100 in single precision is known to 4e-6.
    tolerance = 1e-5 + 2e-6 * mean
    assert np.abs(out.asnumpy() - y).max() < tolerance
    assert np.abs(data.grad.asnumpy() - gradient).max() < tolerance
    assert np.abs(net[0].running_mean.data().asnumpy() - 0.1 * x.mean(axis=(0, 2, 3))).max() < 1e-4
