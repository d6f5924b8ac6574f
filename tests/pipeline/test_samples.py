"""Following the samples through a network: what is cut gives, part by part, what the whole gives."""
from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest

from soybean_mx import core
from soybean_mx.graph import describe
from soybean_mx.pipeline.samples import sample_dims

F = mx.sym
X = mx.sym.var("x")
CUT = {
    "dense": (F.FullyConnected(X, num_hidden=3, name="f"), (4, 6), [0]),
    "image": (F.Pooling(F.Convolution(X, kernel=(3, 3), num_filter=4, name="c"), kernel=(2, 2), name="p"),
              (4, 3, 8, 8), [0]),
    "softmax": (F.softmax(F.Flatten(X)), (4, 2, 3), [0]),
    "moved": (F.transpose(X, axes=(1, 0, 2)), (4, 2, 3), [1]),
    "there and back": (F.sum(F.transpose(X, axes=(1, 0, 2)), axis=0), (4, 2, 3), [0]),
    "norm": (F.LayerNorm(X, name="l"), (4, 6), [0]),
    "reshape": (F.reshape(X, shape=(0, -1)), (4, 2, 3), [0]),
    "embedding": (F.Embedding(X, input_dim=7, output_dim=3, name="e"), (4, 5), [0]),
}
NOT_CUT = {
    "mean of samples": (F.mean(X, axis=0, keepdims=True), (4, 6)),
    "softmax of samples": (F.softmax(X, axis=0), (4, 6)),
    "recurrent over dim 0": (F.RNN(X, F.var("w"), F.zeros((1, 4, 3)), mode="rnn_tanh", state_size=3, num_layers=1,
                                   name="r"), (4, 4, 2)),
    "product of samples": (F.dot(X, X, transpose_b=True), (4, 6)),
    "cumulated": (F.cumsum(X, axis=0), (4, 6)),
    "own gradient": (F.SoftmaxOutput(X, F.var("label"), normalization="batch", name="s"), (4, 6)),
    "stated batch": (F.reshape(X, shape=(4, 3, 2)), (4, 6)),
    "joined": (F.concat(X, X, dim=0), (4, 6)),
    "beside": (F.Group([F.FullyConnected(X, num_hidden=3, name="f"), F.var("w") * 2]), (4, 6)),
    "first ones": (F.slice_axis(X, axis=0, begin=0, end=2), (4, 6)),
}


def found_of(symbol, shape):
    graph = described(symbol, shape)
    return sample_dims(graph, core.rules(graph), {"x"}, (1, 3), lambda size: described(symbol, (size, *shape[1:])))


def described(symbol, shape):
    shapes, _, states = symbol.infer_shape_partial(x=shape)
    given = {name: (tuple(found) or (3,), np.float32) for name, found in
             [*zip(symbol.list_arguments(), shapes), *zip(symbol.list_auxiliary_states(), states)]}
    return describe(symbol, {"x": given.pop("x")}, given, set(), True)


@pytest.mark.parametrize("name", CUT)
def test_a_batch_that_may_be_cut(name):
    symbol, shape, dims = CUT[name]
    found = found_of(symbol, shape)
    assert found.outputs == dims, found.reason
    random = np.random.RandomState(0)
    values = {other: mx.nd.array(random.uniform(0, 6, size)) for other, size in
              zip(symbol.list_arguments(), symbol.infer_shape(x=shape)[0])}

    def run(x):
        return mx.nd.CachedOp(symbol)(*(x if other == "x" else values[other] for other in symbol.list_inputs()))

    parts = [run(values["x"][begin:end]).asnumpy() for begin, end in ((0, 1), (1, 4))]
    np.testing.assert_allclose(np.concatenate(parts, dims[0]), run(values["x"]).asnumpy(), rtol=1e-5)


@pytest.mark.parametrize("name", NOT_CUT)
def test_a_batch_that_may_not_be_cut(name):
    symbol, shape = NOT_CUT[name]
    found = found_of(symbol, shape)
    assert found.outputs is None and found.reason


def test_statistics_of_a_batch_are_those_of_the_microbatch():
    assert found_of(F.BatchNorm(X, name="b"), (4, 6)).outputs == [0]
