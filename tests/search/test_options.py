"""What a search may be asked for beside a number of devices: objectives, machines, memory limits, pins, baselines."""
from __future__ import annotations

import re
from typing import Any, Dict, List

import pytest

from soybean_mx import core
from soybean_mx.model_loading import load
from tests.search.programs import ProgramWriter, mlp, residual, small_convnet, two_heads

PROGRAMS = {
    "mlp": mlp(64, [96, 192, 48, 24], bias=True, activation=True),
    "wide": mlp(16, [256, 512, 256]),
    "residual": residual(48, 96),
    "two heads": two_heads(48, 24, 48, 12),
    "convnet": small_convnet(16, 12),
}
BASELINES = ("data", "model", "owt", "megatron", "zero", "spartan", "recursive")


def machine(*levels: Dict[str, Any], flops: float = 1e13) -> Dict[str, Any]:
    """Return a topology; a level is groups, bandwidth and latency."""
    return {"name": "test", "device": {"flops": flops, "memory_bandwidth": flops / 10}, "levels": list(levels)}


def level(groups: Any, bandwidth: float, latency: float = 0.0) -> Dict[str, Any]:
    """Return one level of a topology; without `groups` where they are None."""
    found = {"bandwidth": bandwidth, "latency": latency}
    return found if groups is None else {"groups": groups, **found}


def choices(plan: Dict[str, Any], operator: str) -> List[str]:
    """Return how an operator is cut, without the order of division."""
    return [text.split("/")[0] for text in plan["operators"][operator]]


# ---- memory ------------------------------------------------------------------


@pytest.mark.parametrize("devices", (4, 6, 8))
@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_of_variables_is_that_of_the_lowered_tiles(name, devices):
    graph = PROGRAMS[name]
    plan = core.plan(graph, {"devices": devices, "optimizer_states": 2, "memory_by_device": True})
    held: Dict[str, List[int]] = {role: [0] * devices for role in ("parameter", "input")}
    for tile in core.lower(graph, plan)["variables"]:
        size = 4
        for begin, end in zip(tile["begin"], tile["end"]):
            size *= end - begin
        held[graph["variables"][tile["source"]]["role"]][tile["device"]] += size
    memory = plan["memory"]
    assert memory["parameters"] == max(held["parameter"]) and memory["inputs"] == max(held["input"])
    assert memory["gradients"] == memory["parameters"] and memory["optimizer"] == 2 * memory["parameters"]
    assert memory["peak"] == sum(size for part, size in memory.items() if part != "peak")
    by_device = plan["memory_by_device"]
    assert by_device[0] == memory and max(item["peak"] for item in by_device) == memory["peak"]
    assert [item["parameters"] for item in by_device] == held["parameter"]
    assert [item["inputs"] for item in by_device] == held["input"]


def test_memory_by_device_knows_what_one_device_holds_alone():
    """A product of 8 x 4 by 4 x 6 that the first device computes alone; the result is split by rows for the user."""
    writer = ProgramWriter()
    graph = writer.graph(writer.dense(writer.input("data", 8, 4), "fc", 6, 4))
    plan = core.plan(graph, {"devices": 2, "pins": {"fc": "owner", "fc_weight": "owner"}, "memory_by_device": True})
    first, second = plan["memory_by_device"]
    assert first["parameters"] == first["gradients"] == 4 * 4 * 6 and second["parameters"] == 0
    assert "memory_by_device" not in core.plan(graph, {"devices": 2})


