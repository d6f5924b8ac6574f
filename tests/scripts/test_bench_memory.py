"""The memory benchmark, on models so small that only its bookkeeping matters."""
from __future__ import annotations

import json

import pytest

from tests.child import ChildFailure, run_child
from tests.scripts.script_modules import SCRIPTS, load

BENCH = str(SCRIPTS / "bench_memory.py")
bench_memory = load("bench_memory")


def test_report(tmp_path):
    run_child(BENCH, ["--model", "mlp256", "--batch-size", "16", "--devices", "cpu:2", "--recompute", "--json",
                      tmp_path / "out.json"])
    result, = json.loads((tmp_path / "out.json").read_text())["models"]
    tiled = result["tiled"]
    assert tiled["planned_to_measured"] == pytest.approx(1, abs=0.15)
    assert tiled["measured_bytes"] == max(device["peak"] for device in tiled["devices"])
    assert tiled["planned"]["peak"] == sum(tiled["planned"][part] for part in bench_memory.PARTS)
    parameters = 4 * (256 * 256 + 256) * 4
    assert sum(device["parameters"] for device in tiled["devices"]) == parameters
    assert result["serial"]["counted_bytes"] > 3 * parameters
    assert tiled["counted_bytes"] > 2 * tiled["measured_bytes"] * 0.9
    assert 0.8 < tiled["measured_to_serial_share"] < 1.25 and "measured_bytes" in result["recompute"]


def test_the_most_of_all_counters_from_a_time_on():
    def event(time, name, size):
        return {"ph": "C", "ts": time, "name": f"Memory: {name}", "args": {f"Memory: {name}": size}}

    events = [event(3, "cpu/0", 20), event(1, "cpu/0", 90), event(2, "cpu/0", 10), event(4, "cpu/1", 5),
              event(5, "cpu/0", 1), {"ph": "B", "ts": 6}]
    assert bench_memory.counted_bytes(events, begin=3) == 25
    assert bench_memory.counted_bytes(events, begin=9) == 6


@pytest.mark.parametrize("flags, said", [(["--devices", "tpu:1"], "tpu"), (["--batch-size", "0"], "at least 1"),
                                         (["--model", "lenet"], "every model failed.*lenet")])
def test_messages(flags, said):
    with pytest.raises(ChildFailure, match=said):
        run_child(BENCH, flags)
