"""What devices hold, against what must be there, MXNet's profiler and the plan; and recomputation."""
from __future__ import annotations

import json
import re

import pytest

from tests.child import run_child

SETUP = """
import json, os, sys
import tests
import mxnet as mx, numpy as np
from mxnet import autograd, gluon, profiler
from soybean_mx import gluon_front, memory
from tests.runtime.pairs import assert_same_parameters, mlp, pair, parameters, samples

def stepping(net, trainer, data, label, losses=None):
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    def step():
        with autograd.record():
            loss = loss_of(net(data), label).mean()
        loss.backward()
        trainer.step(1)
        if losses is not None:
            losses.append(float(loss.asscalar()))
    return step

def trainer_of(net):
    return gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})

def wide(prefix):
    net = gluon.nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        for _ in range(3):
            net.add(gluon.nn.Dense(512, activation="relu"))
    return net

def deep(prefix):
    net = gluon.nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        for position in range(8):
            net.add(gluon.nn.Conv2D(8, 3, padding=1), gluon.nn.BatchNorm(), gluon.nn.Activation("relu"))
            if position == 3:
                net.add(gluon.nn.Dropout(0.5), gluon.nn.MaxPool2D())
        net.add(gluon.nn.GlobalAvgPool2D(), gluon.nn.Flatten(), gluon.nn.Dense(5))
    return net
"""


MEASURE = SETUP + """
profiler.set_config(profile_memory=True, filename=sys.argv[1], profile_symbolic=False, profile_imperative=False)
profiler.set_state("run")
data, label = samples(64, 512), mx.nd.array(np.arange(64))
_, net = pair(wide, data, devices="cpu:2")
trainer = trainer_of(net)
step = stepping(net, trainer, data, label)
step(); step()
mx.nd.waitall()
profiler.set_state("stop"); profiler.dump()
held = memory.measure(net, step, trainer)
step()  # as before
print(json.dumps([device._asdict() for device in held], default=str))
print(json.dumps(gluon_front.plan_of(net)["memory"]))
"""


def counters(path) -> dict:
    """The last value of each counter of memory in a profile."""
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "C"]
    return {event["name"]: event["args"][event["name"]] for event in sorted(events, key=lambda event: event["ts"])}


def test_measured_memory_is_the_profilers_and_the_plans(tmp_path):
    printed = run_child(MEASURE, [tmp_path / "profile.json"]).splitlines()
    held, planned = (json.loads(line) for line in printed[-2:])
    tile = 3 * (512 * 512 + 512) * 4 // 2
    for device in held:
        assert device["parameters"] == device["gradients"] == device["optimizer"] == pytest.approx(tile, rel=0.01)
    totals = [sum(size for part, size in device.items() if part != "context") for device in held]
    # The second device holds nothing but what is measured, save for small change.
    assert counters(tmp_path / "profile.json")["Memory: cpu/1"] == pytest.approx(totals[1], rel=0.03)
    assert planned["peak"] + planned["parameters"] == pytest.approx(max(totals), rel=0.05)


SHARED = SETUP + """
from soybean_mx import clean_copies, executor
data, label = samples(8, 3, 64, 64), mx.nd.array(np.arange(8) % 5)
_, net = pair(deep, data, devices="cpu:4")
step = stepping(net, trainer_of(net), data, label)
step()
print(executor.copies_are_clean(), sum(d.executor for d in memory.measure(net, step)))
"""


def test_tensors_share_memory_where_copies_are_clean():
    clean, shared = run_child(SHARED).split()
    assert clean == "True"
    # MXNet first: its own copies, and no sharing.
    unclean, alone = run_child("import mxnet\n" + SHARED).split()
    assert unclean == "False"
    assert int(shared) < 0.7 * int(alone)


UNROLLED = SETUP + """
from mxnet.gluon import rnn
class Unrolled(gluon.HybridBlock):
    def __init__(self, steps, **kwargs):
        super().__init__(**kwargs)
        self.steps = steps
        with self.name_scope():
            self.cell = rnn.LSTMCell(256, input_size=256)
    def hybrid_forward(self, F, x):
        return self.cell.unroll(self.steps, x, merge_outputs=False)[0][-1]
for steps in (2, 24):
    data, label = samples(4, steps, 256), mx.nd.array(np.arange(4))
    _, net = pair(lambda prefix: Unrolled(steps, prefix=prefix), data, devices="cpu:2", strategy="data")
    step = stepping(net, trainer_of(net), data, label)
    step()
    print(max(d.executor for d in memory.measure(net, step)))
"""


