"""The benchmark, on models so small that only its bookkeeping matters."""
from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from tests.child import ChildFailure, run_child
from tests.scripts.script_modules import SCRIPTS, load

BENCH = str(SCRIPTS / "bench_train.py")
HAS_FRONT = importlib.util.find_spec("soybean_mx.gluon_front") is not None
bench_train = load("bench_train")
running = bench_train.running


def measure(*flags: object):
    flags = ["--model", "mlp64", "--batch-size", "8", "--warmup", "1", "--repeat", "2", "--json", "-", *flags]
    return json.loads(run_child(BENCH, flags, env={"SOYBEAN_MX": None}))


def test_report():
    report = measure("--devices", "cpu:3", "--rounds", "2", "--contenders", "serial", "data_parallel")
    assert report["machine"]["mxnet"] == "1.9.1" and report["machine"]["cores"] >= 1
    parallel, serial = report["data_parallel"], report["serial"]
    parameter_bytes = 4 * (64 * 64 + 64) * 4
    assert parallel["parameter_bytes"] == parameter_bytes
    assert serial["bytes_moved"] == 0 and parallel["bytes_moved"] == 2 * 2 * parameter_bytes
    for result in (serial, parallel):
        assert len(result["seconds_all"]) == 4 and min(result["seconds_all"]) > 0
        assert result["seconds_min"] <= result["seconds"] <= result["seconds_max"]
        assert result["peak_bytes"] > result["before_model_bytes"] > 0
        assert len(result["issue_seconds_all"]) == 4
        assert all(0 < part < whole for part, whole in zip(result["issue_seconds_all"], result["seconds_all"]))
        assert min(result["issue_seconds_all"]) <= result["issue_seconds"] <= max(result["issue_seconds_all"])
    assert (serial["contexts"], parallel["contexts"], parallel["speedup"]) == (1, 3, 1.0)
    # No dropout: the same weights, batch and rule give the same losses.
    assert parallel["first_loss"] == pytest.approx(serial["first_loss"], rel=1e-5)
    assert parallel["last_loss"] == pytest.approx(serial["last_loss"], rel=1e-5)


@pytest.mark.skipif(not HAS_FRONT, reason="soybean_mx.gluon_front is not there")
def test_tiled_contenders():
    report = measure("--devices", "cpu:4", "--contenders", "serial", "data_parallel", "soybean_mx", "soybean_mx:model")
    for name in ("soybean_mx", "soybean_mx:model"):
        assert report[name]["last_loss"] == pytest.approx(report["serial"]["last_loss"], rel=1e-4)
        assert report[name]["bytes_moved"] > 0
    assert report["soybean_mx"]["bytes_moved"] <= report["data_parallel"]["bytes_moved"]


@pytest.mark.skipif(not HAS_FRONT, reason="soybean_mx.gluon_front is not there")
def test_language_model_and_the_share_of_communication():
    report = measure("--model", "bert_1x16", "--sequence-length", "6", "--devices", "cpu:2", "--communication",
                     "--contenders", "serial", "soybean_mx:megatron")
    tiled = report["soybean_mx:megatron"]
    assert report["sequence_length"] == 6 and list(report)[-2:] == ["serial", "soybean_mx:megatron"]
    share = 1 - tiled["seconds_without_communication"] / tiled["seconds"]
    assert tiled["communication_share"] == pytest.approx(share) and tiled["bytes_moved"] > 0
    assert "communication_share" not in report["serial"]


def test_a_sweep_and_its_plot(tmp_path):
    out = run_child(BENCH, ["--model", "cnn5_5x5_4", "--batch-size", "2", "4", "--devices", "cpu:1", "cpu:2",
                            "--warmup", "0", "--repeat", "1", "--contenders", "data_parallel", "soybean_mx:model",
                            "--json", tmp_path / "out.json", "--plot", tmp_path / "out.png"], env={"SOYBEAN_MX": None})
    reports = json.loads((tmp_path / "out.json").read_text())
    assert [(report["devices"], report["batch_size"]) for report in reports] == [
        ("cpu:1", 2), ("cpu:1", 4), ("cpu:2", 2), ("cpu:2", 4)]
    for report in reports:
        assert report["data_parallel"]["seconds"] > 0
        alone = report["devices"] == "cpu:1"
        assert ("not_applicable" in report["soybean_mx:model"]) == alone
        assert ("seconds" in report["soybean_mx:model"]) != alone
    assert out.count("one device has nothing to divide") == 2
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "out.png"]


