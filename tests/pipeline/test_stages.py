"""The search for stages: against PipeDream's released optimizer, and against all pipelines of small networks."""
from __future__ import annotations

import itertools
import json
import math
import re
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soybean_mx import core
from soybean_mx.pipeline import profile as profiles
from tests.child import ROOT

GB = 1e9
COST_MODELS = ("released", "v1", "sosp", "overlap")


def planned(profile, levels, **options):
    """A plan; levels are (groups, bytes/s) from the outermost."""
    return core.stages(profile, {**options, "levels": [{"groups": groups, "bandwidth": bandwidth}
                                                       for groups, bandwidth in levels]})


def shipped(name):
    profile = profiles.load(str(ROOT / "soybean_mx" / "pipeline" / "profiles" / f"{name}.graph.txt"))
    profile = profile.without(profile.inputs())
    return profiles.core_form(profile.without(list(profile.unused_items())))


def config(groups):
    return "-".join(str(group["replicas"]) + (f"({config(group['stages'])})" if "stages" in group else "")
                    for group in groups)


# What the released optimizer printed: name, levels from the outermost, config, the layers of the first stage, ms,
# speedup over one device, over data parallelism.
RELEASED = [
    ("vgg16", [(4, 1)], "3-1", 17, 205.521, 3.272, 2.838),
    ("vgg16", [(4, 10)], "3-1", 15, 170.179, 3.952, 1.232),
    ("vgg16", [(4, 1.25), (4, 10)], "3(4)-1(1-1-1-1)", None, 67.134, 10.018, 2.017),
    ("vgg16", [(16, 1.25)], "13-2-1", None, 54.795, 12.274, 2.661),
    ("vgg16", [(16, 3.125)], "15-1", 25, 45.525, 14.773, 1.835),
    ("alexnet", [(4, 1)], "3-1", None, 34.217, 2.494, 5.980),
    ("alexnet", [(4, 10)], "2-1-1", None, 22.186, 3.846, 1.788),
    ("resnet50", [(4, 10)], "1-1-1-1", None, 111.497, 3.977, 1.063),
    ("resnet50", [(4, 1.25), (4, 10)], "4(1-1-1-1)", None, 43.208, 10.262, 1.041),
    ("resnet50", [(2, 3.125), (8, 30)], "2(5-1-1-1)", None, 31.989, 13.862, 1.017),
    ("gnmt", [(4, 10)], "1-1-1-1", None, 25.868, 3.457, 3.111),
]


@pytest.mark.parametrize("name, levels, shape, layers, milliseconds, over_one, over_data", RELEASED)
def test_the_released_optimizer_s_results(name, levels, shape, layers, milliseconds, over_one, over_data):
    found = planned(shipped(name), [(groups, rate * GB) for groups, rate in levels], cost_model="released")
    assert config(found["groups"]) == shape
    assert layers is None or len(found["stages"][0]["layers"]) == layers
    assert round(found["seconds"] * 1e3, 3) == milliseconds
    assert round(found["one_device_seconds"] / found["seconds"], 3) == over_one
    assert round(found["data_parallel_seconds"] / found["seconds"], 3) == over_data
    assert found["all_cuts"]


def test_stages_need_not_align_to_servers():
    """Planned level by level, VGG-16 on 4 servers of 4 is slower than flat even if flat pays the slow link alone."""
    profile, servers = shipped("vgg16"), [(4, 1.25 * GB), (4, 10 * GB)]
    by_levels = planned(profile, servers, cost_model="released")
    flat = planned(profile, [(16, 1.25 * GB)], cost_model="released")
    assert by_levels["seconds"] / flat["seconds"] == pytest.approx(1.22, abs=0.01)
    assert planned(profile, servers, cost_model="overlap")["seconds"] < flat["seconds"]


