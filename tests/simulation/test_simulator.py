"""Simulated steps against what is known of them: bytes, times of devices, and a real run's memory and copies."""
from __future__ import annotations

import json

import soybean_mx  # noqa: F401  (before MXNet)

import mxnet as mx  # isort: skip
import pytest

from soybean_mx import core
from soybean_mx.graph import describe
from soybean_mx.model_loading import load
from soybean_mx.simulation import Roofline, simulate
from soybean_mx.simulation.steps import COPY, UPDATE
from soybean_mx.topology import Device, Level, Topology, named
from tests.child import ROOT, run_child

PERCEPTRON = load("tests.simulation.test_operator_times:perceptron", input_shapes=[(8, 4)])


def plan_of(strategy, topology):
    return core.plan(PERCEPTRON.graph, {"devices": topology.devices, "strategy": strategy})


@pytest.mark.parametrize("strategy", ["data", "model", "optimal"])
@pytest.mark.parametrize("text", ["p2.8xlarge", "pcie-tree", "2xp3.16xlarge"])
def test_bytes_are_those_of_the_lowered_graph(strategy, text):
    topology = named(text)
    plan = plan_of(strategy, topology)
    found = simulate(PERCEPTRON.graph, plan, topology)
    assert sum(event.sent for event in found.events) == plan["bytes"]["total"]
    innermost, every = topology.levels[-1].name, sum(event.sent for event in found.events)
    if len(topology.levels) == 1:
        for way in ("out", "in"):
            assert sum(sent for name, sent in found.link_bytes.items() if name.endswith(way)) == every
    if text == "pcie-tree":  # everything goes through the devices' own links
        assert sum(sent for name, sent in found.link_bytes.items()
                   if name.startswith(innermost) and name.endswith("out")) == every
        half = sum(event.sent for event in found.events if event.kind == COPY and event.device < 4 <= event.to)
        assert found.link_bytes.get("socket: devices 0-3 out", 0) == half
    for busy, idle in zip(found.busy_seconds, found.idle_seconds):
        assert busy + idle == pytest.approx(found.seconds) and busy <= found.seconds
    assert 0 <= found.communication_share < 1 and found.transfer_free_seconds <= found.seconds
    assert all(link.busy_seconds <= found.seconds for link in found.links)


@pytest.mark.parametrize("text, hosts", [("2xp2.8xlarge", 2), ("4xp3.16xlarge@25Gb/s", 4)])
def test_data_parallelism_brings_each_weight_to_a_host_once(text, hosts):
    """Every host lacks all but its own share of the weights, and of the terms of their gradients: nothing crosses the
    network more than once each way, as the tiles that cross are those that the inner links then spread."""
    x = mx.sym.var("x")
    for layer in range(3):
        x = mx.sym.FullyConnected(x, num_hidden=64, no_bias=True, name=f"fc{layer}")
    weights = {f"fc{layer}_weight": ((64, 64), "float32") for layer in range(3)}
    graph = describe(x, {"x": ((64, 64), "float32")}, weights, set(weights), True)
    topology = named(text)
    plan = core.plan(graph, {"devices": topology.devices, "strategy": "data", "topology": topology.to_json()})
    crossing = [count for link, count in simulate(graph, plan, topology).link_bytes.items() if "network" in link]
    assert len(crossing) == 2 * hosts
    assert set(crossing) == {2 * 3 * 64 * 64 * 4 * (hosts - 1) // hosts}


def test_faster_links_change_nothing_but_communication():
    slow = Topology("slow", Device(1e12, 1e9, 1e11), (Level("link", 2, 1e6, 1e-5),))
    fast = Topology("fast", slow.device, (Level("link", 2, 1e15, 0.0),))
    plan = plan_of("data", slow)
    some, others = (simulate(PERCEPTRON.graph, plan, topology) for topology in (slow, fast))
    assert others.seconds < some.seconds and others.communication_seconds < some.communication_seconds / 100
    assert some.transfer_free_seconds == others.transfer_free_seconds
    assert some.busy_seconds == pytest.approx(others.busy_seconds)
    assert some.peak_bytes == others.peak_bytes


def test_a_slower_device_takes_as_many_times_longer():
    topology = Topology("pair", Device(1e9, 1e9, 1e8), (Level("link", 2, 1e15, 0.0),))
    plan = plan_of("optimal", topology)
    times = [simulate(PERCEPTRON.graph, plan, topology, Roofline(Device(1e9 / n, 1e9, 1e8 / n), 0.0)).seconds
             for n in (1, 2)]
    assert times[1] == pytest.approx(2 * times[0], rel=1e-3)


def test_updates_follow_their_gradients():
    topology = named("p2.8xlarge")
    plan = plan_of("data", topology)
    without, momentum = (simulate(PERCEPTRON.graph, plan, topology, optimizer_states=states) for states in (None, 1))
    updates = [event for event in momentum.events if event.kind == UPDATE]
    assert updates and not any(event.kind == UPDATE for event in without.events)
    assert momentum.seconds > without.seconds
    tiles = [tile["name"] for tile in core.lower(PERCEPTRON.graph, plan)["variables"]
             if PERCEPTRON.graph["variables"][tile["source"]]["role"] == "parameter"]
    assert sorted(event.node for event in updates) == sorted(tiles)
    assert sum(momentum.peak_bytes) - sum(without.peak_bytes) == 4 * (6 * 4 + 6 + 2 * 6 + 2)


def test_a_topology_of_fewer_devices_is_refused():
    with pytest.raises(ValueError, match="for 8 devices, but the topology 'pair' has 2"):
        simulate(PERCEPTRON.graph, plan_of("data", named("p2.8xlarge")),
                 Topology("pair", Device(1, 1, 1), (Level("link", 2, 1.0, 0.0),)))


def test_a_real_run_sends_as_many_bytes_and_holds_as_much_memory(tmp_path):
    path = tmp_path / "rows.json"
    run_child(str(ROOT / "scripts" / "validate_simulation.py"), [
        "--networks", "mlp", "--devices", "cpu:2", "--strategies", "data", "optimal", "--rounds", "1", "--steps", "1",
        "--repeats", "1", "--json", str(path)])
    rows = json.loads(path.read_text())
    assert [row["strategy"] for row in rows] == ["data", "optimal"]
    for row in rows:
        assert row["bytes"] == row["predicted_bytes"] > 0
        assert max(row["predicted_peak_bytes"]) == pytest.approx(max(row["peak_bytes"]), rel=0.1)
        assert 0 < row["predicted_seconds"] < 100 * row["seconds"]
