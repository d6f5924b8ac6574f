"""Steps played by hand, drawn ones against what no order goes below, and the core's own model."""
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soybean_mx import core
from soybean_mx.simulation.engine import play
from soybean_mx.simulation.links import Network
from soybean_mx.simulation.operator_times import Roofline
from soybean_mx.simulation.steps import COPY, step_of
from soybean_mx.topology import Device, Level, Topology
from tests.lower.execution import graph_of
from tests.lower.random_plans import draw_case, plan_of
from tests.simulation.task_graphs import HOSTS, PAIR, copy, drawn, operator


def test_a_copy_engine_sends_while_the_device_computes():
    tasks = [operator(0, 0), copy(0, 1, 200, 1, [0]), operator(0, 2, [0]), operator(1, 3, [1])]
    played = play(tasks, [1, 0, 5, 1], Network(PAIR), 2, copy_engines=True)
    assert played.begins == [0, 1, 1, 4] and played.ends == [1, 4, 6, 5]


def test_without_one_the_sender_computes_or_sends():
    tasks = [operator(0, 0), copy(0, 1, 200, 1, [0]), operator(0, 2, [0]), operator(1, 3, [1])]
    played = play(tasks, [1, 0, 5, 1], Network(PAIR), 2, copy_engines=False)
    # The copy is handed over first, and takes 1 + 2 seconds of the sender.
    assert played.begins == [0, 1, 4, 4] and played.ends == [1, 4, 9, 5]


def test_operators_in_turn_wait_for_those_handed_over_before():
    tasks = [operator(0, 0), copy(0, 1, 100, 1, [0]), operator(1, 2, [1], in_turn=True),
             operator(1, 3, in_turn=True), operator(1, 4)]
    played = play(tasks, [1, 0, 1, 1, 1], Network(PAIR), 2, copy_engines=True)
    assert played.begins == [0, 1, 3, 4, 0]


def test_copies_of_one_sender_queue():
    tasks = [copy(0, 1, 100, 0), copy(0, 1, 300, 1)]
    assert play(tasks, [0, 0], Network(PAIR), 2, copy_engines=True).ends == [2, 6]


def test_a_host_s_network_is_shared():
    """One transfer alone is as fast as the bus lets it; two share the network, until one is done."""
    network = Network(HOSTS)
    assert play([copy(0, 2, 160, 0)], [0], network, 4, copy_engines=True).ends == [0.5 + 160 / 80]
    both = play([copy(0, 2, 100, 0), copy(1, 3, 180, 1)], [0, 0], network, 4, copy_engines=True)
    # 50 bytes/s each until 2.5, when the first is done and the other has 80 left, at 80 bytes/s.
    assert both.ends == pytest.approx([2.5, 3.5])


def test_transfers_in_opposite_directions_and_inside_of_a_host_do_not_meet():
    tasks = [copy(0, 2, 160, 0), copy(3, 1, 160, 1), copy(1, 0, 160, 2)]
    assert play(tasks, [0] * 3, Network(HOSTS), 4, copy_engines=True).ends == [2.5, 2.5, 2.0]


def test_transfers_may_be_free():
    tasks = [operator(0, 0), copy(0, 1, 200, 1, [0]), operator(1, 2, [1])]
    assert play(tasks, [1, 0, 2], Network(PAIR), 2, True, free_transfers=True).seconds == 3


def test_what_waits_for_itself_is_refused():
    with pytest.raises(ValueError, match="wait for one another"):
        play([operator(0, 0, [1]), operator(0, 1, [0])], [1, 1], Network(PAIR), 2, True)


@settings(max_examples=150, deadline=None)
@given(case=drawn(4), engines=st.booleans())
def test_never_faster_than_the_longest_chain_or_the_busiest_device(case, engines):
    tasks, durations = case
    network = Network(HOSTS)
    played = play(tasks, durations, network, 4, engines)
    assert played == play(tasks, durations, network, 4, engines)
    chains, work, crossed = [], [0.0] * 4, {}
    for task, seconds in zip(tasks, durations):
        if task.kind == COPY:
            path = network.path(task.device, task.to)
            seconds = path.latency + task.sent / path.bandwidth
            for link in path.shared:
                crossed[link] = crossed.get(link, 0) + task.sent
        chains.append(seconds + max((chains[source] for source, _ in task.inputs), default=0.0))
        if task.kind != COPY or not engines:
            work[task.device] += seconds
    least = max([*chains, *work, *(sent / network.capacity[link] for link, sent in crossed.items())])
    assert played.seconds >= least * (1 - 1e-12)
    for task, begin, end in zip(tasks, *played):
        assert end >= begin and all(played.ends[source] <= begin for source, _ in task.inputs)
    for device in range(4):
        own = sorted((begin, end) for task, begin, end in zip(tasks, *played) if task.device == device
                     and (task.kind != COPY or not engines) and end > begin)
        assert all(before[1] <= after[0] for before, after in zip(own, own[1:]))


@pytest.mark.parametrize("seed", range(12))
def test_the_core_s_own_model(seed):
    """With its durations and links of one's own, every task runs when the core says, to the last bit."""
    case = draw_case(seed)
    graph = graph_of(case.program)
    plan = plan_of(case, graph, core)
    for engines, device, level in ((True, Device(1e13, 1e9, 5e11), (1e10, 1e-5)),
                                   (False, Device(1e11, 1e9, 1e10), (5e9, 2e-5))):
        topology = Topology("default", device, (Level("link", max(2, case.devices), *level),))
        step = step_of(graph, plan, {"copy_engines": engines, "timeline": True})
        played = play(step.tasks, Roofline(device).durations(step), Network(topology), case.devices, engines)
        assert played.seconds == step.lowered["schedule"]["seconds"]
        ours = sorted((task.kind, task.node, task.to, begin, end) for task, begin, end in zip(step.tasks, *played))
        theirs = sorted((event["kind"], event["node"], event["to"], event["begin"], event["end"])
                        for event in step.lowered["timeline"])
        assert ours == theirs
