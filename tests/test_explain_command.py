"""`soybean-mx explain`: its prices against hand-computed ones and the planner's own, and what it prints."""
from __future__ import annotations

import json
import os

import mxnet as mx
import pytest

from soybean_mx import cli, core
from soybean_mx.explanation import cut_levels, largest_tile
from soybean_mx.explorer.layers import Tensor
from soybean_mx.index_notation import operand_names, rule_text
from soybean_mx.model_loading import load


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SOYBEAN_MX")] + ["COLUMNS"]:
        monkeypatch.delenv(name, raising=False)


def explained(capsys, *arguments):
    """What --json prints, and its operators by name."""
    assert cli.main(["explain", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    return found, {item["name"]: item for item in found["operators"]}


def error_of(capsys, status, *arguments):
    assert cli.main(["explain", *arguments]) == status
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("soybean-mx explain: error: "), err
    return err


@pytest.fixture
def product(tmp_path):
    """A matrix product: 8 x 4 by 4 x 6."""
    out = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, no_bias=True, name="fc")
    out.save(str(tmp_path / "net-symbol.json"))
    return [str(tmp_path / "net-symbol.json"), "fc", "--input-shape", "8,4"]


def test_the_prices_of_a_matrix_product(capsys, product):
    """By hand, on two devices. `m`: nothing moves. `n`: each device sends its half of the weight (96 bytes) to the
    other, and its half of the gradient back. `k`: each sends half of its 192-byte sums, and gets as much back."""
    found, operators = explained(capsys, *product, "--devices", "2")
    item = operators["fc"]
    assert found["bytes_moved"] == 0 and item["cut"] == ["m"] and item["rule"] == "data[n,k] weight[m,k] -> out[n,m]"
    prices = {tuple(way["cut"]): way for way in item["alternatives"]}
    assert prices[("n",)]["bytes_moved"] == prices[("n",)]["difference_bytes"] == 192
    assert prices[("n",)]["most_more"] == {"tensor": "fc_weight", "bytes": 192, "instead_of": 0}
    assert prices[("k",)]["bytes_moved"] == 384 and prices[("k",)]["most_more"]["tensor"] == "fc"
    assert item["because"] == ("fc is cut along m, m x2, because every other cut costs more: the next best, n x2, "
                               "moves 192 B more, most for fc_weight (192 B instead of 0 B).")
    held = {tensor["tensor"]: tensor["tile_bytes"] for tensor in item["tensors"]}
    assert held == {"data": 128, "fc_weight": 48, "fc": 96}
    assert item["memory"] == {"parameters": 48, "gradients": 48, "optimizer": 0, "makes": 96}


def test_the_price_of_a_cut_is_that_of_the_plan_with_it(capsys):
    found, operators = explained(capsys, "alexnet", "alexnet0_dense0_fwd", "--devices", "8")
    graph = load("alexnet", 256).graph
    item = operators["alexnet0_dense0_fwd"]
    assert len(item["alternatives"]) == 9 and item["left_out"] == 0  # 10 multisets of n, m, k; one is the plan's
    for way in item["alternatives"]:
        plan = core.plan(graph, {"devices": 8, "pins": {item["name"]: way["cut"]}})
        assert plan["bytes"]["total"] == way["bytes_moved"] == found["bytes_moved"] + way["difference_bytes"]
        assert plan["memory"]["peak"] == way["peak_bytes_per_device"]
        # Whatever the order of the cuts: all cross the same links.
        assert core.plan(graph, {"devices": 8, "pins": {item["name"]: way["cut"][::-1]}})["bytes"] == plan["bytes"]
    assert min(way["difference_bytes"] for way in item["alternatives"]) >= 0  # the plan is the best
    moved = [way["bytes_moved"] for way in item["alternatives"]]
    assert moved == sorted(moved)
    plan = core.plan(graph, {"devices": 8, "pins": {item["name"]: item["cut"]}})
    assert plan["bytes"]["total"] == found["bytes_moved"]


def test_conversions_are_those_of_the_plan(capsys):
    _, operators = explained(capsys, "alexnet", "alexnet0_dense0_fwd", "--devices", "4", "--strategy", "data")
    plan = core.plan(load("alexnet", 256).graph, {"devices": 4, "strategy": "data"})
    own = [item for item in plan["conversions"] if item["user"] == "alexnet0_dense0_fwd"]
    assert operators["alexnet0_dense0_fwd"]["conversions"] == own and {item["tensor"] for item in own} == {
        "alexnet0_dense0_weight", "alexnet0_dense0_bias"}


def test_other_strategies_than_the_best_have_better_cuts(capsys):
    _, operators = explained(capsys, "alexnet", "alexnet0_dense0_fwd", "--devices", "2", "--strategy", "model")
    item = operators["alexnet0_dense0_fwd"]
    best = item["alternatives"][0]
    if best["error"] is None and best["difference_bytes"] < 0:
        assert "strategy model does not look for the best" in item["because"]


def test_time_decides_where_it_is_asked_for(capsys):
    found, operators = explained(capsys, "alexnet", "alexnet0_dense2_fwd", "--topology", "p2.8xlarge",
                                 "--objective", "time")
    item = operators["alexnet0_dense2_fwd"]
    possible = [way for way in item["alternatives"] if way["error"] is None]
    times = [way["predicted_seconds"] for way in possible]
    assert times == sorted(times) and found["predicted_seconds"] <= times[0] * (1 + 1e-9)
    assert all(way["difference_seconds"] == pytest.approx(way["predicted_seconds"] - found["predicted_seconds"])
               for way in possible)
    assert " takes " in item["because"] and " more" in item["because"]


def test_what_it_prints(capsys):
    assert cli.main(["explain", "alexnet", "alexnet0_conv1_weight", "--topology", "p2.8xlarge", "--optimizer",
                     "adam"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "alexnet0_conv1_fwd is cut along the batch (n), n x8, because every other cut" in out
    assert "Convolution: data[n,c,~h,~w] weight[m,c,:,:] bias[m] -> out[n,m,h,w]" in out
    assert "chosen" in out and "of optimizer states" in out and "conversion of" in out


@pytest.mark.parametrize("layer, expected", [
    ("conv1", ["alexnet0_conv1_fwd"]), ("alexnet0_conv1_fwd", ["alexnet0_conv1_fwd"]),
    ("alexnet0_conv1_weight", ["alexnet0_conv1_fwd"]), ("data", ["alexnet0_conv0_fwd"]),
    ("*dense?_fwd", ["alexnet0_dense0_fwd", "alexnet0_dense1_fwd", "alexnet0_dense2_fwd"]),
    ("*dense[01]_bias", ["alexnet0_dense0_fwd", "alexnet0_dense1_fwd"])])
def test_layers_by_name(capsys, layer, expected):
    assert sorted(explained(capsys, "alexnet", layer, "--devices", "2")[1]) == expected


@pytest.mark.parametrize("arguments, status, said", [
    (["conv1_wieght", "--devices", "2"], 2, "did you mean alexnet0_conv1_weight"),
    (["*nothing*", "--devices", "2"], 2, "no layer '*nothing*'"),
    (["zzz", "--devices", "2"], 2, "`soybean-mx plan` prints their names"),
    (["*", "--devices", "2"], 2, "12 at most are explained at a time"),
    (["conv1"], 2, "--devices N"), (["conv1", "--devices", "2", "--objective", "time"], 2, "--topology"),
    (["conv1", "--devices", "2", "--memory-limit", "1KB"], 1, "1000 bytes")])
def test_what_is_refused(capsys, arguments, status, said):
    assert said in error_of(capsys, status, "alexnet", *arguments)


def test_pins_hold_for_every_plan(capsys, monkeypatch):
    pin = {"alexnet0_dense1_weight": "owner"}
    _, given = explained(capsys, "alexnet", "alexnet0_dense0_fwd", "--devices", "2", "--pin",
                         "alexnet0_dense1_weight=owner")
    monkeypatch.setenv("SOYBEAN_MX_PINS", json.dumps(pin))
    _, set_before = explained(capsys, "alexnet", "alexnet0_dense0_fwd", "--devices", "2")
    assert given == set_before
    way = given["alexnet0_dense0_fwd"]["alternatives"][0]
    plan = core.plan(load("alexnet", 256).graph,
                     {"devices": 2, "pins": {**pin, "alexnet0_dense0_fwd": way["cut"]}})
    assert plan["bytes"]["total"] == way["bytes_moved"]


def test_a_pin_of_the_operator_gives_way_and_one_by_a_pattern_does_not(capsys):
    best = explained(capsys, "alexnet", "alexnet0_dense0_fwd", "--devices", "2")[0]["bytes_moved"]
    found, operators = explained(capsys, "alexnet", "alexnet0_dense0_fwd", "--devices", "2", "--pin",
                                 "alexnet0_dense0_fwd=n")
    item = operators["alexnet0_dense0_fwd"]
    assert item["cut"] == ["n"] and item["is_pinned"] and found["bytes_moved"] > best
    assert item["alternatives"][0]["bytes_moved"] == best and item["because"].endswith("): a pin fixes it.")
    _, operators = explained(capsys, "alexnet", "alexnet0_dense0_fwd", "--devices", "2", "--pin", "*dense0_fwd=n")
    item = operators["alexnet0_dense0_fwd"]
    assert item["cut"] == ["n"] and all(way["error"] for way in item["alternatives"])
    assert "no other way to cut it is possible" in item["because"]


def test_largest_tiles():
    tensor = Tensor("w", (7, 10), 4, "parameter")
    assert largest_tile(tensor, ["split 0", "split 0/1", "replicated"], [2, 2, 3]) == 2 * 10 * 4
    assert largest_tile(tensor, ["split 1", "owner"], [3, 2]) == 7 * 4 * 4


def test_levels_of_cuts():
    levels = [{"groups": 2}, {"groups": 2}, {"groups": 6}]
    assert cut_levels({"levels": levels}, [2, 2, 2, 3]) == [0, 1, 2, 2]
    assert cut_levels({"levels": [{"groups": [3, 5]}, {"name": "pcie"}]}, [2, 2, 2]) == [0, 0, 0]


def test_rules_as_text():
    graph = load("alexnet", 8).graph
    rules = core.rules(graph)
    names = operand_names(["data", "a_weight", "a_bias"], "a_fwd", [False, True, True])
    assert names == ["data", "weight", "bias"]
    assert rule_text(rules["alexnet0_dense1_fwd"], names) == "data[n,k] weight[m,k] bias[m] -> out[n,m]"
    assert operand_names(["x", "y"], "plus", [False, False]) == ["data0", "data1"]
    assert rule_text({"known": False}, []) is None