@pytest.mark.parametrize("levels", [[(4, 10)], [(16, 1.25)], [(4, 1.25), (4, 10)], [(2, 3.125), (8, 30)]], ids=str)
@pytest.mark.parametrize("name", ["alexnet", "gnmt", "inception_v3", "resnet50", "squeezenet1_0", "vgg16"])
def test_every_shipped_profile_is_planned(name, levels):
    profile = shipped(name)
    for cost_model in COST_MODELS:
        links = [(groups, rate * GB) for groups, rate in levels]
        found, again = (planned(profile, links, cost_model=cost_model) for _ in range(2))
        assert found.pop("search_seconds") > 0 and again.pop("search_seconds") > 0
        assert found == again
        check_consistent(found, profile)


def check_consistent(found, profile):
    """That the stages are a pipeline of the profile and as slow as it is said."""
    numbers = [layer for stage in found["stages"] for layer in stage["layers"]]
    assert sorted(numbers) == list(range(len(profile["layers"])))
    stage_of = {layer: number for number, stage in enumerate(found["stages"]) for layer in stage["layers"]}
    assert all(stage_of[source] <= stage_of[reader] for source, reader in profile["edges"])
    assert sum(stage["replicas"] for stage in found["stages"]) == found["devices"]
    slowest = max([stage["seconds"] for stage in found["stages"]] + found["boundary_seconds"])
    assert slowest == pytest.approx(found["seconds"], rel=1e-9)
    assert found["seconds"] >= found["lower_bound"] * (1 - 1e-9)
    earlier = 0
    for stage in found["stages"]:
        layers = [profile["layers"][number] for number in stage["layers"]]
        weights = sum(layer["parameter_bytes"] for layer in layers)
        made = sum(layer["activation_bytes"] for layer in layers)
        in_flight = (found["devices"] - 1 - earlier) // stage["replicas"] + 1
        assert stage["in_flight"] == stage["versions"] == in_flight
        memory = stage["memory"]
        assert memory["weights"] == memory["gradients"] == pytest.approx(weights)
        assert memory["stashed"] == pytest.approx((in_flight - 1) * weights)
        assert memory["activations"] == pytest.approx(in_flight * (made + stage["received_bytes"]))
        assert memory["total"] == pytest.approx(sum(value for key, value in memory.items() if key != "total"))
        earlier += stage["replicas"]


# -- all pipelines of small networks -------------------------------------------------------------------------------


@st.composite
def networks(draw, one_source):
    """Small graphs; those for the released optimizer grow from one source."""
    count = draw(st.integers(1, 6))
    edges = [(a, b) for a in range(count) for b in range(a + 1, count) if draw(st.integers(0, 2)) == 0]
    if one_source:
        edges += [(0, b) for b in range(1, count) if all(reader != b for _, reader in edges)]
    layers = [{"name": f"l{i}", "seconds": draw(st.integers(0, 9)) / 10, "activation_bytes": draw(st.integers(0, 9)),
               "parameter_bytes": draw(st.integers(0, 20))} for i in range(count)]
    return {"layers": layers, "edges": [list(edge) for edge in edges]}


class Network:
    """All cuts of a small network and what lies between them, counted from the definitions."""

    def __init__(self, profile, released):
        self.layers, self.edges = profile["layers"], [tuple(edge) for edge in profile["edges"]]
        nodes = range(len(self.layers))
        self.needs = [set() for _ in nodes]
        for _ in nodes:
            for source, reader in self.edges:
                self.needs[reader] |= {source} | self.needs[source]
        self.all = frozenset(nodes)
        self.released = released
        self.cuts = [frozenset(cut) for size in range(1, len(nodes) + 1) for cut in itertools.combinations(nodes, size)
                     if all(self.needs[node] <= set(cut) for node in cut)]

    def seconds(self, part):
        return sum(self.layers[node]["seconds"] for node in part)

    def weights(self, part):
        return sum(self.layers[node]["parameter_bytes"] for node in part)

    def made(self, part):
        return sum(self.layers[node]["activation_bytes"] for node in part)

    @lru_cache(maxsize=None)  # noqa: B019
    def crossing(self, cut):
        if not cut or cut == self.all:
            return 0
        if not self.released:
            return self.made({source for source, reader in self.edges if source in cut and reader not in cut})
        last = {node for node in cut if not any(node in self.needs[other] for other in cut)}
        beside = {source for node in last for source, reader in self.edges
                  if source in self.needs[node] and reader != node and reader not in self.needs[node]}
        return self.made(last | beside)

    def memory(self, part, before, in_flight, states):
        weights = self.weights(part)
        return weights * (in_flight + 1 + states) + in_flight * (self.made(part) + self.crossing(before))

    def pipelines(self, start, end, units):
        """All chains of cuts from one to another with how many of the units each stage has."""
        if units == 0:
            return
        yield ((start, end, units),)
        for cut in self.cuts:
            if start < cut < end:
                for last in range(1, units):
                    for first in self.pipelines(start, cut, units - last):
                        yield (*first, (cut, end, last))


