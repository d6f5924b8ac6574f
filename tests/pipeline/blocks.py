"""Unmodified Gluon programs whose blocks run in stages, against plain MXNet; run by name in a child process."""
from __future__ import annotations

import sys
import warnings

import soybean_mx  # noqa: F401  (before MXNet: it sets what MXNet reads at its start)

import mxnet as mx  # isort: skip
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

from soybean_mx.gluon_front import BlockError, plan_of
from tests.pipeline.parity import BATCH, TYPES, batches, network, on_one_device

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()
SETTINGS = {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-3}


def pipelined(net, devices=3, microbatches=4):
    net.hybridize(backend="soybean_mx", devices=f"cpu:{devices}", parallel="pipeline", microbatches=microbatches)


def close(some, others, tolerance=1e-5):
    assert len(some) == len(others)
    for a, b in zip(some, others):
        assert np.abs(a - b).max() <= tolerance * max(1e-6, np.abs(b).max()), np.abs(a - b).max()


def values(net):
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()]


def train(net, trainer, given):
    """The losses; the program says only what a program for one device does."""
    losses = []
    for data, label in given:
        with autograd.record():
            loss = LOSS(net(data), label)
        loss.backward()
        trainer.step(data.shape[0])
        losses.append(loss.asnumpy())
    return losses


def pair(name, change):
    """What a program ends with on plain MXNet and in stages."""
    results = []
    for staged in (False, True):
        net, shape = network(name)
        net.hybridize()
        if staged:
            pipelined(net)
        results.append(change(net, shape))
    close(*results[::-1])


def networks():
    """Parameters after some steps are one device's, of networks without statistics of the batch."""
    for name in ("alexnet", "transformer", "mlp"):
        def trained(net, shape):
            trainer = gluon.Trainer(net.collect_params(), "sgd", SETTINGS)
            return train(net, trainer, batches(shape, 4)) + values(net)  # noqa: B023

        pair(name, trained)


