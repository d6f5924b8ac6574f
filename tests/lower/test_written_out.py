"""Operators that take statistics are right when they are cut along what they take them over."""
from __future__ import annotations

import pytest

from soybean_mx import core
from tests.child import run_child
from tests.lower.execution import graph_of
from tests.lower.written_out import pins_of, program_of, with_statistics
from tests.rules.cases import CASES
from tests.rules.cutting import NODE, Case, real


def test_all_cuts_agree_with_one_device():
    run_child("tests.lower.written_out", timeout=200)


@pytest.mark.parametrize("case", with_statistics(CASES), ids=str)
def test_every_statistic_is_cut(case: Case):
    rule = core.rules(graph_of(program_of(case)))[NODE]
    cut = {name for _, names in pins_of(rule) for name in names}
    assert {f["name"] for f in rule["factors"] if f["statistic"] and f["size"] > 1} <= cut


def test_an_operator_whose_rows_are_whole_stays_fused():
    graph = graph_of(program_of(Case("softmax", {}, [real(4, 6)])))
    whole, cut = (core.plan(graph, {"devices": 2, "pins": {NODE: name}}) for name in ("n", "d1"))
    assert '"op": "softmax"' in core.lower(graph, whole)["symbol"].replace('"op":"', '"op": "')
    assert '"op": "softmax"' not in core.lower(graph, cut)["symbol"].replace('"op":"', '"op": "')
    assert whole["bytes"]["statistics"] == 0 < cut["bytes"]["statistics"]


def test_many_classes_are_not_gathered():
    """The scores of a large vocabulary stay where they are made; what moves are numbers by sample."""
    samples, classes = 16, 20000
    graph = graph_of(program_of(Case("log_softmax", {}, [real(samples, classes)])))
    pins = {"x0": "split 1", NODE: "d1"}
    plan = core.plan(graph, {"devices": 4, "pins": pins})
    assert plan["bytes"]["total"] == plan["bytes"]["statistics"] < samples * 4 * 100
