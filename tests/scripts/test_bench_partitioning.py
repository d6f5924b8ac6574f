"""The benchmark of partitioning itself: what it runs, its ratios and its verdict."""
from __future__ import annotations

import json

import pytest

from tests.child import run_child
from tests.scripts.script_modules import SCRIPTS, load_with_siblings

BENCH = str(SCRIPTS / "bench_partitioning.py")


@pytest.fixture(scope="module")
def bench_partitioning():
    return load_with_siblings("bench_partitioning")


def test_report(tmp_path):
    # Threads that spin while they wait keep each other from working where other tests run.
    printed = run_child(BENCH, ["--width", "64", "--batch-size", "8", "--tiles", "1", "4", "--repeat", "2", "--rounds",
                                "1", "--json", tmp_path / "a.json"], env={"OMP_WAIT_POLICY": "passive"})
    report = json.loads((tmp_path / "a.json").read_text())
    (row,) = report["batches"]
    assert list(row) == ["batch_size", "serial", "tiles 1", "tiles 4"] and report["machine"]["mxnet"] == "1.9.1"
    for name in ("serial", "tiles 1", "tiles 4"):
        result = row[name]
        assert len(result["seconds_all"]) == 2
        assert result["ratio_to_serial"] == pytest.approx(result["seconds"] / row["serial"]["seconds"])
        assert result["ratio_to_one_tile"] == pytest.approx(result["seconds"] / row["tiles 1"]["seconds"])
        # The same network, batch and rule: the tiles train as the whole does.
        assert result["last_loss"] == pytest.approx(row["serial"]["last_loss"], rel=1e-5)
    assert row["tiles 1"]["bytes_moved"] == 0 < row["tiles 4"]["bytes_moved"]
    assert "plain MXNet" in printed and "tiles 4" in printed and "at batch 512 and more: none." in printed


def test_contenders_are_on_one_device_with_all_cores(bench_partitioning):
    serial, *tiled = bench_partitioning.contenders("cpu:3", [2, 8, 2])
    assert {contender.devices for contender in (serial, *tiled)} == {(("cpu", 0),)}
    assert len({contender.threads for contender in (serial, *tiled)}) == 1
    assert [contender.environment()["SOYBEAN_MX_TILES_PER_DEVICE"] for contender in tiled] == ["2", "8"]


def test_verdict(bench_partitioning):
    def row(size, ratio):
        return {"batch_size": size, "tiles 1": {"ratio_to_serial": 9}, "tiles 2": ratio}

    rows = [row(256, {"ratio_to_serial": 2}), row(512, {"ratio_to_serial": 1.05}),
            row(1024, {"ratio_to_serial": 1.06}), row(2048, {"error": "no memory"})]
    assert bench_partitioning.missed({"tiles": [1, 2], "batches": rows}) == [
        "tiles 2 at batch 1024", "tiles 2 at batch 2048"]


@pytest.mark.parametrize("flags, said", [(["--width", "0"], "--width 0"), (["--tiles", "2", "0"], "--tiles 0")])
def test_messages(bench_partitioning, capsys, flags, said):
    with pytest.raises(SystemExit):
        bench_partitioning.parse_arguments(flags)
    assert said in capsys.readouterr().err
