"""What a training step takes on a topology that is not there: estimated, never measured.

The step of a plan is simulated (docs/simulation.md): forward and backward pass, without the optimizer's updates.

**Data parallelism that overlaps its exchanges** (:func:`overlapped_data_parallelism`) is a baseline of its own, as
frameworks have it today: every device keeps all weights; a layer's gradient is all-reduced as soon as the backward
pass has it, after those before it, while the pass goes on; nothing else waits. All-reduces are as fast as any can be:
2 (p-1)/p times their size over each device's link, and 2 log2(p) latencies. It is no plan of ours, which gather a
layer's weights one layer ahead in order to keep only a part of them on each device.
"""
from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Sequence, Tuple

from soybean_mx import core
from soybean_mx.simulation import Simulation, simulate
from soybean_mx.topology import Topology


@dataclass(frozen=True)
class Step:
    """One training step, forward and backward.

    Parameters
    ----------
    seconds : float
        What it takes.
    communication_share : float
        The part of it that would be saved if exchanges took no time, 0 to 1.
    bytes_moved : int
        Between devices, all together.
    """

    seconds: float
    communication_share: float
    bytes_moved: int

    def to_json(self) -> Dict[str, Any]:
        """Its figures by name."""
        return {"seconds": self.seconds, "communication_share": self.communication_share,
                "bytes_moved": self.bytes_moved}


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
    plan, step = _simulated(graph, topology, strategy)
    return Step(step.seconds, step.communication_share, plan["bytes"]["total"])


def overlapped_data_parallelism(graph: Mapping[str, Any], topology: Topology) -> Step:
    """The step of data parallelism that overlaps its all-reduces with the backward pass, as the module says.

    The operators take what they take on the first device in the plan ``data``.

    Parameters
    ----------
    graph : mapping
        As of docs/interface.md; each parameter of it is used by one operator.
    topology : Topology
        Devices and one level of links.

    Raises
    ------
    soybean_mx.core.PlanError
        When the planner refuses the graph.
    """
    devices, (level,) = topology.devices, topology.levels
    _, step = _simulated(graph, topology, "data")
    weights = _parameter_bytes(graph)
    forward = sum(seconds for _, seconds in _of_network(step, "forward", weights))
    backward = [(weights[name], seconds) for name, seconds in _of_network(step, "backward", weights)]
    wire = [2 * (devices - 1) / devices * size / level.bandwidth + 2 * math.ceil(math.log2(devices)) * level.latency
            for size, _ in backward]
    clock, seconds = overlapped(forward, [seconds for _, seconds in backward],
                                [time if size else 0.0 for (size, _), time in zip(backward, wire)])
    return Step(seconds, 1 - clock / seconds, 2 * (devices - 1) * sum(weights.values()))


def overlapped(forward: float, backward: Sequence[float], all_reduces: Sequence[float]) -> Tuple[float, float]:
    """When the backward pass ends, and the step, in seconds.

    Parameters
    ----------
    forward : float
        Seconds of the forward pass.
    backward, all_reduces : sequence of float
        Seconds that each layer takes backward, in that order, and that its gradient's all-reduce takes; 0: it has none.
    """
    clock, link = forward, 0.0
    for seconds, all_reduce in zip(backward, all_reduces):
        clock += seconds
        if all_reduce:
            link = max(link, clock) + all_reduce
    return clock, max(clock, link)


def _simulated(graph: Mapping[str, Any], topology: Topology, strategy: str) -> Tuple[Mapping[str, Any], Simulation]:
    plan = core.plan(dict(graph), {"devices": topology.devices, "strategy": strategy, "objective": "time",
                                   "topology": topology.to_json()})
    return plan, simulate(graph, plan, topology)


def _of_network(step: Simulation, kind: str, names: Mapping[str, Any]) -> Sequence[Tuple[str, float]]:
    """The network's own operators in a pass on the first device, without exchanges: name and seconds, in order."""
    events = [(event.node.rpartition("@")[0], event.end - event.begin) for event in step.events
              if event.kind == kind and event.device == 0]
    return [(name, seconds) for name, seconds in events if name in names]


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
