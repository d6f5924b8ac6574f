"""Chrome traces of simulated and of real steps, which have the same rows, names and form of events."""
from __future__ import annotations

import json

import pytest

from soybean_mx import core
from soybean_mx.model_loading import load
from soybean_mx.simulation import chrome_trace
from soybean_mx.simulation.chrome_trace import Ran
from soybean_mx.simulation.simulator import simulate_step
from soybean_mx.simulation.steps import BACKWARD, COPY, FORWARD, step_of
from soybean_mx.topology import named


@pytest.fixture(scope="module")
def step():
    loaded = load("tests.simulation.test_operator_times:perceptron", input_shapes=[(8, 4)])
    plan = core.plan(loaded.graph, {"devices": 8, "strategy": "data"})
    return step_of(loaded.graph, plan, {"copy_engines": True})


def rows_of(events):
    return {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}


def test_every_task_has_an_event(step):
    simulation = simulate_step(step, named("p2.8xlarge"))
    events = chrome_trace.of_simulation(simulation, "perceptron", chrome_trace.operator_names(step))
    rows = rows_of(events)
    spans = [event for event in events if event["ph"] == "X"]
    on_devices = [event for event in spans if rows[event["tid"]].startswith("device")]
    on_links = [event for event in spans if rows[event["tid"]].startswith("pcie")]
    copies = [task for task in step.tasks if task.kind == COPY]
    assert len(on_devices) == len(step.tasks) - len(copies) and len(on_links) == 2 * len(copies)
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(simulation.seconds * 1e6)
    assert sum(event["args"]["bytes"] for event in on_links) == 2 * sum(task.sent for task in copies)
    assert {"FullyConnected", "_backward_FullyConnected"} <= {event["name"] for event in on_devices}
    counters = [event for event in events if event["ph"] == "C"]
    assert all(event["args"]["bytes"] >= 0 for event in counters)
    on_cpus = chrome_trace.of_simulation(simulate_step(step, named("p2.8xlarge"), copy_engines=False), "perceptron")
    assert sum(event["ph"] == "X" for event in on_cpus) == len(step.tasks) + 2 * len(copies)


def test_transfers_at_one_time_have_rows_of_their_own(step):
    events = chrome_trace.of_simulation(simulate_step(step, named("pcie-tree")), "perceptron")
    assert any(name == "socket: devices 0-3 out (2)" for name in rows_of(events).values())
    by_row = {}
    for event in events:
        if event["ph"] == "X":
            by_row.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_row.values():
        assert all(before[1] <= after[0] + 1e-6 for before, after in zip(sorted(spans), sorted(spans)[1:]))


def test_a_real_step_has_the_same_rows_and_names(step):
    """A run in which every device does one thing after the other, in the order of the step."""
    operators = chrome_trace.operator_names(step)
    ran, now = [], 0.0
    for task in sorted(step.tasks, key=lambda task: task.position):
        title = {FORWARD: operators[task.node], BACKWARD: f"_backward_{operators[task.node]}"}.get(
            task.kind, "CopyCPU2CPU" if task.kind == COPY else "ElementWiseSum")
        if task.traffic or task.kind == COPY:
            ran.append(Ran(f"cpu:{task.device}", title, now, now + 1e-6))
        now += 1e-6
    ran.append(Ran("cpu:99", "Activation", 0.0, 1.0))
    real = chrome_trace.of_run(ran, [f"cpu:{device}" for device in range(8)], "perceptron", step)
    simulated = chrome_trace.of_simulation(simulate_step(step, named("p2.8xlarge")), "perceptron", operators)
    assert {event["pid"] for event in real}.isdisjoint(event["pid"] for event in simulated)
    assert {row for row in rows_of(simulated).values() if row.startswith("device")} == set(rows_of(real).values())

    def work(events):
        rows = rows_of(events)
        return sorted((rows[event["tid"]], event["name"], event["cat"], event["args"].get("node", ""))
                      for event in events if event["ph"] == "X" and event["cat"] in (FORWARD, BACKWARD)
                      and event["dur"])

    assert work(real) == work(simulated)


def test_traces_are_written_side_by_side(step, tmp_path):
    simulation = simulate_step(step, named("p2.8xlarge"))
    path = tmp_path / "trace.json"
    real = chrome_trace.of_run([Ran("cpu:0", "Activation", 0.0, 1.0)], ["cpu:0"], "perceptron")
    chrome_trace.write(str(path), chrome_trace.of_simulation(simulation, "perceptron"), real)
    names = {event["args"]["name"] for event in chrome_trace.read(str(path)) if event["name"] == "process_name"}
    assert names == {"simulated: perceptron", "measured: perceptron"}


@pytest.mark.parametrize("text, said", [("{", "cannot be read"), ("[]", "no chrome trace"),
                                        ('{"traceEvents": [1]}', "no chrome trace")])
def test_traces_that_are_refused(tmp_path, text, said):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(chrome_trace.TraceError, match=said):
        chrome_trace.read(str(path))


def test_mxnet_s_profile_is_read():
    def both(pid, name, begin, end, category="operator"):
        common = {"pid": pid, "tid": 7, "name": name, "cat": category}
        return [{**common, "ph": "B", "ts": begin}, {**common, "ph": "E", "ts": end}]

    names = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
             for pid, name in ((0, "cpu/0"), (1, "cpu/1"), (2, "Device Storage"))]
    events = [*both(1, "CopyCPU2CPU", 1500, 1750), *both(0, "Activation", 1000, 1500), *both(0, "DeleteVariable", 0, 1),
              *both(2, "alloc", 0, 9), *both(0, "memory", 0, 9, "memory")]
    found = chrome_trace.read_profile(json.loads(json.dumps({"traceEvents": names + events})))
    assert found == [Ran("cpu:0", "Activation", 0.0, 0.0005), Ran("cpu:1", "CopyCPU2CPU", 0.0005, 0.00075)]
