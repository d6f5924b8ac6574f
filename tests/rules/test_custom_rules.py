"""soybean_mx.rules: operators of a user's own are cut by the rules that are registered for them.

By hand: ``python -m tests.rules.custom_rules --seeds 0-5000``.
"""
from __future__ import annotations

import json
import os
import subprocess

import mxnet as mx
import pytest

from soybean_mx import core, rules
from tests.child import ROOT, run_child

SEEDS = int(os.environ.get("SOYBEAN_MX_CUSTOM_RULES", "40"))


@pytest.fixture(autouse=True)
def no_rules_are_left():
    """Take back what a test registers."""
    before = set(rules.registered())
    yield
    for op in set(rules.registered()) - before:
        rules.unregister(op)


def test_random_operators_under_random_plans():
    run_child("tests.rules.custom_rules", ["--seeds", f"0-{SEEDS - 1}"], timeout=120 + SEEDS)


def test_wrong_rules_are_refused():
    run_child("tests.rules.custom_rules", ["--wrong-rules"])


def test_joins_further_dims_shapes_and_own_gradients():
    run_child("tests.rules.custom_rules", ["--kinds"])


def test_a_block_of_custom_operators_trains_as_on_one_device():
    run_child("tests.rules.custom_rules", ["--training"])


def test_an_operator_of_a_library(tmp_path):
    folder = os.path.dirname(mx.__file__)
    library = tmp_path / "library_operator.so"
    subprocess.run(["g++", "-std=c++17", "-O0", "-shared", "-fPIC", f"-I{folder}/include",
                    str(ROOT / "tests/rules/library_operator.cc"), f"{folder}/src/lib_api.cc", "-o", str(library)],
                   check=True, timeout=120)
    assert "9 cuts" in run_child("tests.rules.custom_rules", ["--library", str(library)])


@pytest.mark.parametrize("text, message", [
    ("a[n]", "0 arrows"),
    ("a[n] -> b[n] -> c[n]", "2 arrows"),
    ("a[n] ->", "nothing on one side"),
    ("a(n) -> b[n]", "cannot be read at 'a(n)'"),
    ("a[n,2] -> b[n]", "the dim '2'"),
    ("a[n] -> b[m]", "in no input"),
    ("a[n,n] -> b[n]", "twice"),
    ("a[...,n,...] -> b[n]", "twice"),
    ("a[n] a[m] -> b[n]", "two operands 'a'"),
    ("a[n] -> a[n]", "two operands 'a'"),
    ("a[n] -> b[n] c[*]", "not in 'c'"),
    ("a[owner] -> b[owner]", "a word that plans use"),
    ("a[further0] -> b[further0]", "a word that plans use"),
    ("a[n]+ -> b[n]", "no sum that it is added to once"),
    ("a[n] -> b[n]+", "behind an output"),
])
def test_what_cannot_be_a_rule(text, message):
    with pytest.raises(rules.RuleError, match=message.replace("(", r"\(").replace(")", r"\)")):
        rules.register("op", text)
    assert "op" not in rules.registered()


@pytest.mark.parametrize("options, message", [
    ({"join": "product"}, "joins by 'product'"),
    ({"join": "mean"}, "adds 'b' to a mean"),
    ({"extents": {"units": "k"}}, "no such factor"),
    ({"extents": {"units": "m+1"}}, "the extent 'm\\+1'"),
    ({"extents": {"units": "0*m"}}, "a multiple below 1"),
    ({"shapes": {"shape": "x"}}, "none of its outputs"),
    ({"extents": {"units": "m"}, "constants": ["units"]}, "twice"),
])
def test_what_cannot_be_said_beside_a_rule(options, message):
    with pytest.raises(rules.RuleError, match=message):
        rules.register("op", "x[n,c] w[m,c] b[m]+ -> y[n,m]", **options)


def test_unknown_operators():
    with pytest.raises(rules.RuleError, match="has no rule to take back"):
        rules.unregister("op")
    with pytest.raises(rules.RuleError, match="has no rule to check"):
        rules.check("op", [(2, 3)])


def _graph(op: str, attributes, shape, role="input"):
    """A graph of one operator of two inputs and an output of one shape."""
    nodes = [{"op": "null", "name": "x", "inputs": []}, {"op": "null", "name": "w", "inputs": []},
             {"op": op, "name": "y", "attrs": attributes, "inputs": [[0, 0, 0], [1, 0, 0]]}]
    symbol = {"nodes": nodes, "arg_nodes": [0, 1], "heads": [[2, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}
    return {"symbol": json.dumps(symbol),
            "shapes": {name: [list(shape)] for name in "xwy"}, "itemsizes": {name: [4] for name in "xwy"},
            "variables": {"x": {"role": "input", "requires_grad": True}, "w": {"role": role, "requires_grad": False}},
            "training": True, "rules": rules.of_nodes(nodes)}


def test_the_rule_of_a_node():
    rules.register("op", "x[n,...] w[*,...] -> y[n,...]", extents={"length": "2*n"}, constants=["axis"], once=True)
    attributes = {"op_type": "op", "length": "8", "axis": "(1, 2)", "scale": "0.5", "act": "relu", "flag": "True"}
    rule = core.rules(_graph("Custom", attributes, (4, 3, 5)))["y"]
    names = [factor["name"] for factor in rule["factors"]]
    assert sorted(names) == ["further0", "further1", "n"] and rule["random"] and rule["zero_addends"]
    n = names.index("n")
    assert rule["extent_attrs"] == {"length": {"factor": n, "block": 2}}
    assert [factor["batch"] for factor in rule["factors"]] == [name == "n" for name in names]
    assert rule["inputs"][1]["dims"][0] == -1 and rule["outputs"][0]["dims"][0] == n


def test_an_operator_of_mxnet_keeps_its_rule_beside_a_custom_one_of_its_name():
    rules.register("elemwise_add", "x[n,*] w[n,*] -> y[n,*]")
    assert len(core.rules(_graph("elemwise_add", {}, (4, 3)))["y"]["factors"]) == 2
    assert len(core.rules(_graph("Custom", {"op_type": "elemwise_add"}, (4, 3)))["y"]["factors"]) == 1
    assert not core.rules(_graph("Custom", {"op_type": "another"}, (4, 3)))["y"]["known"]


def test_an_input_too_many_is_an_error_of_the_plan():
    rules.register("op", "x[n,c] -> y[n,c]")
    with pytest.raises(core.PlanError, match="names 1 inputs, but it has 2"):
        core.plan(_graph("Custom", {"op_type": "op"}, (4, 3)), {"devices": 2})


@pytest.mark.parametrize("role, shape, message", [
    ("auxiliary", (4, 3), "has auxiliary states"),
    ("input", (4, 3, 2), r"'x\[n,c\] w\[n,c\] -> y\[n,c\]' gives 'x' 2 dims, but its shape is \(4, 3, 2\)"),
])
def test_a_rule_that_does_not_fit_is_an_error_of_the_plan(role, shape, message):
    rules.register("op", "x[n,c] w[n,c] -> y[n,c]")
    with pytest.raises(core.PlanError, match=message):
        core.plan(_graph("Custom", {"op_type": "op"}, shape, role), {"devices": 2})
