"""A program that never mentions soybean_mx, with default devices installed; run in a process of its own."""
from __future__ import annotations

import mxnet as mx
from mxnet import autograd, gluon

from soybean_mx import gluon_front
from soybean_mx.gluon_front import TiledGraph

from .pairs import assert_same_parameters, mlp, pair, samples, train


def main():
    plain, tiled = pair(mlp(), samples(8, 10), hybridize=False)
    plain.hybridize()
    trainers = [gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}) for net in (plain, tiled)]
    train(plain, trainers[0], 3)

    gluon_front.install("cpu:4")
    tiled.hybridize(static_alloc=True, static_shape=True)
    train(tiled, trainers[1], 3)
    assert isinstance(tiled._cached_op, TiledGraph)
    assert gluon_front.plan_of(tiled)["devices"] == 4
    assert_same_parameters(tiled, plain)

    # A loss without parameters, and a block that is not hybridized, are left alone.
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    loss.hybridize()
    data, label = samples(8, 10), mx.nd.arange(8) % 5
    for net, trainer in ((plain, trainers[0]), (tiled, trainers[1])):
        with autograd.record():
            value = loss(net(data), label)
        value.backward()
        trainer.step(8)
    assert_same_parameters(tiled, plain)
    assert not isinstance(loss._cached_op, TiledGraph)
    eager = mlp()("eager_")
    eager.initialize()
    eager(data)
    assert eager._cached_op is None


if __name__ == "__main__":
    main()