def brute_force(profile, levels, cost_model, limit, states):
    """The seconds of the best pipeline, tried one by one; infinite where none fits."""
    network = Network(profile, cost_model == "released")
    devices = math.prod(groups for groups, _ in levels)

    def fits(start, end, earlier, copies):
        in_flight = (devices - 1 - earlier) // copies + 1
        return not limit or network.memory(end - start, start, in_flight, states) <= limit

    def by_levels(levels, start, end, earlier, copies):
        """Of groups of groups ..., where this many devices come before and all is replicated."""
        if not levels:
            return network.seconds(end - start) if fits(start, end, earlier, copies) else math.inf
        (count, bandwidth), inner = levels[0], levels[1:]
        size = math.prod(groups for groups, _ in inner)
        best = math.inf
        for stages in network.pipelines(start, end, count):
            worst, before = 0, 0
            for number, (cut, to, groups) in enumerate(stages):
                alone = by_levels(inner, cut, to, earlier + copies * before * size, copies * groups)
                exchange = 4 * (groups - 1) * network.weights(to - cut) / (groups * bandwidth)
                if cost_model == "released":
                    times = [(alone + exchange / (size if number == 0 else 1)) / groups]
                    if number > 0:
                        times += [2 * network.crossing(at) / (bandwidth * groups) for at in (cut, to)]
                else:
                    times = [max(alone, exchange) / groups]
                    if number > 0:
                        times.append(2 * network.crossing(cut) / bandwidth)
                worst = max(worst, *times)
                before += groups
            best = min(best, worst)
        return best

    def group(level, device):
        return device // math.prod(groups for groups, _ in levels[level + 1:])

    def link(first, last):
        """The slowest link between two devices, from the outermost that they do not share inwards."""
        outermost = next(level for level in range(len(levels)) if group(level, first) != group(level, last))
        return min(bandwidth for _, bandwidth in levels[outermost:])

    def exchange(first, count):
        """Rings within each server and between them."""
        total = 0
        for level, (_, bandwidth) in enumerate(levels):
            around = {}
            for device in range(first, first + count):
                around.setdefault(group(level - 1, device) if level else 0, set()).add(group(level, device))
            most = max(len(parts) for parts in around.values())
            total += 4 * (most - 1) / (most * bandwidth)
        return total

    def across_servers():
        best = math.inf
        for stages in network.pipelines(frozenset(), network.all, devices):
            worst, device, before = 0, 0, 0
            for cut, to, replicas in stages:
                if not fits(cut, to, device, replicas):
                    worst = math.inf
                time = max(network.seconds(to - cut), network.weights(to - cut) * exchange(device, replicas))
                worst = max(worst, time / replicas)
                if cut:
                    rate = link(device - before, device + replicas - 1) * min(before, replicas)
                    worst = max(worst, 2 * network.crossing(cut) / rate)
                device, before = device + replicas, replicas
            best = min(best, worst)
        return best

    if cost_model == "overlap":
        return across_servers()
    if cost_model == "v1":
        levels = [(devices, min(bandwidth for _, bandwidth in levels))]
    return by_levels(levels, frozenset(), network.all, 0, 1)