def test_what_is_plotted(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    plots = load("bench_plots")
    machine = {"cores": 2, "processor": "one", "mxnet": "1.9.1"}

    def report(devices, size, seconds):
        return {"model": "mlp", "dtype": "float32", "machine": machine, "devices": devices, "batch_size": size,
                "data_parallel": {"seconds": 2.0, "speedup": 1.0}, "soybean_mx": seconds}

    fast, failed = {"seconds": 1.0, "speedup": 2.0}, {"error": "no memory"}
    reports = [report("cpu:2", 64, fast), report("cpu:2", 32, fast), report("cpu:2", 128, failed),
               report("cpu:4", 64, fast)]
    assert plots.points(reports, "cpu:2", "soybean_mx", "speedup") == ([32, 64], [2.0, 2.0])
    assert plots.points(reports, "cpu:2", "data_parallel", "seconds") == ([32, 64, 128], [2.0] * 3)
    plots.draw(reports, ["data_parallel", "soybean_mx"], str(tmp_path / "a.svg"))
    drawn = (tmp_path / "a.svg").read_text()
    for words in ("mlp, cpu:2", "mlp, cpu:4", "batch size", "speed relative to data_parallel", "seconds per batch"):
        assert f"<!-- {words} -->" in drawn
    for path, said in (("a.pdf", "ends in .png or .svg"), ("none/a.png", "make it first")):
        with pytest.raises(ValueError, match=said):
            plots.check_path(str(tmp_path / path))


def test_a_share_needs_both_times():
    result = {"seconds": 4.0}
    running.add_communication(result, {"error": "no memory"})
    assert result == {"seconds": 4.0, "communication_error": "no memory"}
    running.add_communication(result, {"seconds": 3.0})
    assert result["communication_share"] == 0.25


def test_a_failed_contender_is_reported_and_the_others_run(tmp_path):
    out = run_child(BENCH, ["--model", "mlp64", "--batch-size", "1", "--warmup", "0", "--repeat", "1",
                            "--contenders", "serial", "data_parallel", "--json", tmp_path / "out.json"])
    report = json.loads((tmp_path / "out.json").read_text())
    assert "seconds" in report["serial"]
    assert report["data_parallel"]["error"].startswith("MXNetError: ")  # a batch of 1 on two contexts
    assert "failed" in out and "s/batch" in out


def test_environment_is_the_contenders_own(monkeypatch):
    monkeypatch.setenv("SOYBEAN_MX", "1")
    monkeypatch.setenv("SOYBEAN_MX_STRATEGY", "data")
    devices = (("cpu", 0), ("cpu", 1))
    serial = running.make_contender("serial", devices, cores=8).environment()
    assert serial["SOYBEAN_MX"] == "0" and "SOYBEAN_MX_STRATEGY" not in serial and serial["OMP_NUM_THREADS"] == "1"
    tiled = running.make_contender("soybean_mx:model", devices, cores=8).environment()
    assert (tiled["SOYBEAN_MX_DEVICES"], tiled["SOYBEAN_MX_STRATEGY"]) == ("cpu:0,1", "model")
    assert tiled["OMP_NUM_THREADS"] == "4" and tiled["MXNET_CPU_TEMP_COPY"] == "64"
    assert (tiled["SOYBEAN_MX_CONVERSIONS"], tiled["SOYBEAN_MX_TILES_PER_DEVICE"]) == ("exchanged", "1")
    local = running.without_exchanges(running.make_contender("soybean_mx", devices, cores=8)).environment()
    assert local["SOYBEAN_MX_CONVERSIONS"] == "local" and local["SOYBEAN_MX_STRATEGY"] == "optimal"


@pytest.mark.parametrize("flags, said", [
    (["--contenders", "horovod"], "horovod"), (["--devices", "tpu:1"], "tpu"), (["--repeat", "0"], "at least 1"),
    (["--batch-size", "4", "0"], "--batch-size 0 was given"), (["--plot", "a.pdf"], "ends in .png or .svg"),
    (["--plot", "a.png", "--contenders", "serial"], "add it to --contenders")])
def test_messages(flags, said):
    with pytest.raises(ChildFailure, match=said):
        run_child(BENCH, flags)
