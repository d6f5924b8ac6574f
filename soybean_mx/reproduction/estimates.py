"""What a training step takes on a topology that is not there: estimated, never measured.

The step of a plan is simulated (docs/simulation.md): forward and backward pass, without the optimizer's updates.

Two kinds of data parallelism are baselines beside the planner's own, which gathers a layer's weights one layer ahead in
order to keep only a part of them on each device. In both every device keeps all weights, and a layer's gradient is
exchanged as soon as the backward pass has it, after those before it, while the pass goes on; nothing else waits.

**Overlapped** (:func:`overlapped_data_parallelism`), as good as it can be: an all-reduce takes 2 (p-1)/p times its size
over each device's link, and two latencies.

**MXNet's own** (:func:`mxnet_data_parallelism`), its key-value store ``device``: each parameter has a device, to which
all others send their gradients, and which sends the sum to all. Parameters are dealt out by size, the largest first,
each to the device that has the fewest bytes. Only that device's link counts, in each direction one parameter after the
other, so that this is what the store takes at best.
"""
from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

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


class Passes(NamedTuple):
    """What a device computes in a step of data parallelism.

    Attributes
    ----------
    forward : float
        Seconds of the forward pass.
    backward : list of (tuple of int, float)
        Of each operator, in the order of the backward pass: the bytes of its parameters, and seconds.
    """

    forward: float
    backward: List[Tuple[Tuple[int, ...], float]]

    def exchanged(self, devices: int) -> int:
        """Bytes that cross devices: each gradient from all but one, and its sum to them."""
        return 2 * (devices - 1) * sum(size for sizes, _ in self.backward for size in sizes)


def data_parallel_passes(graph: Mapping[str, Any], topology: Topology) -> Passes:
    """The operators of a network as they run on the first device in the plan ``data``, without exchanges.

    Parameters
    ----------
    graph : mapping
        As of docs/interface.md; each parameter of it is used by one operator.
    topology : Topology
        Devices and links.

    Raises
    ------
    soybean_mx.core.PlanError
        When the planner refuses the graph.
    """
    _, step = _simulated(graph, topology, "data")
    parameters = _parameter_bytes(graph)
    forward = sum(seconds for _, seconds in _of_network(step, "forward", parameters))
    return Passes(forward,
                  [(parameters[name], seconds) for name, seconds in _of_network(step, "backward", parameters)])


def overlapped_data_parallelism(passes: Passes, topology: Topology) -> Step:
    """The step of data parallelism that overlaps its all-reduces with the backward pass, as the module says.

    Parameters
    ----------
    passes : Passes
        What a device computes.
    topology : Topology
        Devices and one level of links.
    """
    devices, (level,) = topology.devices, topology.levels
    all_reduces = [2 * ((devices - 1) / devices * sum(sizes) / level.bandwidth + level.latency) if sizes else 0.0
                   for sizes, _ in passes.backward]
    clock, seconds = overlapped(passes.forward, [time for _, time in passes.backward], all_reduces)
    return Step(seconds, 1 - clock / seconds, passes.exchanged(devices))


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


def mxnet_data_parallelism(passes: Passes, topology: Topology) -> Step:
    """The step of MXNet's own data parallelism, as the module says.

    Parameters
    ----------
    passes, topology
        As of :func:`overlapped_data_parallelism`.
    """
    devices, (level,) = topology.devices, topology.levels
    clock, gradients = passes.forward, []
    for sizes, time in passes.backward:
        clock += time
        gradients += [(clock, size) for size in sizes]
    seconds = max([clock, *through_owners(gradients, devices, level.bandwidth, level.latency)])
    return Step(seconds, 1 - clock / seconds, passes.exchanged(devices))


def through_owners(gradients: Sequence[Tuple[float, int]], devices: int, bandwidth: float,
                   latency: float) -> List[float]:
    """When each gradient's sum is everywhere, in seconds.

    Parameters
    ----------
    gradients : sequence of (float, int)
        When each is there, in that order, and its bytes.
    devices : int
        How many have one.
    bandwidth, latency : float
        Of a device's link in each direction, in bytes/s and seconds.
    """
    held = [0] * devices
    owner: Dict[int, int] = {}
    for number in sorted(range(len(gradients)), key=lambda number: -gradients[number][1]):
        owner[number] = held.index(min(held))
        held[owner[number]] += gradients[number][1]
    incoming, outgoing = [0.0] * devices, [0.0] * devices
    ends = []
    for number, (ready, size) in enumerate(gradients):
        place, wire = owner[number], (devices - 1) * size / bandwidth + latency
        incoming[place] = max(incoming[place], ready) + wire
        outgoing[place] = max(outgoing[place], incoming[place]) + wire
        ends.append(outgoing[place])
    return ends


def _simulated(graph: Mapping[str, Any], topology: Topology, strategy: str) -> Tuple[Mapping[str, Any], Simulation]:
    plan = core.plan(dict(graph), {"devices": topology.devices, "strategy": strategy, "objective": "time",
                                   "topology": topology.to_json()})
    return plan, simulate(graph, plan, topology)


def _of_network(step: Simulation, kind: str, names: Mapping[str, Any]) -> Sequence[Tuple[str, float]]:
    """The network's own operators in a pass on the first device, without exchanges: name and seconds, in order."""
    events = [(event.node.rpartition("@")[0], event.end - event.begin) for event in step.events
              if event.kind == kind and event.device == 0]
    return [(name, seconds) for name, seconds in events if name in names]


def _parameter_bytes(graph: Mapping[str, Any]) -> Dict[str, Tuple[int, ...]]:
    """Bytes of each parameter of each operator of a graph."""
    nodes, variables = json.loads(graph["symbol"])["nodes"], graph["variables"]
    result = {}
    for node in nodes:
        if node["op"] != "null":
            names = [nodes[source[0]]["name"] for source in node["inputs"]]
            result[node["name"]] = tuple(math.prod(graph["shapes"][name][0]) * graph["itemsizes"][name][0]
                                         for name in names if variables.get(name, {}).get("role") == "parameter")
    return result
