"""Pipelines of tiled stages: what is chosen, against all pipelines of small networks."""
from __future__ import annotations

import itertools
import json

import mxnet as mx
import pytest
from mxnet.gluon import nn

from soybean_mx import cli, core, topology
from soybean_mx.pipeline import combined
from soybean_mx.pipeline.partition import partition
from soybean_mx.topology import Device, Level, Topology

CLUSTER = Topology("cluster", Device(4e12, 12e9, 240e9), (Level("network", 2, 2e8, 5e-5), Level("pcie", 4, 1e10, 1e-5)))


def network(*units, skip=False):
    """Layers of so many units, from 64 numbers."""
    class Net(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.layers = []
                for index, (before, after) in enumerate(zip((64, *units), units)):
                    layer = nn.Dense(after, activation="relu", in_units=before)
                    setattr(self, f"layer{index}", layer)
                    self.layers.append(layer)

        def hybrid_forward(self, F, x):
            for index, layer in enumerate(self.layers):
                y = layer(x)
                x = x + y if skip and index % 2 else y
            return x

    net = Net()
    net.initialize()
    return net


NETWORKS = {
    "growing": (network(256, 1024, 2048, 512), 512),
    "wide": (network(4096, 4096, 4096, 64), 64),
    "skips": (network(256, 256, 1024, 1024, 64, 64, skip=True), 2048),
}


def graph_of(name):
    """The network as combined.for_block describes it."""
    net, batch = NETWORKS[name]
    held = []

    class Stop(Exception):
        pass

    def compare(graph, *_, **__):
        held.append(graph)
        raise Stop

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        patch.setattr(combined, "compare", compare)
        combined.for_block(net, [(batch, 64)], CLUSTER)
    return held[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_no_pipeline_is_much_faster(name):
    """Of all boundaries, each stage planned for itself."""
    graph = graph_of(name)
    priced = combined._Network(graph, CLUSTER, 0)
    every = len(priced.operators)
    found = {item.group: item for item in combined.compare(graph, CLUSTER) if len(item.stages) > 1}
    for count in (2, 4):
        group = CLUSTER.devices // count
        best = min(
            max([*(priced._stage_seconds(begin, end, group) for begin, end in zip(ends, ends[1:])),
                 *(priced._boundary(end, group * (stage + 1), group) for stage, end in enumerate(ends[1:-1]))])
            for ends in ((0, *inner, every) for inner in itertools.combinations(range(1, every), count - 1)))
        assert best <= found[group].seconds <= 1.1 * best


def test_stages_are_the_network():
    """Each operator is in one stage, and a stage that is everything costs what the network does."""
    graph = graph_of("skips")
    priced = combined._Network(graph, CLUSTER, 1)
    options = {"devices": 8, "strategy": "optimal", "topology": CLUSTER.to_json(), "objective": "time",
               "optimizer_states": 1}
    whole, stage = core.plan(graph, options), priced._stage_plan(0, len(priced.operators), 8)
    for plan in (whole, stage):
        del plan["search_seconds"]
    assert stage == whole
    for item in combined.compare(graph, CLUSTER):
        assert [name for stage in item.stages for name in stage.operators] == priced.operators
        assert len(item.stages) * item.group == CLUSTER.devices or len(item.stages) == 1


def test_stages_can_be_cut_and_run():
    net, batch = NETWORKS["skips"]
    best = next(item for item in combined.for_block(net, [(batch, 64)], CLUSTER) if len(item.stages) == 2)
    stages = partition(net(mx.sym.var("data0")), [stage.operators for stage in best.stages], ["data0"])
    assert [len(stage.symbol.get_internals().list_outputs()) > 0 for stage in stages] == [True, True]


def test_groups_and_their_links():
    hosts = topology.named("4xp3.16xlarge@25Gb/s")
    assert combined.group_sizes(hosts) == [32, 16, 8, 4, 2, 1]
    assert [level["groups"] for level in combined.within(hosts, 16)["levels"]] == [2, 2, 4]
    assert [level["name"] for level in combined.within(hosts, 4)["levels"]] == ["nvlink"]
    assert combined.within(hosts, 1)["levels"][0]["groups"] == 1
    assert combined.boundary_level(hosts, 16)[0].name == "network"
    assert combined.boundary_level(hosts, 4)[0].name == "nvlink between fours"
    assert combined.boundary_level(hosts, 3)[0].name == "nvlink"
    threes = Topology("threes", CLUSTER.device, (Level("network", 4, 1e9, 0.0), Level("pcie", 3, 1e10, 0.0)))
    assert combined.group_sizes(threes) == [12, 6, 3, 1]


def test_a_flush_fills_and_drains():
    """A batch takes as many turns as it has microbatches, and one less than stages more."""
    net, _ = NETWORKS["growing"]
    flushed = combined.for_block(net, [(512, 64)], CLUSTER, schedule="flush", microbatches=4)
    part = {item.group: item for item in combined.for_block(net, [(128, 64)], CLUSTER) if len(item.stages) > 1}
    for item in flushed:
        if len(item.stages) > 1:
            assert item.seconds == pytest.approx((4 + len(item.stages) - 1) * part[item.group].seconds)


def test_what_does_not_fit_comes_last():
    """Minibatches under way and older weights count."""
    net, batch = NETWORKS["wide"]
    ample = combined.for_block(net, [(batch, 64)], CLUSTER, optimizer_states=1)
    most = max(stage.memory_bytes for stage in ample[0].stages)
    small = Topology("small", Device(4e12, most * 0.99, 240e9), CLUSTER.levels)
    tight = combined.for_block(net, [(batch, 64)], small, optimizer_states=1)
    assert [item.fits for item in tight] == sorted((item.fits for item in tight), reverse=True)
    assert not next(item for item in tight if item.group == ample[0].group and item.name == ample[0].name).fits
    # The first stage of 1F1B keeps a version of its weights and activations for each later stage.
    pair = next(item for item in ample if len(item.stages) == 2)
    memory = pair.stages[0].plan["memory"]
    more = memory["activations"] + memory["inputs"] + memory["parameters"]
    assert pair.stages[0].memory_bytes == pytest.approx(memory["peak"] + more)
    assert pair.stages[1].memory_bytes == pytest.approx(pair.stages[1].plan["memory"]["peak"])


def test_the_command(capsys):
    command = ["stages", "squeezenet1.0", "--compare", "--topology", "2xp2.8xlarge", "--batch-size", "16"]
    assert cli.main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    names = [item["name"] for item in report["combinations"]]
    assert {"data parallelism", "tiling", "pipeline", "pipeline of 2, each tiled over 8"} <= set(names)
    fitting = [item for item in report["combinations"] if item["fits"]]
    assert [item["step_ms"] for item in fitting] == sorted(item["step_ms"] for item in fitting)
    assert cli.main(command) == 0
    assert "of data parallelism" in capsys.readouterr().out


@pytest.mark.parametrize("arguments, message", [
    (["--compare"], "without a --topology"),
    (["--compare", "--topology", "p2.8xlarge", "--bandwidth", "1GB/s"], "--bandwidth 1GB/s was given with --compare"),
    (["--compare", "--topology", "p2.8xlarge", "--microbatches", "4"], "--microbatches 4 was given with --schedule"),
    (["--compare", "--topology", "p2.8xlarge", "--schedule", "flush", "--batch-size", "9"], "cannot be cut into 8"),
    (["--compare", "--topology", "p2.8xlarge", "--classes", "0"], "number of classes is 0"),
    (["--topology", "p2.8xlarge", "--schedule", "flush"], "--schedule flush was given without --compare"),
    (["--topology", "p2.8xlarge", "--batch-size", "9"], "without --compare")])
def test_arguments_that_do_not_fit(capsys, arguments, message):
    assert cli.main(["stages", "alexnet", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and not printed.out and printed.err.count("\n") == 1
