"""Paths through topologies, and fair shares of links."""
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soybean_mx.simulation.links import Network, fair_rates
from soybean_mx.topology import Device, Level, Topology, named
from tests.simulation.task_graphs import HOSTS


def names(links):
    return [link.name for link in links]


def test_links_of_one_s_own():
    path = Network(named("p2.8xlarge")).path(2, 5)
    assert names(path.links) == ["pcie: device 2 out", "pcie: device 5 in"]
    assert (path.latency, path.bandwidth, path.shared) == (10e-6, 10e9, ())


def test_a_shared_link_is_reached_through_those_within():
    network = Network(HOSTS)
    path = network.path(1, 2)
    assert names(path.links) == ["network: devices 0-1 out", "network: devices 2-3 in", "bus: device 1 out",
                                 "bus: device 2 in"]
    assert names(path.shared) == names(path.links)[:2] and path.bandwidth == 80
    assert [network.capacity[link] for link in path.shared] == [100, 100]


def test_hosts_of_unequal_numbers_of_devices():
    topology = Topology("unequal", Device(1, 1, 1), (Level("network", (1, 3), 10.0, 0.0, shared=True),
                                                     Level("bus", None, 100.0, 0.0)))
    network = Network(topology)
    assert names(network.path(0, 3).links)[:2] == ["network: device 0 out", "network: devices 1-3 in"]
    assert network.path(0, 3).bandwidth == 10 and network.path(1, 3).bandwidth == 100
    assert names(network.path(1, 3).links) == ["bus: device 1 out", "bus: device 3 in"]


def test_three_levels():
    path = Network(named("pcie-tree")).path(0, 7)
    assert names(path.shared) == ["socket: devices 0-3 out", "socket: devices 4-7 in", "switch: devices 0-1 out",
                                  "switch: devices 6-7 in"]
    assert path.bandwidth == 15.75e9  # of a device's own link: sockets and switches carry as much, or more


@settings(max_examples=100, deadline=None)
@given(pairs=st.sets(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=10))
def test_shares_are_max_min_fair(pairs):
    """No link carries more than it can, and who gets less than it could is at a full link where nobody gets more."""
    network = Network(named("2xpcie-tree"))
    flows = {number: network.path(a, b) for number, (a, b) in enumerate(sorted(pairs)) if a != b}
    rates = fair_rates(flows, network.capacity)
    load = {}
    for number, path in flows.items():
        for link in path.shared:
            load.setdefault(link, []).append(rates[number])
    assert all(sum(each) <= network.capacity[link] * (1 + 1e-9) for link, each in load.items())
    for number, path in flows.items():
        full = [link for link in path.shared if sum(load[link]) >= network.capacity[link] * (1 - 1e-9)
                and rates[number] >= max(load[link]) * (1 - 1e-9)]
        assert full or rates[number] == pytest.approx(path.bandwidth)
