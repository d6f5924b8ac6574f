"""Two copies of a network with equal parameters: one for plain MXNet, one tiled. And comparisons."""
from __future__ import annotations

import itertools
import os
import tempfile
from typing import Callable, List, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import gluon

from soybean_mx import gluon_front

gluon_front.install()

_counter = itertools.count()


def mlp(sizes: Sequence[int] = (16, 12, 5), batch_norm: bool = False, dropout: float = 0.0,
        activation: str = "relu") -> Callable:
    """A function that makes a multi-layer perceptron with a given prefix."""

    def build(prefix: str) -> gluon.HybridBlock:
        net = gluon.nn.HybridSequential(prefix=prefix)
        with net.name_scope():
            for size in sizes[:-1]:
                net.add(gluon.nn.Dense(size, activation=activation))
                if batch_norm:
                    net.add(gluon.nn.BatchNorm())
                if dropout:
                    net.add(gluon.nn.Dropout(dropout))
            net.add(gluon.nn.Dense(sizes[-1]))
        return net

    return build


class Elementwise(gluon.HybridBlock):
    """A block of operators that MXNet has in half precision on the CPU too."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(8, 10))
            self.bias = self.params.get("bias", shape=(8, 10))

    def hybrid_forward(self, F, x, weight, bias):
        return F.tanh(F.elemwise_add(F.elemwise_mul(x, weight), bias))


def convolutional(prefix: str) -> gluon.HybridBlock:
    """A small convolutional network with BatchNorm."""
    net = gluon.nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(gluon.nn.Conv2D(6, 3, padding=1, use_bias=False), gluon.nn.BatchNorm(), gluon.nn.Activation("relu"),
                gluon.nn.MaxPool2D(), gluon.nn.Conv2D(8, 3, padding=1), gluon.nn.Activation("relu"),
                gluon.nn.GlobalAvgPool2D(), gluon.nn.Flatten(), gluon.nn.Dense(5))
    return net


def pair(build: Callable, *inputs, devices: str = "cpu:4", dtype: str = "float32", hybridize: bool = True,
         **options) -> Tuple[gluon.HybridBlock, gluon.HybridBlock]:
    """A plain and a tiled network with equal names and parameters.

    ``inputs`` shape the parameters; the tiled network is not called yet, so that it is the test that tiles it.
    """
    prefix = f"net{next(_counter)}_"
    plain, tiled = build(prefix), build(prefix)
    plain.initialize(mx.init.Xavier())
    if dtype != "float32":
        plain.cast(dtype)
        tiled.cast(dtype)
    with mx.autograd.pause():
        plain(*inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "all.params")
        plain.save_parameters(path)
        tiled.load_parameters(path)
    if hybridize:
        plain.hybridize()
        tiled.hybridize(backend="soybean_mx", devices=devices, **options)
    return plain, tiled


def parameters(net: gluon.HybridBlock) -> List[gluon.Parameter]:
    """The parameters of a network, in a fixed order."""
    return list(net.collect_params().values())


def samples(*shape: int, seed: int = 0, dtype: str = "float32") -> mx.nd.NDArray:
    """Normally distributed values, the same for the same arguments."""
    return mx.nd.array(np.random.RandomState(seed).normal(size=shape), dtype=dtype)


def assert_close(actual, expected, tolerance: float = 1e-5, what: str = "") -> None:
    """The largest difference is within ``tolerance`` of the largest value."""
    actual, expected = (np.asarray(a.asnumpy() if hasattr(a, "asnumpy") else a, "float64") for a in (actual, expected))
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    scale = max(np.abs(expected).max(), 1e-3) if expected.size else 1.0
    error = np.abs(actual - expected).max() / scale if expected.size else 0.0
    assert error <= tolerance, f"{what}: relative error {error:.3g}, allowed {tolerance:g}"


def assert_same_parameters(tiled, plain, tolerance: float = 1e-5, gradients: bool = True) -> None:
    """All values, and gradients, of two networks agree."""
    for ours, theirs in zip(parameters(tiled), parameters(plain)):
        assert ours.name == theirs.name
        assert_close(ours.data(), theirs.data(), tolerance, ours.name)
        if gradients and theirs.grad_req != "null":
            assert_close(ours.grad(), theirs.grad(), tolerance, ours.name + ".grad")


def train(net, trainer, steps: int, batch: int = 8, features: int = 10, seed: int = 0) -> List[float]:
    """Train on random samples; the losses."""
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for step in range(steps):
        data = samples(batch, features, seed=seed + step)
        label = mx.nd.array(np.arange(batch) % 5)
        with mx.autograd.record():
            loss = loss_function(net(data), label).mean()
        loss.backward()
        trainer.step(1)
        losses.append(float(loss.asscalar()))
    return losses
