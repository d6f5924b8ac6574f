"""Rooflines by hand; times that are measured, written and read again; files that are refused."""
from __future__ import annotations

import json

import mxnet as mx
import pytest

from soybean_mx import core
from soybean_mx.model_loading import load
from soybean_mx.simulation.measurement import measure_times, operators_of_step
from soybean_mx.simulation.operator_times import MeasuredTimes, OperatorSeconds, Roofline, TimesError, read_times
from soybean_mx.simulation.steps import BACKWARD, COPY, FORWARD, SUM, UPDATE, step_of, with_updates
from soybean_mx.topology import Device

DEVICE = Device(1e9, 1e9, 1e6)


def perceptron():
    """Two dense layers."""
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(6, in_units=4, activation="relu"), mx.gluon.nn.Dense(2, in_units=6))
    return net


def step(strategy="data", devices=2):
    loaded = load("tests.simulation.test_operator_times:perceptron", input_shapes=[(8, 4)])
    return step_of(loaded.graph, core.plan(loaded.graph, {"devices": devices, "strategy": strategy}))


def test_the_roofline_of_a_dense_layer():
    """On one device: 2 n k m operations against the traffic of its four tensors, and twice that backward."""
    alone = step(devices=1)
    seconds = dict(zip(((task.kind, task.node) for task in alone.tasks), Roofline(DEVICE).durations(alone)))
    traffic = 4 * (8 * 4 + 6 * 4 + 6 + 8 * 6)
    name, = (task.node for task in alone.tasks if task.kind == FORWARD and task.operations == 2 * 8 * 4 * 6)
    assert seconds[FORWARD, name] == pytest.approx(1e-5 + traffic / 1e6)
    # The input has no gradient: one product for the weight's.
    assert seconds[BACKWARD, name] >= seconds[FORWARD, name]
    fast = Roofline(Device(1e3, 1e9, 1e12), start_seconds=0.0).durations(alone)
    assert fast[alone.tasks.index(next(t for t in alone.tasks if t.node == name))] == pytest.approx(
        2 * 8 * 4 * 6 / 1e3)


def test_measured_times_are_those_of_the_tiles_and_come_back_from_a_file(tmp_path):
    tiled = step()
    operators = operators_of_step(tiled)
    assert {operator.shapes[0] for operator in operators.values() if operator.node["op"] == "FullyConnected"} == {
        (4, 4), (4, 6)}  # half of the batch
    times = measure_times([tiled], [mx.cpu(0), mx.cpu(1)], repeats=1)
    assert len(times.operators) < len(operators)  # what both devices do is measured once
    path = tmp_path / "times.json"
    times.write(str(path))
    again = read_times(str(path))
    assert again.durations(tiled) == times.durations(tiled)
    for task, seconds in zip(tiled.tasks, times.durations(tiled)):
        assert seconds == 0 if task.kind == COPY else seconds >= 0
    with pytest.raises(TimesError, match="leave out .* operators of the step, such as"):
        again.durations(step(strategy="model"))


def test_tasks_take_the_times_of_their_operators():
    tiled = with_updates(step(), 1)
    keys = {operator.key() for operator in operators_of_step(tiled).values()}
    times = MeasuredTimes({key: OperatorSeconds(1.0, 2.0) for key in keys}, 1e3, "here")
    for task, seconds in zip(tiled.tasks, times.durations(tiled)):
        expected = {FORWARD: 1.0, BACKWARD: 2.0 if task.traffic else 0, COPY: 0}.get(task.kind, task.traffic / 1e3)
        assert seconds == pytest.approx(expected, abs=2e-5)
    updates = [task for task in tiled.tasks if task.kind == UPDATE]
    # Each parameter's tiles cover it once; weight and state are read and written, the gradient is read.
    assert sum(task.traffic for task in updates) == 5 * 4 * (6 * 4 + 6 + 2 * 6 + 2)
    assert {SUM, COPY} <= {task.kind for task in tiled.tasks}


@pytest.mark.parametrize("text, said", [
    ("{", "cannot be read"), ("[]", "another form"), ('{"version": 2}', "another form"),
    ('{"version": 1, "operators": [], "memory_bandwidth": -1}', "memory_bandwidth is -1"),
    ('{"version": 1, "operators": [3], "memory_bandwidth": 1}', "operator 0 is 3"),
    ('{"version": 1, "operators": [{"operator": 1, "forward_seconds": "a"}], "memory_bandwidth": 1}',
     "forward_seconds is 'a'"),
    (json.dumps({"version": 1, "memory_bandwidth": 1, "operators": [{"operator": 1, "forward_seconds": 1}]}),
     "backward_seconds is None"),
])
def test_files_that_are_refused(tmp_path, text, said):
    path = tmp_path / "times.json"
    path.write_text(text)
    with pytest.raises(TimesError, match=said):
        read_times(str(path))


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(TimesError, match="cannot be read .* roofline or measured"):
        read_times("nowhere.json")
