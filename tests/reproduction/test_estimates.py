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
    """Where computing takes no time, all-reduces are left: 2 (p - 1) / p of the parameters, and two latencies."""
    fast = Topology("fast", Device(1e30, 1e12, 1e30), (Level("link", 4, 1e3, 1e-2),))
    step = estimates.overlapped_data_parallelism(
        estimates.data_parallel_passes(networks.products(100, 3, 8), fast), fast)
    one = 2 * 3 / 4 * 100 * 100 * 4 / 1e3 + 2 * 1e-2
    assert step.seconds == pytest.approx(3 * one, rel=1e-4)
    assert step.bytes_moved == 2 * 3 * 3 * 100 * 100 * 4
    assert step.communication_share == pytest.approx(1, abs=1e-4)


def test_a_gradient_goes_through_its_owner_by_hand():
    """2 devices, 1 byte/s, no latency: 8 bytes have a device of their own, and 6 and 1 share the other."""
    assert estimates.through_owners([(0.0, 6), (1.0, 8), (2.0, 1)], 2, 1.0, 0.0) == [12.0, 17.0, 13.0]
    # A latency on the way there and on the way back.
    assert estimates.through_owners([(5.0, 4)], 3, 2.0, 0.5) == [5.0 + 2 * (2 * 4 / 2 + 0.5)]
    assert estimates.through_owners([], 2, 1.0, 0.0) == []


def test_nothing_is_faster_than_its_computation_and_plans_are_the_planner_s():
    graph = networks.perceptron_graph(512, 4, 64)
    for strategy in ("data", "model", "optimal"):
        step = estimates.planned(graph, P2, strategy)
        plan = core.plan(graph, {"devices": 8, "strategy": strategy, "objective": "time", "topology": P2.to_json()})
        assert step.bytes_moved == plan["bytes"]["total"]
        assert 0 < step.communication_share < 1
    passes = estimates.data_parallel_passes(graph, P2)
    overlapped = estimates.overlapped_data_parallelism(passes, P2)
    data = estimates.planned(graph, P2, "data")
    mxnet = estimates.mxnet_data_parallelism(passes, P2)
    # The same operators on the same devices, and no exchange is faster.
    assert overlapped.seconds <= min(data.seconds, mxnet.seconds)
    assert overlapped.bytes_moved == mxnet.bytes_moved >= data.bytes_moved
