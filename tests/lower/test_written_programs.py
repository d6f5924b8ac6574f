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
    plan = core.plan(graph_of(merged_heads()), {"devices": 2, "strategy": "optimal"})
    scores = next(n for n in plan["operators"] if n.startswith("softmax"))
    assert len(plan["tensors"][scores]) == 1
    # Cut by heads: a plan that says so is accepted.
    plan["operators"] = {n: ["d1"] if n == scores else cuts for n, cuts in plan["operators"].items()}
    assert core.lower(graph_of(merged_heads()), plan)["messages"] > 0
