"""Training in MXNet's numpy mode; run in a process of its own, since the mode is the process's."""
from __future__ import annotations

import os
import sys
import tempfile

import mxnet as mx
from mxnet import autograd, gluon

from .pairs import assert_close, assert_same_parameters, samples


def build(prefix):
    net = gluon.nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(gluon.nn.Conv2D(6, 3, padding=1, use_bias=False), gluon.nn.BatchNorm(), gluon.nn.Activation("relu"),
                gluon.nn.MaxPool2D(), gluon.nn.Flatten(), gluon.nn.Dense(12, activation="relu"), gluon.nn.Dense(5))
    return net


class Scalar(gluon.HybridBlock):
    """An output without dims, and a parameter."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.weight = self.params.get("weight", shape=(8, 6))

    def hybrid_forward(self, F, x, weight):
        return F.np.sum(F.np.sin(x * weight)), F.np.mean(x, axis=1)


def check_training():
    plain, tiled = build("net_"), build("net_")
    plain.initialize(mx.init.Xavier())
    data = samples(8, 3, 8, 8).as_np_ndarray()
    plain(data)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.params")
        plain.save_parameters(path)
        tiled.load_parameters(path)
        plain.hybridize()
        tiled.hybridize(backend="soybean_mx", devices="cpu:4")
        loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
        label = mx.np.arange(8) % 5
        trainers = [gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}) for net in (plain, tiled)]
        for _ in range(3):
            losses = []
            for net, trainer in zip((plain, tiled), trainers):
                with autograd.record():
                    out = net(data)
                    loss = loss_function(out, label).mean() + 0.01 * (net[-1].weight.data() ** 2).sum()
                loss.backward()
                gluon.utils.clip_global_norm([net[0].weight.grad().as_nd_ndarray()], 0.1)
                trainer.step(1)
                losses.append(loss)
                assert isinstance(out, mx.np.ndarray) and isinstance(loss, mx.np.ndarray)
            assert_close(losses[1], losses[0])
        assert_same_parameters(tiled, plain, 1e-4)
        assert all(isinstance(array, mx.np.ndarray) for array in tiled[0].weight.list_data() + [
            tiled[0].weight.data(), tiled[0].weight.grad()])
        assert_close(tiled(data[:3]), plain(data[:3]), 1e-4)
        tiled.save_parameters(path)
        plain.load_parameters(path)
        trainers[1].save_states(path)
        trainers[0].load_states(path)
        tiled[-1].bias.set_data(mx.np.ones(5))
        assert tiled[-1].bias.data().asnumpy().sum() == 5
        tiled.collect_params().zero_grad()
        assert not tiled[0].weight.grad().asnumpy().any()


def check_scalars():
    nets = [Scalar(prefix="scalar_") for _ in range(2)]
    results = []
    for net, options in zip(nets, ({}, {"backend": "soybean_mx", "devices": "cpu:4"})):
        net.initialize(mx.init.One())
        net.hybridize(**options)
        x = samples(8, 6).as_np_ndarray()
        x.attach_grad()
        with autograd.record():
            total, means = net(x)
            loss = total * 3 + (means ** 2).sum()
        loss.backward()
        assert total.shape == () and means.shape == (8,)
        results.append((total, means, x.grad, net.weight.grad()))
    for theirs, ours in zip(*results):
        assert_close(ours, theirs)


if __name__ == "__main__":
    mx.npx.set_np()
    {"training": check_training, "scalars": check_scalars}[sys.argv[1]]()