def statistics_of_microbatches():
    """BatchNorm: with one microbatch bit for bit as on one device, with more as there, microbatch by microbatch."""
    for microbatches in (1, 4):
        expected, losses = on_one_device("resnet18_v1", microbatches, "sgd", SETTINGS, (BATCH,) * 4)
        net, shape = network("resnet18_v1")
        pipelined(net, 3, microbatches)
        trainer = gluon.Trainer(net.collect_params(), "sgd", SETTINGS)
        got = train(net, trainer, batches(shape, 4, dtype=TYPES["resnet18_v1"]))
        close(got + values(net), losses + expected, 0 if microbatches == 1 else 1e-9)
    net, shape = network("resnet18_v1")
    pipelined(net, 3, None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(net, gluon.Trainer(net.collect_params(), "sgd", SETTINGS),
              batches(shape, 1, dtype=TYPES["resnet18_v1"]))
    assert any("statistics of each of 6 microbatches" in str(warning.message) for warning in caught)


def uses():
    """What else a program does: gradients of inputs, sums of gradients, several calls, other optimizers, ..."""
    def whole(net, shape):
        (data, label), (other, other_label), *rest = batches(shape, 5)
        net(data)  # inference first
        trainer = gluon.Trainer(list(net.collect_params().values()), "adam", {"learning_rate": 0.01})
        data.attach_grad()
        with autograd.record():  # two calls, one backward pass
            loss = LOSS(net(data), label).sum() + (LOSS(net(other), other_label) * 2).sum()
        loss.backward()
        seen = [data.grad.asnumpy(), *(parameter.grad().asnumpy() for parameter in net.collect_params().values())]
        trainer.step(BATCH)
        with autograd.record():
            loss = LOSS(net(data), label)
        loss.backward(retain_graph=True)
        loss.backward()
        seen += [parameter.grad().asnumpy() for parameter in net.collect_params().values()]
        net.collect_params().setattr("grad_req", "add")
        net.collect_params().zero_grad()
        for some, label in rest[:2]:
            with autograd.record():
                loss = LOSS(net(some), label)
            loss.backward()
        seen += [parameter.grad().asnumpy() for parameter in net.collect_params().values()]
        trainer.step(2 * BATCH)
        net.collect_params().zero_grad()
        small, label = rest[2][0][:3], rest[2][1][:3]  # a smaller batch than there are microbatches
        with autograd.record():
            loss = LOSS(net(small), label)
        loss.backward()
        trainer.step(3)
        seen += values(net)
        first = next(iter(net.collect_params().values()))
        first.set_data(first.data() * 0.5)
        return [*seen, net(data).asnumpy()]

    pair("mlp", whole)


def tied_sums():
    """A weight of two stages, whose gradients the program adds up over two batches."""
    def added(net, shape):
        net.collect_params().setattr("grad_req", "add")
        given = list(batches(shape, 2))
        net(given[0][0])
        net.collect_params().zero_grad()
        for data, label in given:
            with autograd.record():
                loss = LOSS(net(data), label)
            loss.backward()
        return [parameter.grad().asnumpy() for parameter in net.collect_params().values()]

    pair("transformer", added)


def checkpoints(path):
    """Parameters and trainer states that are saved in mid-run are one device's, and load into either."""
    net, shape = network("mlp")
    pipelined(net)
    given = list(batches(shape, 6))
    trainer = gluon.Trainer(list(net.collect_params().values()), "adam", {"learning_rate": 0.01})
    train(net, trainer, given[:3])
    net.save_parameters(path)
    trainer.save_states(path + ".states")
    train(net, trainer, given[3:])
    for staged in (False, True):
        again, _ = network("mlp")
        again.load_parameters(path)
        if staged:
            pipelined(again, 2, 3)
        else:
            again.hybridize()
        other = gluon.Trainer(list(again.collect_params().values()), "adam", {"learning_rate": 0.01})
        other.load_states(path + ".states")
        train(again, other, given[3:])
        close(values(again), values(net))


class _TwoResults(nn.HybridBlock):
    def __init__(self, mixes):
        super().__init__()
        self._mixes = mixes
        with self.name_scope():
            self.first, self.last = nn.Dense(5, in_units=4), nn.Dense(3, in_units=5)

    def hybrid_forward(self, F, x, y):
        early = self.first(x)
        late = self.last(F.tanh(early) + y)
        if self._mixes:
            late = F.broadcast_sub(late, F.mean(late, axis=0, keepdims=True))
        return early, late


def other_blocks():
    """Two inputs and two results, one of them early; and a block that mixes samples, which is not cut, with a warning.
    """
    for mixes in (False, True):
        results = []
        for staged in (False, True):
            mx.random.seed(2)
            np.random.seed(2)
            net = _TwoResults(mixes)
            net.initialize(mx.init.Xavier())
            net.hybridize()
            if staged:
                pipelined(net)
            x, y = mx.nd.random.normal(shape=(6, 4)), mx.nd.random.normal(shape=(6, 5))
            x.attach_grad()
            y.attach_grad()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with autograd.record():
                    early, late = net(x, y)
                    loss = (early * early).sum() + (late ** 3).sum()
                loss.backward()
            warned = [warning for warning in caught if "one after the other" in str(warning.message)]
            assert len(warned) == int(staged and mixes)
            if staged:
                assert plan_of(net)["microbatches"] == (1 if mixes else 4)
            results.append([early.asnumpy(), late.asnumpy(), x.grad.asnumpy(), y.grad.asnumpy(),
                            *(parameter.grad().asnumpy() for parameter in net.collect_params().values())])
        close(*results)


def shared_by_blocks():
    """Two blocks that share a layer, which lies on another device in each."""
    results = []
    for staged in (False, True):
        mx.random.seed(2)
        np.random.seed(2)
        layers = [nn.Dense(4, in_units=4, activation="tanh") for _ in range(3)]
        some, others = nn.HybridSequential(), nn.HybridSequential()
        some.add(*layers)
        others.add(nn.Dense(4, in_units=4), *layers[:1])
        for net in (some, others):
            net.initialize(mx.init.Xavier())
            net.hybridize()
            if staged:
                pipelined(net, 2)
        parameters = {parameter.name: parameter for net in (some, others)
                      for parameter in net.collect_params().values()}
        trainer = gluon.Trainer(list(parameters.values()), "sgd", SETTINGS)
        x = mx.nd.random.normal(shape=(6, 4))
        for _ in range(3):
            with autograd.record():
                loss = (some(x) ** 2).sum() + (others(x) ** 3).sum()
            loss.backward()
            trainer.step(6)
            with autograd.record():
                loss = (some(x) ** 2).sum()
            loss.backward()
            trainer.step(6, ignore_stale_grad=True)
        results.append([parameter.data().asnumpy() for parameter in parameters.values()])
    close(*results)


def refused():
    """Options that are for tiled blocks, and numbers that are none."""
    for options, said in (({"parallel": "sideways"}, "tiling and pipeline"), ({"microbatches": 0}, "1 or more"),
                          ({"microbatches": 4, "parallel": "tiling"}, "tiled blocks have none"),
                          ({"strategy": "data"}, "strategy='data'"), ({"recompute": True}, "recompute=True")):
        net = nn.Dense(3)
        try:
            net.hybridize(backend="soybean_mx", **{"devices": "cpu:2", "parallel": "pipeline", **options})
        except BlockError as error:
            assert said in str(error), error
        else:
            raise AssertionError(options)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    print("done", sys.argv[1])
