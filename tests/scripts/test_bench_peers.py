"""The comparison with other automatic parallelisers: nothing that they move is less than what soybean_mx moves."""
from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from soybean_mx import core, model_loading
from tests.child import run_child
from tests.lower.byte_count import count_bytes
from tests.scripts.script_modules import SCRIPTS, load

BENCH = str(SCRIPTS / "bench_peers.py")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("peers") / "peers.json"
    printed = run_child(BENCH, ["--repeat", "3", "--json", str(path)])
    return {**json.loads(path.read_text()), "printed": printed}


def test_no_peer_moves_less(report):
    assert set(report["columns"]) == {"alexnet", "vgg16", "mlp_512", "mlp_8192"}
    for name, column in report["columns"].items():
        best = min(value for value in column["peers_gibibytes"].values() if value is not None)
        assert column["bytes"] / 2 ** 30 <= best == column["best_peer_gibibytes"], name
        assert column["lower_bound_bytes"] <= column["bytes"] == column["lowered_bytes"]


def test_no_peer_searches_faster(report):
    for name, column in report["columns"].items():
        assert column["search_seconds"] <= column["seconds"] < report["best_peer_seconds"], name


def test_the_best_are_marked(report):
    ours = next(line for line in report["printed"].splitlines() if "soybean_mx" in line)
    assert ours.count("*") == 4
    assert "3.26" in report["printed"] and "tables 0.2 to 1.4" in report["printed"]


@pytest.mark.parametrize("function, shape, column", [
    ("alexnet", (256, 3, 227, 227), "alexnet"), ("perceptron", (8192, 8192), "mlp_8192")])
def test_the_bytes_are_those_of_an_independent_count(report, monkeypatch, function, shape, column):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    graph = model_loading.load(f"peer_networks:{function}", input_shapes=[shape]).graph
    variables = {name: SimpleNamespace(**variable) for name, variable in graph["variables"].items()}
    lowered = core.lower(graph, core.plan(graph, {"devices": 8}))
    counted, _ = count_bytes(SimpleNamespace(variables=variables, dtype="float32"), lowered)
    assert counted["total"] == report["columns"][column]["bytes"]


def test_message(capsys):
    with pytest.raises(SystemExit):
        load("bench_peers").main(["--repeat", "0"])
    assert "at least 1" in capsys.readouterr().err
