"""Networks of linear algebra, NumPy's operators and random numbers, trained plain and tiled and compared.

``python -m tests.runtime.numeric_networks NAME DEVICES STRATEGY`` prints nothing where they agree.
"""
from __future__ import annotations

import sys
from typing import List

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from tests.runtime.pairs import assert_close, assert_same_parameters, pair, parameters, samples

BATCH, SIZE = 8, 6


class Network(gluon.HybridBlock):
    """A matrix for each sample, made by a dense layer, and what a subclass does with it and two weights."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = gluon.nn.Dense(SIZE * SIZE, in_units=10, use_bias=False)
            self.square = self.params.get("square", shape=(SIZE, SIZE), init=mx.init.Normal(0.3))
            self.addend = self.params.get("addend", shape=(BATCH, SIZE), init=mx.init.Normal(0.3))


class Matrices(Network):
    # No tensor has 8 users, whose gradients MXNet sums up wrongly on one device, too.
    def hybrid_forward(self, F, x, square, addend):
        hidden = self.dense(x)
        matrix, other = F.tanh(F.reshape(hidden, (-1, SIZE, SIZE))), F.sin(F.reshape(hidden, (-1, SIZE, SIZE)))
        row = F.slice_axis(F.cos(hidden), axis=1, begin=0, end=SIZE)
        definite = F.broadcast_add(F.linalg.syrk(matrix), 2 * F.expand_dims(F.eye(SIZE, dtype="float64"), axis=0))
        factor = F.linalg.potrf(definite)
        places = F.unravel_index(F.arange(0, SIZE, dtype="int32"), shape=(SIZE, SIZE))
        back = F.cast(F.ravel_multi_index(places, shape=(SIZE, SIZE)), "float64")
        order = F.expand_dims(F.argsort(F.reshape(F.slice_axis(hidden, axis=1, begin=0, end=1), -1)), axis=0)
        return (F.linalg.gemm(row, square, addend, transpose_b=True, alpha=2, beta=3),
                F.linalg.gemm2(matrix, matrix, transpose_a=True, axis=0),
                F.linalg.trsm(factor, other), F.linalg.trmm(factor, other, rightside=True),
                F.linalg.sumlogdiag(factor), F.linalg.inverse(definite), F.linalg.det(definite), F.linalg.potri(factor),
                F.linalg.extractdiag(matrix, offset=1), F.linalg.makediag(row), F.linalg.extracttrian(matrix),
                F.diag(other, axis1=1, axis2=2), F.scatter_nd(other, order, shape=(BATCH, SIZE, SIZE)),
                F.gather_nd(other, F.expand_dims(F.arange(0, 3, dtype="int32"), axis=0)),
                F.broadcast_mul(F.expand_dims(back, axis=0), row))


class Numpy(Network):
    def hybrid_forward(self, F, x, square, addend):
        hidden = F.np.reshape(self.dense(x), (-1, SIZE, SIZE))
        matrix, other, third = F.np.tanh(hidden), F.np.sin(hidden), F.np.cos(hidden)
        definite = F.np.matmul(matrix, F.np.transpose(matrix, (0, 2, 1))) + 2 * F.np.identity(SIZE, dtype="float64")
        row, window = third[:, 0], F.np.hamming(SIZE, dtype="float64")
        return (F.np.linalg.cholesky(definite), F.np.linalg.solve(definite, other), F.np.linalg.inv(definite),
                F.np.linalg.det(definite), F.np.linalg.norm(matrix, axis=1), F.np.tril(matrix, 1),
                F.np.average(other, axis=1, weights=F.np.abs(other) + 0.1), F.np.polyval(square[0], row) * window,
                F.np.column_stack((row, row * 2)), F.np.rot90(third, 1, (0, 2)),
                F.np.hsplit(row, 2)[0] * F.np.zeros((BATCH, 1), dtype="float64") + F.np.percentile(row, 30),
                F.np.dsplit(other, 3)[1], F.np.trace(matrix, axis1=1, axis2=2), F.np.dot(row, square) + addend,
                F.np.diag_indices_from(square)[0] * F.np.ones((BATCH, 1), dtype="float64"))


class Random(Network):
    """Random numbers on which nothing depends in the end, but gradients go past them."""

    def hybrid_forward(self, F, x, square, addend):
        hidden = F.slice_axis(self.dense(x), axis=1, begin=0, end=SIZE)
        noise = F.random.uniform(0, 1, shape=(BATCH, SIZE), dtype="float64")
        like = F.random.normal_like(data=hidden)
        drawn = F.cast(F.sample_uniform(F.zeros((BATCH,)), F.ones((BATCH,)), shape=(5,)), "float64")
        chosen = F.sample_multinomial(F.softmax(hidden), shape=(3,))
        density = F.random_pdf_normal(hidden, F.mean(hidden, axis=1), 1 + F.square(F.max(hidden, axis=1)))
        return (hidden * (noise >= 0), addend * (noise < 1), F.dot(hidden, square) + 0 * like,
                F.cast(chosen < SIZE, "float64"),
                F.broadcast_mul(hidden, F.sum(drawn < 1, axis=1, keepdims=True)), density)


class NumpyRandom(Network):
    """The same with NumPy's, in single precision, in which alone MXNet draws most of them."""

    def hybrid_forward(self, F, x, square, addend):
        hidden = F.np.tanh(self.dense(x))[:, :SIZE].astype("float32")
        normal = F.np.random.normal(hidden, 1e-9, size=(BATCH, SIZE))
        uniform = F.np.random.uniform(0, 1, size=(BATCH, SIZE))
        shifted = F.np.random.gumbel(addend.astype("float32"), 1e-9, size=(BATCH, SIZE))
        kept = (hidden * (uniform < 1)).astype("float64") + F.np.sum(square)
        return kept, normal.astype("float64"), shifted.astype("float64")


