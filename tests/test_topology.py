"""Topologies: what is read and refused, presets, and how measured links become levels."""
from __future__ import annotations

import json

import mxnet as mx
import numpy as np
import pytest

from soybean_mx import topology
from soybean_mx.topology import PRESETS, Device, Level, Topology, TopologyError
from soybean_mx.topology_measurement import fit_link, group_devices, measure

DEVICE = {"flops": 1e12, "memory": 1e9, "memory_bandwidth": 1e11}
UNEQUAL = {"name": "three hosts", "device": DEVICE,
           "levels": [{"name": "network", "groups": [4, 8, 8], "bandwidth": 1e9, "latency": 1e-5},
                      {"name": "pcie", "bandwidth": 1e10, "latency": 1e-5}]}


@pytest.mark.parametrize("text", [*PRESETS, "2xp2.8xlarge@10Gb/s", "128xdgx-h100@400Gb/s", "4 x pcie-tree"])
def test_presets_are_read_back(text, tmp_path):
    read = topology.load(text)
    assert Topology.from_json(json.loads(json.dumps(read.to_json()))) == read
    path = tmp_path / "t.json"
    path.write_text(json.dumps(read.to_json()))
    assert topology.load(str(path)) == read


def test_hosts_share_their_network_link():
    hosts = topology.named("4xp3.16xlarge@25Gb/s")
    assert hosts.devices == 32 and hosts.name == "4xp3.16xlarge@25Gb/s"
    assert [level.groups for level in hosts.levels] == [4, 2, 4]
    assert hosts.levels[0].bandwidth == 25e9 / 8 / 8
    assert topology.named("4xp3.16xlarge") == hosts
    assert hosts.levels[1:] == PRESETS["p3.16xlarge"].topology.levels


def test_presets_have_eight_devices_and_faster_links_inside():
    for preset in PRESETS.values():
        assert preset.topology.devices == 8
        bandwidths = [level.bandwidth for level in preset.topology.levels]
        assert bandwidths == sorted(bandwidths) and preset.network / 8 < bandwidths[0]


def test_unequal_hosts_pass_unchanged():
    read = Topology.from_json(UNEQUAL)
    assert read.devices == 20 and read.to_json() == UNEQUAL


@pytest.mark.parametrize("text, said", [
    ("p4", "There is no topology 'p4'"), ("1xp2.8xlarge", "1 hosts, but 2 to 128"), ("129xp2.8xlarge", "129 hosts"),
    ("2xp2.8xlarge@0Gb/s", "'0'"), ("2xp2.8xlarge@1.2.3Gb/s", "'1.2.3'"), ("2xp2.8xlarge@25GB", "no topology"),
    ("nowhere.json", "no topology file 'nowhere.json'")])
def test_names_that_are_refused(text, said):
    with pytest.raises(TopologyError) as refused:
        topology.load(text)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def changed(path: str, value) -> dict:
    """UNEQUAL with the member at a path, such as ``levels/0/groups``, replaced; None removes it."""
    result = json.loads(json.dumps(UNEQUAL))
    *parents, last = path.split("/")
    target = result
    for name in parents:
        target = target[int(name) if name.isdigit() else name]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return result


@pytest.mark.parametrize("path, value, said", [
    ("levels/0/bandwidth", -1e9, "bandwidth is -1000000000.0"), ("levels/0/bandwidth", "fast", "'fast'"),
    ("levels/0/bandwidth", float("nan"), "nan"), ("levels/1/latency", -1, "latency is -1"),
    ("levels/0/groups", [4], "[4]"), ("levels/0/groups", [4, 0], "[4, 0]"), ("levels/0/groups", 1, "groups 1"),
    ("levels/0/groups", True, "True"), ("levels/0/groups", 2.5, "2.5"), ("levels/0/groups", 2, "[2, None]"),
    ("levels/1/groups", 4, "[[4, 8, 8], 4]"), ("levels/0/name", "", "name is ''"), ("levels/0/name", None, "no 'name'"),
    ("levels/0/gruops", 4, "'gruops'"), ("levels", [], "no levels"), ("levels", 3, "levels is 3"),
    ("levels/0/groups", [1000, 1000], "2000 devices"), ("device/flops", 0, "flops is 0"),
    ("device/memory", None, "no 'memory'"), ("device", 5, "device is 5"), ("name", None, "no 'name'")])