def test_gradients_of_a_shared_weight_do_not_all_wait_to_be_added_up():
    few, many = (int(line) for line in run_child(UNROLLED).split())
    weight = 1024 * 256 * 4
    assert many - few < 12 * weight  # of 24 positions


LANGUAGE_MODEL = SETUP + """
sys.path.insert(0, "scripts")
import language_models
for steps in (2, 24):
    net = language_models.lstm_language_model(2, 256, 300, 0.0, steps)
    net.initialize()
    net.hybridize(backend="soybean_mx", devices="cpu:2")
    words = mx.nd.array(np.arange(8 * steps).reshape(8, steps) % 300)
    def step():
        with autograd.record():
            loss = net(words).sum()
        loss.backward()
    step()
    print(max(d.executor for d in memory.measure(net, step)))
"""


def test_where_devices_depend_on_each_other_at_every_position_no_more_gradients_wait():
    """The order that is good for data parallelism would take 25 MiB more for 22 positions more, and not 15."""
    few, many = (int(line) for line in run_child(LANGUAGE_MODEL).split())
    assert many - few < 20 * 2 ** 20


RECOMPUTED = SETUP + """
mx.random.seed(3)
data, label = samples(8, 3, 16, 16), mx.nd.array(np.arange(8) % 5)
devices, recompute = sys.argv[1], sys.argv[2] == "1"
_, net = pair(deep, data, devices=devices, recompute=recompute)
for parameter in parameters(net):
    parameter.set_data(mx.nd.array(np.random.RandomState(len(parameter.name)).uniform(-0.3, 0.3, parameter.shape)))
trainer, losses = trainer_of(net), []
mx.random.seed(7)
step = stepping(net, trainer, data, label, losses)
for _ in range(4):
    step()
bound = next(iter(net._cached_op._signatures.values())).free[0]
print(json.dumps({"losses": losses, "copies": bound._executor.debug_str().count("Op:_CrossDeviceCopy"),
                  "mirrored": bound._executor.debug_str().count("_mirror"),
                  "executor": max(d.executor for d in memory.measure(net, step, trainer))}))
np.savez(sys.argv[3], *[p.data().asnumpy() for p in parameters(net)])
"""


@pytest.mark.parametrize("devices", ["cpu:2", "cpu:4"])
def test_recomputation_changes_nothing_but_memory(tmp_path, devices):
    import numpy as np

    printed = [run_child(RECOMPUTED, [devices, recompute, tmp_path / f"{recompute}.npz"]) for recompute in "01"]
    kept, again = (json.loads(text.splitlines()[-1]) for text in printed)
    assert again["losses"] == pytest.approx(kept["losses"], rel=1e-4)  # dropout draws once, and the same
    first, second = (np.load(tmp_path / f"{recompute}.npz") for recompute in "01")
    for name in first.files:
        assert np.abs(first[name] - second[name]).max() <= 1e-3 * max(1e-2, np.abs(first[name]).max())
    assert kept["mirrored"] == 0 and again["mirrored"] > 10
    assert again["copies"] == kept["copies"]
    assert again["executor"] < 0.9 * kept["executor"]


def test_recompute_from_the_environment():
    source = SETUP + """
data, label = samples(8, 10), mx.nd.array(np.arange(8) % 5)
_, net = pair(mlp(), data, devices="cpu:2")
stepping(net, trainer_of(net), data, label)()
bound = next(iter(net._cached_op._signatures.values())).free[0]
print(bound.program.recompute, "_mirror" in bound._executor.debug_str())
"""
    assert run_child(source, env={"SOYBEAN_MX_RECOMPUTE": "1"}).split() == ["True", "True"]


@pytest.mark.parametrize("source, said", [
    ("net = wide('net_')\nnet.initialize()\nmemory.measure(net, lambda: None)", "is not tiled"),
    ("data = samples(8, 10)\n_, net = pair(mlp(), data, devices='cpu:2')\nnet(data)\nmemory.measure(net, lambda: None)",
     "ran no tiled block")])
def test_what_cannot_be_measured(source, said):
    attempt = "try:\n" + re.sub("(?m)^", "    ", source)
    assert said in run_child(f"{SETUP}{attempt}\nexcept gluon_front.BlockError as error:\n    print(error)\n")
