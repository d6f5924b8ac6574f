"""Simulated pipelines against formulas, the other models of schedules, and hand-computed transfers."""
from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soybean_mx.model_loading import load
from soybean_mx.pipeline import combined, timeline
from soybean_mx.pipeline import profile as profiles
from soybean_mx.pipeline.schedule import BACKWARD, FORWARD, bubble, operations, simulated_bubble, warm_up_forwards
from soybean_mx.pipeline.stages_command import device_levels, plan
from soybean_mx.simulation.pipelines import (
    PipelineError,
    StageWork,
    profiled_stages,
    simulate_pipeline,
    tiled_stages,
)
from soybean_mx.simulation.steps import COPY, UPDATE
from soybean_mx.topology import Device, Level, Topology, named

MOST = 8
FREE = Topology("free", Device(1e9, 1e9, 1e9), (Level("link", MOST, 1.0, 0.0),))
TIMES = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.25])


def stages(forward, backward, replicas=None, sent=0, weights=0, update=0.0, held=0, alive=1):
    """Stages in a chain, each of which sends to the next."""
    count = len(forward)
    return [StageWork(f"stage {number}", forward[number], backward[number], update,
                      {number + 1: sent} if number + 1 < count else {}, (weights,), (held,), (alive,),
                      1 if replicas is None else replicas[number]) for number in range(count)]


@pytest.mark.parametrize("schedule", ["gpipe", "flush"])
@pytest.mark.parametrize("count, microbatches", [(2, 4), (4, 8), (3, 1)])
def test_equal_stages_idle_as_long_as_the_formula_says(schedule, count, microbatches):
    found = simulate_pipeline(stages([1.0] * count, [2.0] * count), schedule, microbatches, FREE)
    assert found.seconds == pytest.approx(3 * (microbatches + count - 1))
    assert 1 - 3 * microbatches / found.seconds == pytest.approx(bubble(schedule, count, microbatches))
    assert found.transfer_free_seconds == found.seconds


@settings(max_examples=25, deadline=None)
@given(data=st.data(), schedule=st.sampled_from(["gpipe", "flush"]))
def test_unequal_stages_idle_as_the_schedule_says(data, schedule):
    count, microbatches = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 6))
    forward, backward = ([data.draw(TIMES) for _ in range(count)] for _ in range(2))
    found = simulate_pipeline(stages(forward, backward), schedule, microbatches, FREE)
    costs = {(kind, stage): times[stage] for kind, times in ((FORWARD, forward), (BACKWARD, backward))
             for stage in range(count)}
    expected = simulated_bubble(operations(schedule, [1] * count, [microbatches]), count, costs=costs)
    work = microbatches * (sum(forward) + sum(backward))
    assert 1 - work / (count * found.seconds) == pytest.approx(expected)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_pass_is_when_the_other_model_says(data):
    """Without transfers and updates, of one forward, one backward."""
    replicas = [1] * data.draw(st.integers(1, 4))
    forward, backward = ([data.draw(TIMES) for _ in replicas] for _ in range(2))
    found = simulate_pipeline(stages(forward, backward, replicas), "1f1b", 1, FREE)
    ours = sorted((event.begin, event.kind, event.node) for event in found.simulation.events
                  if event.kind in (FORWARD, BACKWARD))
    theirs = sorted((item.begin, item.kind, f"stage {item.device[0]}, microbatch {item.minibatch}")
                    for item in timeline.simulate(replicas, forward, backward, found.batches))
    assert [item[1:] for item in ours] == [item[1:] for item in theirs]
    assert [item[0] for item in ours] == pytest.approx([item[0] for item in theirs])


def test_in_steady_state_the_slowest_stage_sets_the_pace_or_the_way_around():
    assert simulate_pipeline(stages([1, 2, 1], [2, 3, 2]), "1f1b", 1, FREE).seconds == pytest.approx(5)
    slow = Topology("slow", FREE.device, (Level("link", 2, 10.0, 0.0),))
    # Two minibatches are under way, each for 3 seconds in either stage and 5 on either way between them.
    found = simulate_pipeline(stages([1, 1], [2, 2], sent=50), "1f1b", 1, slow)
    assert found.seconds == pytest.approx((3 + 3 + 5 + 5) / 2) and found.transfer_free_seconds == pytest.approx(3)


