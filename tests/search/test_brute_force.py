"""The planner against the least over all plans (brute_force.py): random programs of any sizes, and whole networks.

SOYBEAN_MX_TEST_FULL=1 draws many more programs, other ones each time.
"""
from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from soybean_mx import core
from tests.search.brute_force import TooLarge, optimal_bytes
from tests.search.drawn_programs import programs
from tests.search.networks import NETWORKS, graph_of_network

FULL = os.environ.get("SOYBEAN_MX_TEST_FULL") == "1"


def compare(graph, devices: int) -> None:
    """Assert what the planner claims of a program's plan."""
    plan = core.plan(graph, {"devices": devices, "spatial": "no"})
    try:
        least = optimal_bytes(graph, devices)
    except TooLarge:
        assume(False)
    shapes = dict(list(graph["shapes"].items())[:20])
    found, bound = plan["bytes"]["total"], plan["lower_bound_bytes"]
    assert bound <= least, f"the bound {bound} is more than {least}, which a plan moves: {shapes}"
    assert least <= found, f"the plan moves {found}, less than any plan can ({least}): {shapes}"
    assert plan["exact"], f"not proved: {bound} <= {least} <= {found}: {shapes}"
    assert found == least, f"proved at {found}, but a plan moves {least}: {shapes}"


# Draws in CI and in full, and layers at the most.
@pytest.mark.parametrize(
    "devices, draws, full_draws, most",
    ((2, 150, 3000, 7), (3, 100, 2000, 7), (4, 150, 3000, 6), (6, 100, 2000, 6), (8, 50, 1000, 4), (9, 60, 1500, 6)),
)
def test_no_plan_moves_fewer_bytes(devices, draws, full_draws, most):
    @settings(
        max_examples=full_draws if FULL else draws, deadline=None, derandomize=not FULL, database=None,
        suppress_health_check=list(HealthCheck), print_blob=False,
    )
    @given(programs(most), st.just(devices))
    def check(graph, devices):
        compare(graph, devices)

    check()


@pytest.mark.parametrize("devices", (2, 4, 8))
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, devices):
    compare(graph_of_network(name), devices)