def test_members_that_are_refused(path, value, said):
    with pytest.raises(TopologyError) as refused:
        Topology.from_json(changed(path, value), "here.json")
    assert said in str(refused.value) and str(refused.value).startswith("here.json")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_json_is_refused(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("{")
    with pytest.raises(TopologyError, match="cannot be read"):
        topology.load(str(path))


def tree_of(*levels) -> np.ndarray:
    """Bandwidths of a tree of (groups, bandwidth) levels, the outermost first."""
    count = int(np.prod([groups for groups, _ in levels]))
    result, size = np.empty((count, count)), count
    shared = np.ones((count, count), bool)
    for groups, bandwidth in levels:
        result[shared] = bandwidth
        size //= groups
        block = np.arange(count) // size
        shared = block[:, None] == block[None, :]
    return result


@pytest.mark.parametrize("levels", [
    [(4, 1.0)], [(2, 1.0), (4, 8.0)], [(4, 1.0), (2, 2.0)], [(2, 1.0), (2, 4.0), (2, 20.0)], [(3, 1.0), (2, 3.0)]])
def test_levels_are_found_again_with_noise_and_in_any_order(levels):
    rs = np.random.RandomState(len(levels))
    for _ in range(5):
        true = tree_of(*levels)
        shuffle = rs.permutation(len(true))
        seen = (true * rs.uniform(0.9, 1.1, true.shape))[shuffle][:, shuffle]
        found = group_devices(seen)
        assert found.groups == [groups for groups, _ in levels]
        ordered = true[shuffle[found.order]][:, shuffle[found.order]]
        off_diagonal = ~np.eye(len(true), dtype=bool)
        assert (ordered == true)[off_diagonal].all()
        for (_, bandwidth), pairs in zip(levels, found.pairs):
            assert pairs and {true[shuffle[a], shuffle[b]] for a, b in pairs} == {bandwidth}


def test_unequal_hosts_are_found():
    host = np.repeat([0, 1, 2], [1, 3, 2])
    found = group_devices(np.where(host[:, None] == host[None, :], 9.0, 1.0))
    assert found.groups == [(1, 3, 2), None] and found.order == list(range(6))


def test_links_are_fitted():
    sizes = [4096, 1 << 20, 1 << 24]
    latency, bandwidth = fit_link(sizes, [2e-5 + size / 3e9 for size in sizes])
    assert latency == pytest.approx(2e-5) and bandwidth == pytest.approx(3e9)
    latency, bandwidth = fit_link(sizes, [1e-6 + 1.5 * size / 3e9 if size > 4096 else 1e-7 for size in sizes])
    assert latency >= 0 and bandwidth > 0


def test_contexts_are_measured():
    measured, contexts = measure([mx.cpu(index) for index in range(3)], repeats=2)
    assert measured.devices == 3 and sorted(context.device_id for context in contexts) == [0, 1, 2]
    assert Topology.from_json(measured.to_json()) == measured
    assert 1e7 < measured.levels[0].bandwidth < 1e12 and measured.device.flops > 1e8


def test_one_context_has_no_link():
    with pytest.raises(TopologyError, match="one device"):
        measure([mx.cpu(0)])


def test_direct_construction_is_checked_too():
    with pytest.raises(TopologyError, match="flops"):
        Device(-1, 1, 1)
    with pytest.raises(TopologyError, match="no levels"):
        Topology("t", Device(1, 1, 1), ())
    with pytest.raises(TopologyError, match="groups"):
        Level("l", 0, 1.0, 0.0)