def test_bytes_and_memory():
    found = simulate_pipeline(stages([1] * 3, [2] * 3, sent=7, weights=100, held=300, alive=10), "1f1b", 1, FREE)
    assert found.link_bytes == {f"link: device {device} {way}": 7 * (2 if device == 1 else 1)
                                for device in range(3) for way in ("in", "out")}
    # 1F1B keeps as many versions and minibatches as the warm-up and one more.
    assert list(found.simulation.peak_bytes[:3]) == [
        300 + 100 * warm_up_forwards([1] * 3, stage) + 10 * (warm_up_forwards([1] * 3, stage) + 1)
        for stage in range(3)]
    flushed = simulate_pipeline(stages([1] * 3, [2] * 3, held=300, alive=10), "gpipe", 5, FREE)
    assert flushed.simulation.peak_bytes[:3] == (350, 350, 350)


def test_replicas_exchange_gradients_and_weights():
    found = simulate_pipeline(stages([2, 1], [4, 2], [2, 1], weights=1000, update=0.25), "1f1b", 1,
                              Topology("fast", FREE.device, (Level("link", 3, 1e6, 0.0),)))
    events = found.simulation.events
    updates = [event for event in events if event.kind == UPDATE]
    assert sum(event.device == 0 for event in updates) == found.batches // 2  # once for both replicas
    assert sum(event.device == 2 for event in updates) == found.batches
    kinds = [event.node for event in events if event.kind == COPY and event.sent == 1000]
    assert kinds.count("stage 0, gradients") == kinds.count("stage 0, weights") == found.batches // 2
    assert found.seconds == pytest.approx(3.25, rel=0.05)  # the second stage's passes and update


def test_stages_of_a_profile_go_at_the_pace_that_the_planner_says():
    """The planner's cost model leaves out latencies and that transfers queue: with fast links they are the same."""
    profile = profiles.shipped("vgg16")
    topology = Topology("fast", Device(1e13, 16e9, 1e15), (Level("link", 4, 1e12, 0.0),))
    found = plan(profile, {"levels": device_levels(None, None, topology)})
    work = profiled_stages(profile, found["stages"], found["config"], topology)
    assert sum(stage.forward_seconds + stage.backward_seconds for stage in work) == pytest.approx(
        sum(layer.seconds for layer in profile.layers))
    assert sum(stage.weight_bytes[0] for stage in work) == pytest.approx(
        sum(layer.parameter_bytes for layer in profile.layers), rel=1e-6)
    simulated = simulate_pipeline(work, "1f1b", 1, topology)
    assert simulated.seconds == pytest.approx(found["stage_ms"] / 1e3, rel=0.1)


def test_tiled_stages_are_what_the_joint_planner_made():
    graph = load("alexnet", 16).graph
    topology = named("2xp2.8xlarge@25Gb/s")
    for item in combined.compare(graph, topology):
        if not 1 < item.group < topology.devices:
            continue
        work = tiled_stages(graph, item.stages, topology, optimizer_states=1)
        assert [stage.group for stage in work] == [item.group] * len(item.stages)
        parameters = sum(sum(stage.weight_bytes) for stage in work)
        assert parameters == sum(4 * math.prod(graph["shapes"][name][0])
                                 for name, variable in graph["variables"].items() if variable["role"] == "parameter")
        found = simulate_pipeline(work, "1f1b", 1, topology)
        assert found.seconds >= max(stage.forward_seconds + stage.backward_seconds for stage in work) * (1 - 1e-9)
        assert found.transfer_free_seconds <= found.seconds * (1 + 1e-9)
        within = sum(stage.plan["bytes"]["total"] for stage in item.stages)
        between = 2 * sum(sent for stage in work for sent in stage.sent.values())
        out = sum(sent for name, sent in found.link_bytes.items() if name.startswith("pcie") and name.endswith("out"))
        assert out == pytest.approx(within + between)


def test_what_cannot_be_simulated_is_refused():
    with pytest.raises(PipelineError, match="schedule is 'interleaved', but 1f1b"):
        simulate_pipeline(stages([1], [1]), "interleaved", 1, FREE)
    with pytest.raises(PipelineError, match="for 9 devices, but the topology 'free' has 8"):
        simulate_pipeline(stages([1] * 9, [1] * 9), "1f1b", 1, FREE)