@pytest.mark.parametrize("cost_model", COST_MODELS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_pipeline_of_a_small_network_is_faster(cost_model, data):
    profile = data.draw(networks(cost_model == "released"))
    groups = data.draw(st.sampled_from([[1], [2], [4], [2, 2], [3, 1], [2, 3], [3, 2], [2, 2, 2]]))
    levels = [(count, float(data.draw(st.integers(1, 40)))) for count in groups]
    limit, states = data.draw(st.sampled_from([0, 0, 40, 80, 150])), data.draw(st.integers(0, 2))
    best = brute_force(profile, levels, cost_model, limit, states)
    options = {"cost_model": cost_model, "optimizer_states": states, **({"memory_limit": limit} if limit else {})}
    if best == math.inf:
        with pytest.raises(core.PlanError, match="fits into the memory limit"):
            planned(profile, levels, **options)
        return
    found = planned(profile, levels, **options)
    assert found["seconds"] == pytest.approx(best, rel=1e-9, abs=1e-12)
    check_consistent_small(found, profile, limit)


def check_consistent_small(found, profile, limit):
    check_consistent({**found, "stages": [{**stage, "memory": {**stage["memory"]}} for stage in found["stages"]]},
                     profile)
    assert not limit or all(stage["memory"]["total"] <= limit for stage in found["stages"])


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_recurrence_of_v1_on_chains(data):
    """arXiv 1806.03377, written down as it stands there."""
    count, machines = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 6))
    numbers = st.lists(st.integers(0, 30), min_size=count, max_size=count)
    times, activations, weights = data.draw(numbers), data.draw(numbers), data.draw(numbers)
    bandwidth = data.draw(st.integers(1, 10))

    def stage(i, j, m):
        exchanged = sum(4 * (m - 1) * weights[layer] / (m * bandwidth) for layer in range(i, j + 1))
        return max(sum(times[i:j + 1]), exchanged) / m

    @lru_cache(maxsize=None)
    def best(j, m):
        values = [stage(0, j, m)]
        values += [max(best(i, m - last), 2 * activations[i] / bandwidth, stage(i + 1, j, last))
                   for i in range(j) for last in range(1, m)]
        return min(values)

    profile = {"layers": [{"name": str(i), "seconds": times[i], "activation_bytes": activations[i],
                           "parameter_bytes": weights[i]} for i in range(count)],
               "edges": [[i, i + 1] for i in range(count - 1)]}
    found = planned(profile, [(machines, float(bandwidth))], cost_model="v1")
    assert found["seconds"] == pytest.approx(best(count - 1, machines))
    assert planned(profile, [(machines, float(bandwidth))], cost_model="sosp")["seconds"] == found["seconds"]


def branched(blocks, branches, length):
    """Blocks of parallel chains, between single layers."""
    layers, edges = [], []

    def add(seconds, size, *sources):
        layers.append({"name": f"l{len(layers)}", "seconds": seconds, "activation_bytes": size,
                       "parameter_bytes": size})
        edges.extend([source, len(layers) - 1] for source in sources)
        return len(layers) - 1

    last = add(1.0, 8.0)
    for _ in range(blocks):
        ends = []
        for branch in range(branches):
            end = last
            for step in range(length):
                end = add(1.0 + (7 * branch + 3 * step) % 5 / 10, 4.0, end)
            ends.append(end)
        last = add(1.0, 8.0, *ends)
    return {"layers": layers, "edges": edges}


@pytest.mark.parametrize("cost_model", COST_MODELS)
def test_branches_have_few_cuts(cost_model):
    """Six blocks of six branches of six layers have 700,000 cuts."""
    profile = branched(6, 6, 6)
    found = planned(profile, [(2, 20.0), (8, 100.0)], cost_model=cost_model)
    assert not found["all_cuts"] and found["cuts"] <= 2002
    check_consistent(found, profile)
    assert found["seconds"] < 1.25 * found["lower_bound"] or cost_model != "overlap"