@pytest.mark.parametrize("devices", (4, 8))
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_memory_limit_is_met_or_the_least_that_works_is_named(name, devices):
    graph = PROGRAMS[name]
    free = core.plan(graph, {"devices": devices})
    assert core.plan(graph, {"devices": devices, "memory_limit": free["memory"]["peak"]})["bytes"] == free["bytes"]
    with pytest.raises(core.PlanError, match="the smallest limit that works is") as refusal:
        core.plan(graph, {"devices": devices, "memory_limit": 64})
    least = int(re.search(r"that works is (\d+) bytes", str(refusal.value)).group(1))
    tight = core.plan(graph, {"devices": devices, "memory_limit": least})
    assert tight["memory"]["peak"] <= least
    assert tight["lower_bound"] <= tight["bytes"]["total"] and free["bytes"]["total"] <= tight["bytes"]["total"]
    between = (least + free["memory"]["peak"]) // 2
    assert core.plan(graph, {"devices": devices, "memory_limit": between})["memory"]["peak"] <= between


@pytest.mark.parametrize("strategy", ("recursive", "spartan", "random:1"))
def test_strategies_that_do_not_search_for_less_memory_refuse_what_does_not_fit(strategy):
    options = {"devices": 4, "strategy": strategy}
    peak = core.plan(PROGRAMS["mlp"], options)["memory"]["peak"]
    assert core.plan(PROGRAMS["mlp"], {**options, "memory_limit": peak})["memory"]["peak"] == peak
    with pytest.raises(core.PlanError, match=f"does not fit into {peak - 1} bytes .* it needs {peak};"):
        core.plan(PROGRAMS["mlp"], {**options, "memory_limit": peak - 1})


# ---- time and machines -------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_one_level_without_latency_time_is_bytes(name):
    graph = PROGRAMS[name]
    uniform = machine(level(8, 1e9), flops=1e30)
    plan = core.plan(graph, {"devices": 8, "topology": uniform})
    seconds = plan["predicted_seconds"]
    assert seconds["communication"] == pytest.approx(plan["bytes"]["total"] / 8 / 1e9, rel=1e-6)
    assert seconds["total"] == pytest.approx(seconds["communication"] + seconds["compute"])


@pytest.mark.parametrize("levels", ([level(8, 1e9, 1e-5)], [level(2, 1e8, 1e-4), level(4, 1e10, 1e-6)],
                                    [level(3, 1e8, 1e-4), level(2, 1e10, 1e-6)]))
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_time_objective_takes_no_longer_than_others(name, levels):
    graph, topology = PROGRAMS[name], machine(*levels, flops=1e11)
    devices = 1
    for item in levels:
        devices *= item["groups"]
    options = {"devices": devices, "topology": topology}
    best = core.plan(graph, {**options, "objective": "time"})
    total = best["predicted_seconds"]["total"]
    assert best["lower_bound"] <= total * (1 + 1e-8) and best["objective_value"] == pytest.approx(total)
    for strategy in ("optimal", "data", "model"):
        other = core.plan(graph, {**options, "strategy": strategy})
        assert total <= other["predicted_seconds"]["total"] * (1 + 1e-8), strategy


def test_where_links_are_slow_and_devices_fast_computing_is_not_spread():
    # Parameters are spread over the devices, whose tiles have to come together somewhere; the rest need not move.
    slow = machine(level(8, 1.0, 1.0), flops=1e15)
    options = {"devices": 8, "topology": slow}
    timed = core.plan(PROGRAMS["mlp"], {**options, "objective": "time"})
    plain = core.plan(PROGRAMS["mlp"], options)
    assert timed["predicted_seconds"]["total"] < plain["predicted_seconds"]["total"]
    cut = [text for cuts in timed["operators"].values() for text in cuts]
    assert {"owner", "replicated"} & set(cut) and not {"owner", "replicated"} & set(choices(plain, "fc0"))


def test_slow_links_are_crossed_less_than_fast_ones_by_what_the_search_finds():
    # Two hosts: the same program, planned as if all links were alike, crosses the slow one more.
    graph = mlp(256, [512, 512, 512])
    levels = (level(2, 1e7), level(4, 1e10))
    plain = core.plan(graph, {"devices": 8, "topology": machine(*levels, flops=1e30)})
    timed = core.plan(graph, {"devices": 8, "topology": machine(*levels, flops=1e12), "objective": "time"})
    assert timed["predicted_seconds"]["communication"] <= plain["predicted_seconds"]["communication"]


