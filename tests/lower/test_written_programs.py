"""Programs written by hand agree with one device under random plans; heads can be cut however they are written."""
from __future__ import annotations

import pytest

from soybean_mx import core
from tests.child import run_child
from tests.lower.execution import graph_of
from tests.lower.written_programs import PROGRAMS, merged_heads


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_under_random_plans(name):
    run_child("tests.lower.written_programs", [name], timeout=120)


def test_merged_dims_are_taken_apart():
    graph = graph_of(merged_heads())
    plan = core.plan(graph, {"devices": 2, "strategy": "optimal"})
    softmax = next(n for n in plan["operators"] if n.startswith("softmax"))
    # A plan that is edited to cut it by heads, which one dim for samples and heads would not allow, is accepted.
    plan["operators"][softmax] = ["d1"]
    plan["tensors"][softmax] = ["split 1"]
    assert core.lower(graph, plan)["messages"] > 0
