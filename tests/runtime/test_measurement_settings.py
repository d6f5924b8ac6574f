"""Settings that are there to measure: no communication, and several tiles on one device."""
from __future__ import annotations

import re
from collections import Counter

import mxnet as mx
import pytest
from mxnet import autograd, gluon

from soybean_mx.devices import DeviceError
from soybean_mx.gluon_front import plan_of

from .pairs import assert_close, assert_same_parameters, convolutional, mlp, pair, samples, train


class Words(gluon.HybridBlock):
    """Whole numbers cross devices here, and a gradient comes back to the rows of a table."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.table = gluon.nn.Embedding(12, 8)
            self.scores = gluon.nn.Dense(6, flatten=False, in_units=8)

    def hybrid_forward(self, F, words):
        return self.scores(self.table(words)).mean(axis=1)


def executed(net) -> Counter:
    """How often the bound executor runs each operator, forward and backward; copies, fills and sums apart."""
    (signature,) = net._cached_op._signatures.values()
    (bound,) = signature.free
    names = re.findall(r"Op:(\S+), Name=", bound._executor.debug_str())
    apart = ("_copy", "_backward_copy", "_grad_add", "add_n", "make_loss", "ones_like")
    return Counter(name for name in names if name not in apart)


def one_step(net, inputs):
    with autograd.record():
        loss = (net(inputs) ** 2).sum()
    loss.backward()
    mx.nd.waitall()


@pytest.mark.parametrize("build, inputs, devices, strategy", [
    (mlp((32, 32, 8)), samples(6, 16), "cpu:4", "optimal"), (mlp((9, 7, 8)), samples(5, 10), "cpu:3", "model"),
    (convolutional, samples(4, 3, 8, 8), "cpu:4", "data"),
    (lambda prefix: Words(prefix=prefix), mx.nd.array([[1, 2, 3], [4, 5, 11]]), "cpu:2", "model")])
def test_without_exchanges_every_device_computes_the_same(monkeypatch, build, inputs, devices, strategy):
    _, tiled = pair(build, inputs, devices=devices, strategy=strategy)
    one_step(tiled, inputs)
    monkeypatch.setenv("SOYBEAN_MX_CONVERSIONS", "local")
    with pytest.warns(RuntimeWarning, match="all results are wrong"):
        _, local = pair(build, inputs, devices=devices, strategy=strategy)
    one_step(local, inputs)
    bytes_moved = plan_of(tiled)["bytes"]
    assert plan_of(local)["bytes"] == bytes_moved and bytes_moved["total"] > 0
    exchanged = executed(tiled)
    crossing = exchanged.pop("_CrossDeviceCopy", 0)
    assert executed(local) == exchanged
    assert crossing > 0 and any(name.startswith("_backward_FullyConnected") for name in exchanged)


@pytest.mark.parametrize("tiles", [1, 4])
def test_tiles_on_one_device_train_as_one(monkeypatch, tiles):
    monkeypatch.setenv("SOYBEAN_MX_TILES_PER_DEVICE", str(tiles))
    nets = pair(mlp(activation="tanh"), samples(8, 10), devices="cpu:1")
    losses = []
    for net in nets:
        # The rate falls with the count of updates, which is one a step.
        trainer = gluon.Trainer(net.collect_params(), "adam", {
            "learning_rate": 0.01, "lr_scheduler": mx.lr_scheduler.FactorScheduler(1, 0.5)})
        losses.append(train(net, trainer, 4))
    assert_close(losses[1], losses[0], 1e-5)
    assert_same_parameters(nets[1], nets[0], 1e-4, gradients=False)
    assert plan_of(nets[1])["devices"] == tiles
    tile = next(iter(nets[1].collect_params().values())).list_data()
    assert {array.context for array in tile} == {mx.cpu(0)} and len(tile) == tiles


def test_tiles_of_several_devices(monkeypatch):
    monkeypatch.setenv("SOYBEAN_MX_TILES_PER_DEVICE", "2")
    nets = pair(mlp(), samples(8, 10), devices="cpu:2")
    for net in nets:
        one_step(net, samples(8, 10))
    assert_same_parameters(nets[1], nets[0], 1e-4)
    assert plan_of(nets[1])["devices"] == 4


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "2000"])
def test_messages(monkeypatch, value):
    monkeypatch.setenv("SOYBEAN_MX_TILES_PER_DEVICE", value)
    with pytest.raises(DeviceError, match=f"SOYBEAN_MX_TILES_PER_DEVICE is '{value}': give a number of 1 to 1024"):
        pair(mlp(), samples(8, 10), devices="cpu:1")


def test_many_tiles_of_one_context_are_updated(monkeypatch):
    # MXNet's operator takes 60 tensors at most.
    monkeypatch.setenv("SOYBEAN_MX_TILES_PER_DEVICE", "8")
    nets = pair(mlp(sizes=[16] * 10 + [8]), samples(8, 10), devices="cpu:1", strategy="data")
    for net in nets:
        train(net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}), 2)
    assert_same_parameters(nets[1], nets[0], 1e-4, gradients=False)