def test_cuts_follow_the_levels_of_the_machine():
    graph = PROGRAMS["mlp"]
    topology = machine(level(3, 1e9), level(4, 1e10))
    assert core.plan(graph, {"devices": 12, "topology": topology})["cuts"] == [3, 2, 2]
    unequal = machine(level([2, 4], 1e9), level(None, 1e10))
    plan = core.plan(graph, {"devices": 6, "topology": unequal, "objective": "time"})
    assert plan["cuts"] == [2, 3] and plan["predicted_seconds"]["total"] > 0
    assert core.lower(graph, plan)["bytes"]["total"] <= plan["bytes"]["total"]


@pytest.mark.parametrize("topology, message", (
    (machine(level(4, 1e9)), "the topology has 4 devices, but 8 are asked for"),
    (machine(level(8, -1.0)), "bandwidth of level 0 of the topology is -1.0*: it must be positive"),
    (machine(), "the topology has no levels"),
    (machine(level(8, 1e9), flops=0.0), "flops of the topology's device is 0.0*: it must be positive"),
    (machine(level([8], 1e9), level([1], 1e9)), "."),
))
def test_machines_that_cannot_be_are_refused(topology, message):
    with pytest.raises(core.PlanError, match=message):
        core.plan(PROGRAMS["mlp"], {"devices": 8, "topology": topology, "objective": "time"})


def test_the_time_objective_needs_a_machine():
    with pytest.raises(core.PlanError, match="the objective is time: give a topology"):
        core.plan(PROGRAMS["mlp"], {"devices": 4, "objective": "time"})


# ---- baselines and pins ------------------------------------------------------


@pytest.mark.parametrize("devices", (4, 6, 8))
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_baseline_moves_less_than_the_optimum(name, devices):
    best = core.plan(PROGRAMS[name], {"devices": devices})
    assert best["exact"]
    for strategy in BASELINES:
        plan = core.plan(PROGRAMS[name], {"devices": devices, "strategy": strategy})
        assert plan["bytes"]["total"] >= best["bytes"]["total"], strategy
        assert plan["lower_bound_bytes"] <= plan["bytes"]["total"], strategy
        assert core.lower(PROGRAMS[name], plan)["bytes"]["total"] <= plan["bytes"]["total"], strategy


@pytest.mark.parametrize("batch_norm", ("local", "fused"))
@pytest.mark.parametrize("boundary", ("tiled", "whole"))
@pytest.mark.parametrize("strategy", ("optimal", *BASELINES, "random:3"))
def test_states_that_are_changed_in_place_are_where_their_operator_is(strategy, boundary, batch_norm):
    # Fewer samples than devices: the operator is cut along samples and channels, in an order that only it has.
    for batch, channels, devices in ((5, 6, 8), (2, 16, 8), (8, 8, 8), (5, 4, 6), (3, 12, 12), (1, 7, 16)):
        writer = ProgramWriter()
        y = writer.batch_norm(writer.dense(writer.input("x", batch, 24), "fc", channels, 24), "bn", channels)
        plan = core.plan(writer.graph(y), {"devices": devices, "strategy": strategy, "boundary": boundary,
                                           "batch_norm": batch_norm})
        where = plan["operators"]["bn"]
        for state in ("bn_moving_mean", "bn_moving_var"):
            # A state has the one dim that the operator calls channels, and is held by who has it.
            tiling = plan["tensors"][state]
            assert len(tiling) == len(where)
            assert [t.startswith("split 0") for t in tiling] == [w.split("/")[0] == "c" for w in where]


