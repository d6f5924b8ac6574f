"""Chrome traces, for Perfetto or chrome://tracing: of simulated steps, and of real ones with the same rows and names.

Every trace is a process; each device is a row of it, and so is each direction of a link that something crosses, with
more rows for transfers that are under way at a time. An event is named after its operator, and its arguments tell the
node of the lowered graph.
"""
from __future__ import annotations

import json
from collections import defaultdict, deque
from typing import Any, Deque, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from soybean_mx.files import write_text
from soybean_mx.input_errors import InputError
from soybean_mx.simulation.simulator import Simulation
from soybean_mx.simulation.steps import BACKWARD, COPY, FORWARD, SUM, UPDATE, Step, operators_of

TraceEvents = List[Dict[str, Any]]

_MICROSECONDS = 1e6
# How MXNet's profiler names what adds up gradients, and copies between devices.
_SUMS = ("ElementWiseSum", "add_n", "elemwise_add", "_grad_add")
_COPIES = ("CopyCPU2CPU", "CopyGPU2GPU", "CopyCPU2GPU", "CopyGPU2CPU", "_CrossDeviceCopy")


class TraceError(InputError):
    """A trace that cannot be read; the message is one sentence for the user."""


class Ran(NamedTuple):
    """Something that a device ran, as MXNet's profiler tells it; times in seconds."""

    device: str
    name: str
    begin: float
    end: float


def of_simulation(simulation: Simulation, name: str, operators: Optional[Mapping[str, str]] = None,
                  process: int = 1) -> TraceEvents:
    """The events of a simulated step.

    Parameters
    ----------
    simulation : Simulation
        The step.
    name : str
        Of the process.
    operators : mapping of str to str, optional
        The operator of each node of the lowered graph.
    process : int
        The number of the process.
    """
    operators = operators or {}
    devices = len(simulation.busy_seconds)
    lanes = _lanes(simulation)
    numbers = {lane: devices + number for number, lane in enumerate(sorted({lane for each in lanes for lane in each}))}
    rows = [*((device, f"device {device}") for device in range(devices)),
            *((number, link + (f" ({lane + 1})" if lane else "")) for (link, lane), number in numbers.items())]
    out = _process(process, f"simulated: {name}", rows)
    for event, own in zip(simulation.events, lanes):
        item = _event(process, event.device, _title(event.kind, operators.get(event.node, event.node)), event.kind,
                      event.begin, event.end, {"node": event.node})
        if event.kind == COPY:
            item["args"].update(bytes=event.sent, **{"from": event.device, "to": event.to})
            out += [{**item, "tid": numbers[lane]} for lane in own]
            if simulation.copy_engines:
                continue
        out.append(item)
    for device, curve in enumerate(simulation.alive_bytes):
        out += [{"ph": "C", "pid": process, "name": f"device {device}: bytes of tensors",
                 "ts": change.seconds * _MICROSECONDS, "args": {"bytes": change.size}} for change in curve]
    return out


def _lanes(simulation: Simulation) -> List[List[Tuple[str, int]]]:
    """For each event the links that it crosses, each with the first row that no earlier transfer is still on."""
    ends: Dict[str, List[float]] = defaultdict(list)
    found = []
    for event in simulation.events:  # by their begin
        own = []
        for link in event.links:
            rows = ends[link]
            lane = next((number for number, end in enumerate(rows) if end <= event.begin), len(rows))
            rows[lane:lane + 1] = [event.end]
            own.append((link, lane))
        found.append(own)
    return found


def of_run(ran: Sequence[Ran], devices: Sequence[str], name: str, step: Optional[Step] = None,
           process: int = 2) -> TraceEvents:
    """The events of a real run.

    Parameters
    ----------
    ran : sequence of Ran
        As :func:`read_profile` gives them.
    devices : sequence of str
        The contexts, such as ``cpu:0``, in the order of the plan.
    name : str
        Of the process.
    step : Step, optional
        The step that was run, so that events name nodes: operators of one name ran in the order in which they were
        handed over.
    process : int
        The number of the process.
    """
    numbers = {device: number for number, device in enumerate(devices)}
    out = _process(process, f"measured: {name}", [(number, f"device {number}") for number in numbers.values()])
    nodes = _nodes_in_order(step) if step is not None else {}
    for item in ran:
        if item.device not in numbers:
            continue
        device = numbers[item.device]
        kind = _kind(item.name)
        waiting = nodes.get((device, item.name))
        arguments = {"node": waiting.popleft()} if waiting else {}
        out.append(_event(process, device, item.name, kind, item.begin, item.end, arguments))
    return out


