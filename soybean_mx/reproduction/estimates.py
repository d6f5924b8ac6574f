"""What a training step takes on a topology that is not there: estimated, never measured.

A plan's step is played in the model of the list schedule (docs/design.md, "Order"), with copy engines: an operator takes
the larger of its operations at the device's peak and its memory traffic, and a copy latency + bytes / bandwidth.

**Data parallelism that overlaps its exchanges** (:func:`overlapped_data_parallelism`) is a baseline of its own, as
frameworks have it today: every device keeps all weights; a layer's gradient is all-reduced as soon as the backward pass
has it, after those before it, while the pass goes on; nothing else waits. All-reduces are as fast as any can be: 2 (p-1)/p
times their size over each device's link, and 2 log2(p) latencies. It is no plan of ours, which gather a layer's weights
one layer ahead in order to keep only a part of them on each device.
"""
from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Dict, Mapping, Tuple

from soybean_mx import core
from soybean_mx.topology import Level, Topology

# Above any machine's; a link that takes no time.
_NO_TIME = 1e30


@dataclass(frozen=True)
class Step:
    """One training step, forward and backward.

    Parameters
    ----------
    seconds : float
        What it takes.
    seconds_without_exchanges : float
        What it would take if nothing that devices exchange took time.
    bytes_moved : int
        Between devices, all together.
    peak_bytes : int
        Of the fullest device.
    """

    seconds: float
    seconds_without_exchanges: float
    bytes_moved: int
    peak_bytes: int

    @property
    def communication_share(self) -> float:
        """The part of the step that devices' exchanges cost, 0 to 1."""
        return 1 - self.seconds_without_exchanges / self.seconds

    def to_json(self) -> Dict[str, Any]:
        """Its figures by name."""
        return {"seconds": self.seconds, "communication_share": self.communication_share,
                "bytes_moved": self.bytes_moved, "peak_bytes": self.peak_bytes}


def planned(graph: Mapping[str, Any], topology: Topology, strategy: str) -> Step:
    """The step of the plan of least predicted time of a strategy.

    Parameters
    ----------
    graph : mapping
        As of docs/interface.md.
    topology : Topology
        Devices and links.
    strategy : str
        As of ``soybean-mx plan --strategy``.

    Raises
    ------
    soybean_mx.core.PlanError
        When the planner refuses the graph.
    """
    found = core.plan(dict(graph), {"devices": topology.devices, "strategy": strategy, "objective": "time",
                                    "topology": topology.to_json()})
    return Step(seconds(graph, found, topology), seconds(graph, found, without_exchanges(topology)),
                found["bytes"]["total"], found["memory"]["peak"])


def seconds(graph: Mapping[str, Any], plan: Mapping[str, Any], topology: Topology) -> float:
    """What a step of a plan takes on a topology of GPUs; every estimate of a plan comes from here."""
    return _lowered(graph, plan, topology)["schedule"]["seconds"]


def without_exchanges(topology: Topology) -> Topology:
    """The same devices with links that take no time."""
    return replace(topology, levels=tuple(Level(level.name, level.groups, _NO_TIME, 0.0) for level in topology.levels))


def overlapped_data_parallelism(graph: Mapping[str, Any], topology: Topology) -> Step:
    """The step of data parallelism that overlaps its all-reduces with the backward pass, as the module says.

    Parameters
    ----------
    graph : mapping
        As of docs/interface.md; each parameter of it is used by one operator.
    topology : Topology
        Devices and one level of links.
    """
    devices, (level,) = topology.devices, topology.levels
    plan = core.plan(dict(graph), {"devices": devices, "strategy": "data", "topology": topology.to_json()})
    timeline = _lowered(graph, plan, topology)["timeline"]
    weights = _parameter_bytes(graph)
    forward = sum(time for name, time in _times(timeline, "forward") if name in weights)
    clock, link = forward, 0.0
    for name, time in _times(timeline, "backward"):
        if name not in weights:  # a part of an exchange
            continue
        clock += time
        if weights[name]:
            all_reduce = 2 * (devices - 1) / devices * weights[name] / level.bandwidth
            link = max(link, clock) + all_reduce + 2 * math.ceil(math.log2(devices)) * level.latency
    return Step(max(clock, link), clock, 2 * (devices - 1) * sum(weights.values()), plan["memory"]["peak"])


def _lowered(graph: Mapping[str, Any], plan: Mapping[str, Any], topology: Topology) -> Dict[str, Any]:
    options = {"topology": topology.to_json(), "copy_engines": True, "timeline": True}
    return core.lower(dict(graph), dict(plan), options)


def _times(timeline: Any, kind: str) -> Tuple[Tuple[str, float], ...]:
    """The operators of a pass on the first device, in their order: each one's name in the serial graph, and seconds."""
    events = sorted((event for event in timeline if event["kind"] == kind and event["device"] == 0),
                    key=lambda event: event["begin"])
    return tuple((event["node"].rpartition("@")[0], event["end"] - event["begin"]) for event in events)


def _parameter_bytes(graph: Mapping[str, Any]) -> Dict[str, int]:
    """Bytes of the parameters of each operator of a graph."""
    nodes = json.loads(graph["symbol"])["nodes"]
    result = {}
    for node in nodes:
        if node["op"] != "null":
            names = [nodes[source[0]]["name"] for source in node["inputs"]]
            result[node["name"]] = sum(math.prod(graph["shapes"][name][0]) * graph["itemsizes"][name][0]
                                       for name in names if graph["variables"].get(name, {}).get("role") == "parameter")
    return result
