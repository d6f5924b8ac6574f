"""The graph without communication: each device computes what it did, and nothing crosses."""
from __future__ import annotations

import json
from collections import Counter
from typing import Dict

import pytest

from soybean_mx import core
from soybean_mx.core import PlanError
from tests.lower.byte_count import count_bytes
from tests.lower.execution import graph_of
from tests.lower.random_plans import draw_case, plan_of

LOCAL = {"conversions": "local"}


def nodes_of(lowered: Dict):
    return json.loads(lowered["symbol"])["nodes"]


def computed(lowered: Dict) -> Counter:
    """How often each operator runs on each device, copies and what stands for the sending apart."""
    return Counter((node["op"], node["attrs"]["__ctx_group__"]) for node in nodes_of(lowered)
                   if node["op"] not in ("null", "_copy", "make_loss"))


@pytest.mark.parametrize("seed", range(40))
def test_nothing_crosses_and_all_is_computed(seed):
    case = draw_case(seed)
    graph = graph_of(case.program)
    plan = plan_of(case, graph, core)
    exchanged, local = core.lower(graph, plan, {"conversions": "exchanged"}), core.lower(graph, plan, LOCAL)
    assert exchanged == core.lower(graph, plan) and "fills" not in exchanged
    assert local["bytes"] == {"forward": 0, "backward": 0, "total": 0} and local["messages"] == 0
    assert computed(local) == computed(exchanged)
    kept = [node for node in nodes_of(local) if node["op"] == "make_loss"]
    assert len(kept) == sum(fill["requires_grad"] for fill in local.get("fills", []))
    for name in ("variables", "outputs", "statistics"):
        assert local[name] == exchanged[name]

    nodes, fills = nodes_of(local), local.get("fills", [])
    groups = [node["attrs"]["__ctx_group__"] for node in nodes]
    assert all(groups[source] == group for node, group in zip(nodes, groups) for source, *_ in node["inputs"])
    counted, messages = count_bytes(case.program, exchanged)
    sizes = [fill["itemsize"] for fill in fills]
    for i, fill in enumerate(fills):
        for extent in fill["shape"]:
            sizes[i] *= extent
    assert len(fills) == messages and sum(sizes) == counted["forward"]
    assert sum(size for size, fill in zip(sizes, fills) if fill["requires_grad"]) == counted["backward"]
    users = {nodes[source]["name"]: (node["op"], group) for node, group in zip(nodes, groups)
             for source, *_ in node["inputs"]}
    assert all(users[fill["name"]] == ("_copy", f"d{fill['device']}") for fill in fills)
    heads = json.loads(local["symbol"])["heads"]
    first = len(local["outputs"]) + len(local["statistics"])
    assert [fill["head"] for fill in fills] == list(range(first, len(heads)))


def test_messages():
    graph = graph_of(draw_case(0).program)
    with pytest.raises(PlanError, match="conversions is 'none': 'exchanged' or 'local'"):
        core.lower(graph, core.plan(graph, {"devices": 2}), {"conversions": "none"})