def write(path: str, *processes: TraceEvents) -> None:
    """Write a trace of some processes.

    Raises
    ------
    OSError
        When it cannot be written.
    """
    events = [event for process in processes for event in process]
    write_text(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n")


def read(path: str, first_process: int = 2) -> TraceEvents:
    """The events of a trace file, to be written beside others.

    Parameters
    ----------
    path : str
        The file.
    first_process : int
        From where its processes are numbered.

    Raises
    ------
    TraceError
        When it is none.
    """
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError) as error:
        raise TraceError(f"The trace {path!r} cannot be read ({error}): give a file that `soybean-mx run --trace` "
                         "wrote.") from None
    events = value.get("traceEvents") if isinstance(value, dict) else None
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise TraceError(f"The trace {path!r} is no chrome trace: give a file that `soybean-mx run --trace` wrote.")
    numbers: Dict[Any, int] = {}
    return [{**event, "pid": numbers.setdefault(event.get("pid"), first_process + len(numbers))} for event in events]


def read_profile(trace: Mapping[str, Any]) -> List[Ran]:
    """The operators and copies of what ``mx.profiler.dump`` wrote, by their beginning, from 0 on.

    Parameters
    ----------
    trace : mapping
        The parsed file.
    """
    devices = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"]
               if event.get("ph") == "M" and event["name"] == "process_name"}
    open_events: Dict[Tuple[Any, Any, str], List[float]] = {}
    found: List[Ran] = []
    for event in sorted((e for e in trace["traceEvents"] if e.get("ph") in ("B", "E")), key=lambda e: e["ts"]):
        device = devices.get(event["pid"], "")
        # Arrays are freed, and imperative operators are bookkept, on rows of their own.
        if event.get("cat") != "operator" or "/" not in device or event["name"] == "DeleteVariable":
            continue
        key = (event["pid"], event["tid"], event["name"])
        if event["ph"] == "B":
            open_events.setdefault(key, []).append(event["ts"])
        elif open_events.get(key):
            found.append(Ran(device.replace("/", ":"), event["name"], open_events[key].pop(), event["ts"]))
    origin = min((item.begin for item in found), default=0.0)
    return sorted((item._replace(begin=(item.begin - origin) / _MICROSECONDS, end=(item.end - origin) / _MICROSECONDS)
                   for item in found), key=lambda item: item.begin)


def operator_names(step: Step) -> Dict[str, str]:
    """The operator of each node of a step's lowered graph."""
    return {name: node["op"] for name, node in operators_of(step).items() if node["op"] != "null"}


def _nodes_in_order(step: Step) -> Dict[Tuple[int, str], Deque[str]]:
    """For each device and name of an event, the nodes that such events are for, in the order in which they begin."""
    operators = operator_names(step)
    found: Dict[Tuple[int, str], Deque[str]] = defaultdict(deque)
    for task in sorted(step.tasks, key=lambda task: task.position):
        if task.kind in (FORWARD, BACKWARD) and (task.operations or task.traffic):
            found[task.device, _title(task.kind, operators[task.node])].append(task.node)
    return found


def _title(kind: str, operator: str) -> str:
    """The name of an event, as MXNet's profiler has it."""
    if kind == BACKWARD:
        return f"_backward_{operator}"
    return {COPY: _COPIES[0], SUM: _SUMS[0], UPDATE: "update"}.get(kind, operator)


def _kind(name: str) -> str:
    if name in _COPIES or name.startswith("Copy"):
        return COPY
    if name in _SUMS:
        return SUM
    if name.endswith("_update"):
        return UPDATE
    return BACKWARD if name.startswith("_backward_") else FORWARD


def _process(number: int, name: str, rows: Iterable[Tuple[int, str]]) -> TraceEvents:
    out: TraceEvents = [
        {"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": number, "name": "process_sort_index", "args": {"sort_index": number}}]
    for row, title in rows:
        out.append({"ph": "M", "pid": number, "tid": row, "name": "thread_name", "args": {"name": title}})
        out.append({"ph": "M", "pid": number, "tid": row, "name": "thread_sort_index", "args": {"sort_index": row}})
    return out


def _event(process: int, row: int, name: str, kind: str, begin: float, end: float,
           arguments: Dict[str, Any]) -> Dict[str, Any]:
    return {"ph": "X", "pid": process, "tid": row, "name": name, "cat": kind, "ts": begin * _MICROSECONDS,
            "dur": (end - begin) * _MICROSECONDS, "args": arguments}


__all__ = ["Ran", "TraceError", "TraceEvents", "of_run", "of_simulation", "operator_names", "read", "read_profile",
           "write"]