@pytest.mark.parametrize("cost_model", COST_MODELS)
def test_thousands_of_layers(cost_model):
    layers = [{"name": str(i), "seconds": 1e-3 * (1 + i % 3), "activation_bytes": 100.0 * (1 + i % 7),
               "parameter_bytes": 10.0 * (i % 5)} for i in range(5000)]
    profile = {"layers": layers, "edges": [[i, i + 1] for i in range(4999)]}
    found = planned(profile, [(2, 2e4), (4, 1e5)], cost_model=cost_model)
    assert not found["all_cuts"] and found["cuts"] <= 2002
    check_consistent(found, profile)
    assert found["seconds"] < 1.02 * found["lower_bound"] or cost_model == "sosp"


def test_unequal_servers():
    profile = shipped("vgg16")
    levels = [{"groups": [3, 5], "bandwidth": 1e9}, {"bandwidth": 1e10}]
    found = core.stages(profile, {"levels": levels})
    check_consistent(found, profile)
    flat = core.stages(profile, {"levels": [{"groups": 8, "bandwidth": 1e9}]})
    assert found["seconds"] <= flat["seconds"]
    with pytest.raises(core.PlanError, match="unequal numbers of devices, which are not planned level by level"):
        core.stages(profile, {"levels": levels, "cost_model": "sosp"})


def test_the_example_of_the_interface():
    text = (ROOT / "docs" / "interface.md").read_text()
    text = text[text.index("## SoybeanStages"):]
    profile, options, expected = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL))
    found = core.stages(profile, options)
    assert found.keys() == expected.keys()
    for member in ("stages", "groups", "boundary_seconds", "seconds", "cuts", "all_cuts", "devices"):
        assert found[member] == expected[member], member
    for member in ("lower_bound", "one_device_seconds", "data_parallel_seconds", "overlapped_data_parallel_seconds"):
        assert found[member] == pytest.approx(expected[member])


def test_three_levels_equal_two_where_the_third_is_of_one():
    profile = shipped("gnmt")
    for cost_model in COST_MODELS:
        two = planned(profile, [(2, 1e9), (4, 1e10)], cost_model=cost_model)
        three = planned(profile, [(2, 1e9), (1, 5e9), (4, 1e10)], cost_model=cost_model)
        assert three["seconds"] == pytest.approx(two["seconds"])


@pytest.mark.parametrize("options, message", [
    ({"cost_model": "best"}, "'released', 'v1', 'sosp' or 'overlap' are possible"),
    ({"levels": []}, "0 levels"),
    ({"levels": [{"groups": 0, "bandwidth": 1}]}, "1 to 1024 are possible"),
    ({"levels": [{"groups": 40, "bandwidth": 1}] * 2}, "1600 devices: at most 1024"),
    ({"levels": [{"groups": 4, "bandwidth": -1}]}, "bandwidth of level 0"),
    ({"levels": [{"groups": [2, 3], "bandwidth": 1}]}, "unequal servers have two levels"),
    ({"memory_limit": -1}, "memory_limit is not positive"),
    ({"memory_limit": 10}, "fits into the memory limit of 10 bytes"),
    ({"optimizer_states": -1}, "0 to 100"),
])
def test_options_that_cannot_be(options, message):
    with pytest.raises(core.PlanError, match=message):
        core.stages(shipped("alexnet"), {"levels": [{"groups": 4, "bandwidth": 1e9}], **options})


@pytest.mark.parametrize("change, message", [
    ({"layers": []}, "no layers"), ({"edges": [[0, 9]]}, "names layer 9: there are 2"),
    ({"edges": [[0, 1], [1, 0]]}, "layer 'a' needs its own output"), ({"edges": [[0]]}, "not two ends"),
    ({"layers": [{"name": "a", "seconds": -1, "activation_bytes": 0, "parameter_bytes": 0}], "edges": []},
     "seconds of layer 'a'"),
    ({"layers": [{"name": "a", "seconds": 1e20, "activation_bytes": 0, "parameter_bytes": 0}], "edges": []},
     "at most 1e15 s")])
def test_profiles_that_cannot_be(change, message):
    layer = {"seconds": 1.0, "activation_bytes": 1, "parameter_bytes": 1}
    profile = {"layers": [{"name": "a", **layer}, {"name": "b", **layer}], "edges": [[0, 1]], **change}
    with pytest.raises(core.PlanError, match=message):
        planned(profile, [(2, 1.0)])