def test_baselines_are_what_they_are_called():
    graph = load("alexnet", batch_size=64).graph
    plans = {name: core.plan(graph, {"devices": 8, "strategy": name}) for name in BASELINES}
    convolutions = [f"alexnet0_conv{i}_fwd" for i in range(5)]
    dense = [f"alexnet0_dense{i}_fwd" for i in range(3)]
    for name in convolutions + dense:
        assert choices(plans["data"], name) == choices(plans["zero"], name) == ["n"] * 3, name
        assert "n" not in choices(plans["model"], name), name
        assert ("n" in choices(plans["owt"], name)) == (name in convolutions), name
    layers = [set(choices(plans["megatron"], name)) for name in convolutions + dense]
    # The first convolution has three channels, too few to be cut; then columns and rows take turns.
    assert layers[5:] == [{"k"}, {"m"}, {"k"}] and layers[3:5] == [{"c"}, {"m"}]


def test_pins_are_obeyed_and_the_rest_is_searched():
    graph = PROGRAMS["mlp"]
    free = core.plan(graph, {"devices": 8})
    pinned = core.plan(graph, {"devices": 8, "pins": {"fc*_weight": "split 1", "fc0": ["n", "m", "n"]}})
    for i in range(3):
        assert {text.split("/")[0] for text in pinned["tensors"][f"fc{i}_weight"]} == {"split 1"}
    assert choices(pinned, "fc0") == ["n", "m", "n"]
    assert pinned["bytes"]["total"] >= free["bytes"]["total"]
    assert core.lower(graph, pinned)["bytes"]["total"] <= pinned["bytes"]["total"]


@pytest.mark.parametrize("pins, message", (
    ({"nothing*": "split 0"}, "pin 'nothing\\*' matches no tensor or operator"),
    ({"fc0_weight": "split 0", "fc?_weight": "split 1"}, "is pinned by 'fc0_weight' and differently by 'fc\\?_weight'"),
    ({"fc0_weight": "replicated"}, "is replicated in the plan: a variable that gets a gradient is held once"),
    ({"fc0_weight": "split 2"}, "is split in the plan on a dim that it does not have"),
    ({"fc0": "q"}, "is cut by 'q': n, m, k, replicated or owner are possible"),
    ({"fc0": ["n"]}, "has 1 choices for 3 cuts"),
))
def test_pins_that_cannot_be_are_refused(pins, message):
    with pytest.raises(core.PlanError, match=message):
        core.plan(PROGRAMS["mlp"], {"devices": 8, "pins": pins})


# ---- many devices ------------------------------------------------------------


@pytest.mark.parametrize("devices", (16, 24, 32))
@pytest.mark.parametrize("name", ("mlp", "wide", "residual"))
def test_plans_for_many_devices_are_lowered_as_they_say(name, devices):
    plan = core.plan(PROGRAMS[name], {"devices": devices})
    lowered = core.lower(PROGRAMS[name], plan)["bytes"]
    assert lowered["total"] == plan["bytes"]["total"] >= plan["lower_bound_bytes"]


def test_a_thousand_devices():
    for name in ("alexnet", "resnet18_v1", "mobilenet0.25"):
        plan = core.plan(load(name, batch_size=32 * 1024).graph, {"devices": 1024})
        assert plan["lower_bound_bytes"] <= plan["bytes"]["total"] and plan["gap"] < 0.01, name
        assert plan["cuts"] == [2] * 10


def test_where_choices_are_too_many_the_plan_says_so():
    graph = load("alexnet", batch_size=64).graph
    plan = core.plan(graph, {"devices": 512, "spatial": "yes"})
    assert plan["limited"] and not plan["exact"] and plan["spatial"]
    assert not core.plan(graph, {"devices": 8, "spatial": "yes"})["limited"]


def test_images_are_cut_where_the_batch_is_short():
    graph = load("resnet18_v1", batch_size=2).graph
    whole, cut = (core.plan(graph, {"devices": 8, "spatial": s}) for s in ("no", "auto"))
    assert cut["spatial"] and not whole["spatial"]
    assert cut["bytes"]["total"] < whole["bytes"]["total"] and cut["bytes"]["halo"] > 0 == whole["bytes"]["halo"]
