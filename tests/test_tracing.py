"""Traces of real steps: what is in them, and what is refused."""
from __future__ import annotations

import json

import pytest

from soybean_mx.tracing import RecordingError, check_devices, recording
from tests.child import ChildFailure, run_child

SCRIPT = """
import soybean_mx, mxnet as mx
from mxnet import autograd, gluon
from soybean_mx import gluon_front, tracing
gluon_front.install()
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.Dense(4))
net.initialize()
net.hybridize(backend="soybean_mx", devices=[mx.cpu(0), mx.cpu(1)], strategy="data")
data = mx.nd.ones((8, 16))

def step():
    with autograd.record():
        out = net(data)
    out.backward()

step()
import sys
with tracing.recording(sys.argv[1], net):
    step()
"""


def test_a_step_of_a_block(tmp_path):
    path = tmp_path / "real.json"
    run_child(SCRIPT, [path])
    events = json.loads(path.read_text())["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert rows == {0: "device 0", 1: "device 1"}
    products = [event for event in events if event["name"].endswith("FullyConnected")]
    # Two layers on two devices, forward and backward, each with its node.
    assert sorted((event["tid"], event["cat"], event["args"]["node"]) for event in products) == sorted(
        (device, kind, f"{layer}_fwd@{device}") for device in (0, 1) for kind in ("forward", "backward")
        for layer in ("dense0", "dense1"))
    assert any(event.get("cat") == "copy" for event in events)
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")


def test_a_script(tmp_path):
    path, script = tmp_path / "real.json", tmp_path / "script.py"
    script.write_text(SCRIPT.partition("import sys")[0] + "mx.nd.waitall()\n")
    run_child("soybean_mx", ["run", "--devices", "cpu:2", "--trace", path, script])
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["tid"] for event in events if event["name"] == "_backward_FullyConnected"} == {0, 1}
    with pytest.raises(ChildFailure, match="error: The trace cannot be written to"):
        run_child("soybean_mx", ["run", "--devices", "cpu:2", "--trace", tmp_path / "none" / "real.json", script])


def test_what_is_refused(tmp_path):
    with pytest.raises(RecordingError, match="profiler ends the process on CPU contexts above cpu:3"):
        check_devices(["cpu:0", "cpu:4"])
    with pytest.raises(RecordingError, match="without a block and without devices"):
        with recording(str(tmp_path / "real.json")):
            raise AssertionError
    with pytest.raises(RecordingError, match="is not tiled"):
        with recording(str(tmp_path / "real.json"), object()):
            raise AssertionError
