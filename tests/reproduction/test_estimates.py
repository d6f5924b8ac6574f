"""Estimated steps: overlapped data parallelism by hand, and that plans are what they are said to be."""
from __future__ import annotations

import pytest

from soybean_mx import core
from soybean_mx import topology as topologies
from soybean_mx.reproduction import estimates, networks
from soybean_mx.topology import Device, Level, Topology

P2 = topologies.named("p2.8xlarge")


@pytest.mark.parametrize("all_reduces, expected", [
    ([0.0, 0.0, 0.0], 9.0),  # nothing to exchange
    ([1.0, 1.0, 1.0], 10.0),  # all but the last one's is hidden
    ([9.0, 0.0, 1.0], 14.0),  # 4 + 9 = 13, and then the last one's
    ([0.0, 2.0, 5.0], 14.0)])
def test_the_step_by_hand(all_reduces, expected):
    """Forward 2 s; backward 2, 3 and 2 s, which end after 4, 7 and 9 s."""
    assert estimates.overlapped(2.0, [2.0, 3.0, 2.0], all_reduces) == (9.0, expected)


def test_overlapped_data_parallelism_by_hand():
    """Where computing takes no time, what is left is all-reduces: 2 (p - 1) / p of the parameters, and latencies."""
    fast = Topology("fast", Device(1e30, 1e12, 1e30), (Level("link", 4, 1e3, 1e-2),))
    step = estimates.overlapped_data_parallelism(networks.products(100, 3, 8), fast)
    one = 2 * 3 / 4 * 100 * 100 * 4 / 1e3 + 2 * 2 * 1e-2
    assert step.seconds == pytest.approx(3 * one, rel=1e-4)
    assert step.bytes_moved == 2 * 3 * 3 * 100 * 100 * 4
    assert step.communication_share == pytest.approx(1, abs=1e-4)


def test_nothing_is_faster_than_its_computation_and_plans_are_the_planner_s():
    graph = networks.perceptron_graph(512, 4, 64)
    for strategy in ("data", "model", "optimal"):
        step = estimates.planned(graph, P2, strategy)
        plan = core.plan(graph, {"devices": 8, "strategy": strategy, "objective": "time", "topology": P2.to_json()})
        assert step.bytes_moved == plan["bytes"]["total"]
        assert 0 < step.communication_share < 1
    overlapped = estimates.overlapped_data_parallelism(graph, P2)
    data = estimates.planned(graph, P2, "data")
    # The same operators on the same devices, and no plan overlaps more.
    assert overlapped.seconds <= data.seconds and overlapped.bytes_moved >= data.bytes_moved
