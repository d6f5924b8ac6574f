"""Networks of vision and detection operators train tiled as on one device."""
from __future__ import annotations

import itertools

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

from soybean_mx.gluon_front import plan_of
from tests.child import run_child
from tests.runtime.pairs import assert_close, assert_same_parameters, pair, samples

# Each in a process of its own: what MXNet does wrong with some of these operators ends it.
NETWORKS = ("deformable", "synchronised", "sized", "detector", "warped", "gathered")
RUNS = [(name, ("cpu:4", "cpu:8", "cpu:3")[i % 3], strategy)
        for i, (name, strategy) in enumerate(itertools.product(NETWORKS, ("data", "optimal")))]


@pytest.mark.parametrize("run", RUNS, ids="-".join)
def test_trains_as_on_one_device(run):
    run_child("tests.runtime.vision_networks", run, env={"OMP_NUM_THREADS": "1"})


class _Photographs(gluon.HybridBlock):
    """Bytes on their way to the pixels that a layer takes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layer = gluon.nn.Conv2D(4, 3)

    def hybrid_forward(self, F, x):
        x = F.image.crop(F.image.resize(x, size=(12, 10)), x=1, y=1, width=8, height=9)
        swapped = F.reverse(F.transpose(x, axes=(1, 2, 0, 3)), axis=0)
        pixels = F.image.normalize(F.image.to_tensor(x), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
        return self.layer(pixels), F.cast(swapped, "float32").sum(axis=(0, 1))


@pytest.mark.parametrize("strategy", ["data", "random:1"])
def test_bytes_move_between_devices(strategy):
    data = mx.nd.array(np.random.RandomState(0).randint(0, 256, size=(8, 16, 14, 3)), dtype="uint8")
    nets = pair(lambda prefix: _Photographs(prefix=prefix), data, strategy=strategy)
    results = []
    for net in nets:
        with mx.autograd.record():
            outputs = net(data)
        mx.autograd.backward(list(outputs))
        results.append(outputs)
    for theirs, ours in zip(*results):
        assert_close(ours, theirs)
    assert_same_parameters(nets[1], nets[0])


def test_a_network_in_8_bits_predicts_tiled():
    from gluoncv import model_zoo  # slow to import

    net = model_zoo.get_model("mobilenet1.0_int8", pretrained=False)
    net.initialize(mx.init.Normal(0.05))
    for name, parameter in net.collect_params().items():
        if name.endswith(("gamma", "var")):
            parameter.initialize(mx.init.One(), force_reinit=True)
    data = samples(6, 3, 32, 32)
    expected = net(data).asnumpy()
    net.hybridize(backend="soybean_mx", devices="cpu:3", strategy="data")
    assert_close(net(data), expected, 1e-6)
    plan = plan_of(net)
    # Its first operator takes the range of the data themselves.
    assert plan["whole"] == ["data_quantize"]
    assert all("n" in cut[0] for name, cut in plan["operators"].items() if "quantized" in name)