class Noise(gluon.HybridBlock):
    """Nothing but random numbers: no device may draw what another one draws."""

    def hybrid_forward(self, F, x):
        drawn = F.random.uniform(0, 1, shape=(32, SIZE))
        like = F.random.uniform_like(data=x)
        for_each = F.sample_uniform(F.zeros((32,)), F.ones((32,)), shape=(SIZE,))
        return drawn, like, for_each


NETWORKS = {"matrices": Matrices, "numpy": Numpy, "random": Random, "numpy_random": NumpyRandom}


def run(net: gluon.HybridBlock, data, step: int) -> List:
    """Train a step; return outputs and the gradient of the data."""
    data = data.copy()
    data.attach_grad()
    with autograd.record():
        outputs = net(data)
        loss = sum((samples(*output.shape, seed=step + 7 * i, dtype="float64").as_in_context(output.context)
                    * output.as_nd_ndarray()).sum() for i, output in enumerate(outputs))
    loss.backward()
    for parameter in parameters(net):
        parameter.set_data(parameter.data() - 1e-3 * parameter.grad())
    return [*outputs, data.grad]


def compare(name: str, devices: str, strategy: str) -> None:
    """Compare outputs and gradients in two steps."""
    if name.startswith("numpy"):
        mx.npx.set_np()

    def inputs(seed):
        data = samples(BATCH, 10, seed=seed, dtype="float64")
        return data.as_np_ndarray() if name.startswith("numpy") else data

    nets = pair(lambda prefix: NETWORKS[name](prefix=prefix), inputs(0), devices=devices, dtype="float64",
                strategy=strategy)
    for step in range(2):
        results = [run(net, inputs(step), step) for net in nets]
        for number, (theirs, ours) in enumerate(zip(*results)):
            assert_close(ours, theirs, 1e-6, f"result {number} of step {step}")
        assert_same_parameters(nets[1], nets[0], 1e-6)


def draw(devices: str, strategy: str) -> None:
    """Draw twice; fail if any number came up twice, which of thousands of float32 numbers few do."""
    net = Noise()
    net.initialize()
    net.hybridize(backend="soybean_mx", devices=devices, strategy=strategy)
    for _ in range(2):
        for drawn in net(mx.nd.zeros((32, SIZE))):
            values = drawn.asnumpy()
            assert values.shape == (32, SIZE) and 0 <= values.min() and values.max() < 1
            assert len(np.unique(values)) >= values.size - 2
            assert 0.35 < values.mean() < 0.65


def main(name: str, devices: str, strategy: str) -> None:
    """Run one network's check."""
    if name == "noise":
        draw(devices, strategy)
    else:
        compare(name, devices, strategy)


if __name__ == "__main__":
    main(*sys.argv[1:])
