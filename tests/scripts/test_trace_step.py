"""The trace of a step, on a made-up trace whose figures are known, and of a small MLP."""
from __future__ import annotations

import json

import pytest

from tests.child import ChildFailure, run_child
from tests.scripts.script_modules import SCRIPTS, load

TRACE_STEP = str(SCRIPTS / "trace_step.py")
trace_step = load("trace_step")

# Device, name, begin and end in milliseconds.
STEP = [
    ("cpu/0", "FullyConnected", 0, 10), ("cpu/1", "FullyConnected", 0, 6), ("cpu/1", "CopyCPU2CPU", 6, 8),
    ("cpu/0", "_backward_FullyConnected", 10, 30), ("cpu/1", "_backward_FullyConnected", 12, 20),
    ("cpu/1", "add_n", 20, 22), ("cpu/1", "sgd_mom_update", 22, 26), ("cpu/1", "_backward_FullyConnected", 26, 36),
    ("cpu/0", "_backward_FullyConnected", 30, 40), ("cpu/1", "sgd_mom_update", 36, 44),
    ("cpu/0", "DeleteVariable", 90, 99),
]
BACKWARD = [{"operator": "FullyConnected", "node": f"{layer}@{device}", "device": device}
            for layer in ("top", "bottom") for device in (0, 1)]


def chrome_trace():
    events = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
              for pid, name in ((0, "cpu/0"), (1, "cpu/1"), (7, "operator"))]
    for device, name, begin, end in STEP:
        place = {"pid": int(device[-1]), "tid": 1, "name": name, "cat": "operator"}
        events += [dict(place, ph="B", ts=5e6 + 1e3 * begin), dict(place, ph="E", ts=5e6 + 1e3 * end)]
    events += [{"ph": "b", "ts": 0, "pid": 7, "name": "FullyConnected", "cat": "operator", "id": 1}]
    return {"traceEvents": events}


def test_report_of_a_trace():
    report = trace_step.trace_report(chrome_trace(), BACKWARD)
    assert report["seconds"] == pytest.approx(0.044) and report["backward_end"] == pytest.approx(0.040)
    assert report["devices"]["cpu:0"] == pytest.approx(
        {"busy": 0.040, "idle": 0.004, "copies": 0, "copies_while_computing": 0})
    assert report["devices"]["cpu:1"] == pytest.approx(
        {"busy": 0.040, "idle": 0.004, "copies": 0.002, "copies_while_computing": 0.002})
    # 4 of the 12 ms are before the end of the backward pass, and 4 of the last 8.
    assert report["updates"] == pytest.approx({"count": 2, "seconds": 0.012, "share": 8 / 12})
    assert report["sums"] == pytest.approx({"count": 1, "seconds": 0.002, "share": 1})
    rows = {(row["device"], row["layer"]): row for row in report["layers"]}
    assert rows["cpu:1", "top"] == {"device": "cpu:1", "layer": "top", "computed": pytest.approx(0.020), "sums": 1,
                                    "updates": 1, "updated": pytest.approx(0.014)}
    assert rows["cpu:1", "bottom"]["updated"] == pytest.approx(-0.004)
    assert rows["cpu:0", "top"]["updates"] == 0 and rows["cpu:0", "top"]["updated"] is None


def test_layers_are_not_guessed():
    """Where the trace has other backward operators than the network, nothing is said of layers."""
    assert trace_step.layer_report(trace_step.read_events(chrome_trace()), BACKWARD[:2]) == []


def test_a_step(tmp_path):
    """The documented command, on a small network."""
    printed = run_child(TRACE_STEP, ["--model", "mlp64", "--batch-size", "8", "--devices", "cpu:2", "--repeat", "2",
                                     "-o", tmp_path / "trace.json", "--json"], env={"SOYBEAN_MX": None})
    report = json.loads(printed)
    assert trace_step.read_events(json.loads((tmp_path / "trace.json").read_text()))
    for order in ("serial", "scheduled"):
        found, trace = report[order], report[order]["trace"]
        assert len(found["seconds_all"]) == 2 and found["model"]["critical_path"] > 0
        assert set(trace["devices"]) == {"cpu:0", "cpu:1"} and trace["updates"]["count"] > 0
        for device in trace["devices"].values():
            assert device["busy"] + device["idle"] == pytest.approx(trace["seconds"])
        assert {row["layer"] for row in trace["layers"]} and len(trace["layers"]) == 8  # 4 layers, 2 devices
        assert found["last_loss"] == pytest.approx(report["serial"]["last_loss"], rel=1e-5)
    assert report["serial"]["model"]["unscheduled"]["seconds"] == report["serial"]["model"]["seconds"]


def test_more_contexts_than_can_be_profiled():
    printed = run_child(TRACE_STEP, ["--model", "mlp64", "--batch-size", "8", "--devices", "cpu:6", "--repeat", "1"],
                        env={"SOYBEAN_MX": None})
    assert "scheduled: " in printed and "traced" not in printed


@pytest.mark.parametrize("flags, said", [
    (["--devices", "tpu:1"], "tpu"), (["--rounds", "0"], "at least 1"),
    (["--devices", "cpu:8", "-o", "trace.json"], "cannot trace CPU contexts above number 3"),
    (["-o", "no/such/folder/trace.json"], "not there")])
def test_messages(flags, said):
    with pytest.raises(ChildFailure, match=said):
        run_child(TRACE_STEP, flags)
