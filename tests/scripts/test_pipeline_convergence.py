"""scripts/pipeline_convergence.py: what it compares is what it says."""
from __future__ import annotations

import json

from tests.child import run_child
from tests.scripts.script_modules import SCRIPTS

# Against plain numbers: w3 * w2 * w1 * x with half the squared error; the first two weights are in one stage.
RULE = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import pipeline_convergence as script
import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn
from soybean_mx.pipeline.partition import operator_names

net = nn.HybridSequential()
net.add(*(nn.Dense(1, use_bias=False, in_units=1) for _ in range(3)))
net.initialize(mx.init.Constant(0.75))
net.cast("float64")
names = operator_names(net(mx.sym.var("data")))
trainer = script.WithoutStashing(net, gluon.loss.L2Loss(), "sgd", {"learning_rate": 0.25}, "cpu:2", "1f1b",
                                 [names[:2], names[2:]])
given = [(1.0, 1.0), (0.5, 2.0), (2.0, -1.0), (1.5, 0.5)]
for x, y in given:
    trainer.step(mx.nd.array([[x]], dtype="float64"), mx.nd.array([[y]], dtype="float64"))
trainer.synchronize()
got = [parameter.data().asnumpy().item() for parameter in net.collect_params().values()]
# The first stage runs minibatch t forward with its version t - 1, and backward with version t.
w1, w2, w3 = [0.75], [0.75], [0.75]
for t, (x, y) in enumerate(given):
    used = max(0, t - 1)
    first = w1[used] * x
    second = w2[used] * first
    error = w3[t] * second - y
    for weights, gradient in ((w1, error * w3[t] * w2[t] * x), (w2, error * w3[t] * first), (w3, error * second)):
        weights.append(weights[t] - 0.25 * gradient)
print(np.abs(np.array(got) - [w1[-1], w2[-1], w3[-1]]).max() < 1e-12, trainer.versions_alive())
"""


def test_it_prints_a_row_for_each_kind(tmp_path):
    printed = run_child(str(SCRIPTS / "pipeline_convergence.py"), [
        "--epochs", 1, "--seeds", 1, "--evaluations", 1, "--stages", 2, "--width", 0.125, "--target", 0.01,
        "--kinds", "flush", "1f1b without stashing", "--json", tmp_path / "result.json"])
    assert [line.split("  ")[0] for line in printed.splitlines()[1:]] == ["flush", "1f1b without stashing"]
    assert json.loads((tmp_path / "result.json").read_text())["epochs"]["flush"] == [1.0]


def test_what_has_no_stash_keeps_one_version():
    assert run_child(RULE, [SCRIPTS]) == "True [1, 1]\n"
