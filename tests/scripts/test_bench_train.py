"""The benchmark, on models so small that only its bookkeeping matters."""
from __future__ import annotations

import importlib.util
import json

import pytest

from tests.child import ChildFailure, run_child
from tests.scripts.script_modules import SCRIPTS, load

BENCH = str(SCRIPTS / "bench_train.py")
HAS_FRONT = importlib.util.find_spec("soybean_mx.gluon_front") is not None
bench_train = load("bench_train")


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
    serial = bench_train.make_contender("serial", devices, cores=8).environment()
    assert serial["SOYBEAN_MX"] == "0" and "SOYBEAN_MX_STRATEGY" not in serial and serial["OMP_NUM_THREADS"] == "1"
    tiled = bench_train.make_contender("soybean_mx:model", devices, cores=8).environment()
    assert (tiled["SOYBEAN_MX_DEVICES"], tiled["SOYBEAN_MX_STRATEGY"]) == ("cpu:0,1", "model")
    assert tiled["OMP_NUM_THREADS"] == "4" and tiled["MXNET_CPU_TEMP_COPY"] == "64"


@pytest.mark.parametrize("flags, said", [
    (["--contenders", "horovod"], "horovod"), (["--devices", "tpu:1"], "tpu"), (["--repeat", "0"], "at least 1")])
def test_messages(flags, said):
    with pytest.raises(ChildFailure, match=said):
        run_child(BENCH, flags)
