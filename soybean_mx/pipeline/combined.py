"""Pipelines whose stages are tiled: how many stages, of which operators, each over how many devices, for a topology.

The devices are cut into equal groups of consecutive ones, each within a group of some level of the topology or made of
whole ones, and each group has a stage: one group is tiling alone, one device for each group is a pipeline alone, and
between these are pipelines over the slow levels with tilings in the fast ones. Everything is priced alike: a stage by
the planner of tilings with the links inside its group (the plan of least predicted time), a boundary by the slowest
links that it crosses, 2 (latency + bytes / bandwidth) for what crosses forward and its gradients, a stage's devices
sending it together. In steady state a step of an asynchronous schedule takes as long as the slowest of them.

**Search.** For each size of groups, boundaries come from a dynamic program over cuts of the topological order, with an
estimate for the stages in between: compute on one device over the group's devices, and the communication of the plan
of the whole network on one group. The stages that it chooses are then planned for themselves, and boundaries of the
slowest move by one cut while that makes the pipeline faster. Cuts are those that the fewest bytes cross, at most
:data:`MOST_CUTS` of them. It is no exact search: tests compare it with all pipelines of small networks.
"""
from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from soybean_mx import core
from soybean_mx.input_errors import InputError
from soybean_mx.pipeline.symbol_parts import cut_out
from soybean_mx.topology import Level, Topology

MOST_CUTS = 48
ASYNCHRONOUS, FLUSH = "1f1b", "flush"


class CombinationError(InputError):
    """Options that cannot be used; the message says what to do."""


@dataclass(frozen=True)
class CombinedStage:
    """A stage, and what it costs.

    Parameters
    ----------
    operators : tuple of str
        Its operators' names, in topological order.
    seconds : float
        Forward and backward pass of a microbatch, tiled over the group: ``compute_seconds`` and the communication.
    memory_bytes : float
        Of its fullest device, with all microbatches that it holds at a time and, where passes keep them, older weights.
    boundary_seconds : float
        For what crosses to the next stage; 0 behind the last.
    plan : dict
        The plan of its tiling (docs/interface.md).
    """

    operators: Tuple[str, ...]
    seconds: float
    compute_seconds: float
    memory_bytes: float
    boundary_seconds: float
    plan: Dict[str, Any]


@dataclass(frozen=True)
class Combination:
    """A pipeline of tiled stages.

    Parameters
    ----------
    name : str
        What it is.
    group : int
        The devices of each stage.
    stages : tuple of CombinedStage
        One for each group.
    seconds : float
        For a batch, in steady state.
    fits : bool
        Whether every stage fits into a device's memory.
    """

    name: str
    group: int
    stages: Tuple[CombinedStage, ...]
    seconds: float
    fits: bool


def compare(graph: Mapping[str, Any], topology: Topology, schedule: str = ASYNCHRONOUS, microbatches: int = 1,
            microbatch_graph: Optional[Mapping[str, Any]] = None, optimizer_states: int = 0) -> List[Combination]:
    """Data parallelism, tiling, and the best pipeline of tiled stages of each group size, the fastest first.

    Parameters
    ----------
    graph : mapping
        The network for a whole batch, as the planner takes it (docs/interface.md).
    topology : Topology
        Devices and links.
    schedule : {"1f1b", "flush"}
        Whether weights change after each batch, several of which are under way (1F1B with weight stashing), or a batch
        is cut into microbatches and flushed.
    microbatches : int
        Of a batch that is flushed.
    microbatch_graph : mapping, optional
        The network for one of these.
    optimizer_states : int
        Tensors that the optimizer keeps for each parameter.

    Returns
    -------
    list of Combination
        Those that fit into the devices' memory come before the others.

    Raises
    ------
    CombinationError
        When the options do not fit together.
    soybean_mx.core.PlanError
        When the planner refuses the network.
    """
    if schedule not in (ASYNCHRONOUS, FLUSH):
        raise CombinationError(f"The schedule is {schedule!r}, but {ASYNCHRONOUS} and {FLUSH} are possible here.")
    if microbatches < 1 or (microbatches > 1 and (schedule != FLUSH or microbatch_graph is None)):
        raise CombinationError(f"{microbatches} microbatches were given with the schedule {schedule!r}: give 1, or "
                               "more with the schedule flush.")
    whole = _Network(graph, topology, optimizer_states)
    part = _Network(microbatch_graph, topology, optimizer_states) if microbatches > 1 else whole
    every = topology.devices
    found = [whole.alone("data parallelism", "data", every), whole.alone("tiling", "optimal", every)]
    for group in group_sizes(topology):
        count = every // group
        if 1 < count <= len(part.operators):
            name = "pipeline" if group == 1 else f"pipeline of {count}, each tiled over {group}"
            stages = part.pipeline(count, group, schedule, microbatches)
            if stages:
                slowest = max(max(stage.seconds, stage.boundary_seconds) for stage in stages)
                # The pipeline fills and drains with each batch that is flushed.
                turns = microbatches + count - 1 if schedule == FLUSH else 1
                found.append(_combination(name, group, stages, turns * slowest, topology))
    return sorted(found, key=lambda item: (not item.fits, item.seconds))


def for_block(net: Any, shapes: Sequence[Sequence[int]], topology: Topology, dtype: str = "float32",
              **options: Any) -> List[Combination]:
    """:func:`compare` for a Gluon network, whose operators the stages then name.

    Parameters
    ----------
    net : mxnet.gluon.HybridBlock
        With initialised parameters of known shapes.
    shapes : sequence of sequence of int
        Of each input, for a whole batch.
    topology : Topology
        Devices and links.
    dtype : str
        Of the inputs.
    **options
        ``schedule``, ``microbatches`` and ``optimizer_states`` of :func:`compare`.

    Returns
    -------
    list of Combination
        For ``PipelineTrainer(net, ..., stages=[stage.operators for stage in item.stages], tiled_over=item.group)``.
    """
    parts = options.get("microbatches", 1)
    return compare(block_graph(net, shapes, dtype), topology,
                   microbatch_graph=block_graph(net, shapes, dtype, parts) if parts > 1 else None, **options)


def block_graph(net: Any, shapes: Sequence[Sequence[int]], dtype: str = "float32", parts: int = 1) -> Dict[str, Any]:
    """The graph of a Gluon network (docs/interface.md), for a batch or for one of so many parts of it.

    Parameters
    ----------
    net, shapes, dtype
        As of :func:`for_block`.
    parts : int
        How many microbatches a batch is cut into.
    """
    import mxnet as mx  # what a profile's stages do without

    from soybean_mx.graph import describe

    names = [f"data{index}" for index in range(len(shapes))]
    with mx.name.NameManager():
        outputs = net(*map(mx.sym.var, names))
    symbol = outputs if isinstance(outputs, mx.sym.Symbol) else mx.sym.Group(list(outputs))
    held = net.collect_params()
    used = [name for name in symbol.list_inputs() if name not in names]
    parameters = {name: (held[name].shape, held[name].dtype) for name in used}
    trained = {name for name in used if held[name].grad_req != "null"}
    inputs = {name: ((-(-shape[0] // parts), *shape[1:]), dtype) for name, shape in zip(names, shapes)}
    return describe(symbol, inputs, parameters, trained, True)


def stage_graphs(graph: Mapping[str, Any], stages: Sequence[Sequence[str]]) -> List[Dict[str, Any]]:
    """The graph of each stage on its own, fed with what comes from others.

    Parameters
    ----------
    graph : mapping
        The network, as :func:`compare` takes it.
    stages : sequence of sequence of str
        The operators of each, consecutive in topological order, all of them together.
    """
    network = _Network(graph, None, 0)
    ends = list(itertools.accumulate(len(stage) for stage in stages))
    return [network.stage_graph(begin, end) for begin, end in zip([0, *ends], ends)]


def sent_bytes(graph: Mapping[str, Any], stages: Sequence[Sequence[str]]) -> List[Dict[int, int]]:
    """Bytes that each stage sends to each later one forward: a tensor goes straight to every stage that uses it.

    Parameters
    ----------
    graph, stages
        As of :func:`stage_graphs`.
    """
    nodes = json.loads(graph["symbol"])["nodes"]
    stage_of = {name: number for number, names in enumerate(stages) for name in names}
    sent: List[Dict[int, int]] = [{} for _ in stages]
    counted = set()
    for node in nodes:
        if node["op"] == "null":
            continue
        user = stage_of[node["name"]]
        for source, output, *_ in node["inputs"]:
            made = nodes[source]
            if made["op"] == "null" or stage_of[made["name"]] == user or (source, output, user) in counted:
                continue
            counted.add((source, output, user))
            size = math.prod(graph["shapes"][made["name"]][output]) * graph["itemsizes"][made["name"]][output]
            maker = sent[stage_of[made["name"]]]
            maker[user] = maker.get(user, 0) + size
    return sent


def group_sizes(topology: Topology) -> List[int]:
    """The sizes of equal groups of consecutive devices that no group of links cuts unevenly, the largest first."""
    inner = _extents(topology)
    every = topology.devices
    return [size for size in range(every, 0, -1)
            if every % size == 0 and all(size % extent == 0 or extent % size == 0 for extent in inner)]


def _extents(topology: Topology) -> List[int]:
    """How many devices each level's groups have, the outermost first."""
    result, extent = [], topology.devices
    for level in topology.levels:
        if not isinstance(level.groups, int):
            raise CombinationError(f"The topology {topology.name!r} has hosts of unequal size, which cannot be cut "
                                   "into equal stages: give one whose groups are numbers.")
        extent //= level.groups
        result.append(extent)
    return result


def within(topology: Topology, group: int) -> Dict[str, Any]:
    """The topology of a group of consecutive devices, as the planner takes it.

    Parameters
    ----------
    topology : Topology
        The whole.
    group : int
        One of :func:`group_sizes`.

    Returns
    -------
    dict
        The planner's option ``topology``.
    """
    levels = []
    for level, extent in reversed(list(zip(topology.levels, _extents(topology)))):
        groups = level.groups if group >= extent * level.groups else max(1, group // extent)
        if groups > 1:
            levels.insert(0, replace(level, groups=groups).to_json())
    if not levels:  # one device, which the planner wants a link for
        level = topology.levels[-1]
        levels = [{"name": level.name, "groups": 1, "bandwidth": level.bandwidth, "latency": level.latency}]
    return {**topology.to_json(), "levels": levels}


def boundary_level(topology: Topology, device: int) -> Tuple[Level, int]:
    """The links between a device and the one before it, and how many devices each group of theirs has.

    They are the outermost whose groups the two are in different ones of.
    """
    return next((level, extent) for level, extent in zip(topology.levels, _extents(topology)) if device % extent == 0)


def _combination(name: str, group: int, stages: Sequence[CombinedStage], seconds: float,
                 topology: Topology) -> Combination:
    fits = all(stage.memory_bytes <= topology.device.memory for stage in stages)
    return Combination(name, group, tuple(stages), seconds, fits)


class _Network:
    """A network and what parts of it cost, computed once."""

    def __init__(self, graph: Mapping[str, Any], topology: Optional[Topology], optimizer_states: int):
        self._graph, self._topology, self._optimizer_states = graph, topology, optimizer_states
        self._symbol = json.loads(graph["symbol"])
        self._nodes = self._symbol["nodes"]
        self._indices = [index for index, node in enumerate(self._nodes) if node["op"] != "null"]
        self.operators = [self._nodes[index]["name"] for index in self._indices]
        self._position = {index: position for position, index in enumerate(self._indices)}
        self._last_use = self._last_uses()
        self._planned: Dict[Tuple[int, int, int], Dict[str, Any]] = {}
        self._cuts: Optional[List[int]] = None
        self._computed: Optional[List[float]] = None

    def alone(self, name: str, strategy: str, devices: int) -> Combination:
        """The whole network on all devices, by a strategy of the planner."""
        plan = self._plan(self._graph, devices, strategy)
        stage = CombinedStage(tuple(self.operators), plan["predicted_seconds"]["total"],
                              plan["predicted_seconds"]["compute"], plan["memory"]["peak"], 0.0, plan)
        return _combination(name, devices, [stage], stage.seconds, self._topology)

    def pipeline(self, count: int, group: int, schedule: str, microbatches: int) -> List[CombinedStage]:
        """The stages of the best pipeline that is found; none where there are fewer cuts than stages."""
        cuts = self.cuts()
        if len(cuts) < count + 1:
            return []
        chosen = self._chosen(cuts, count, group)
        chosen = self._moved(cuts, chosen, group)
        result = []
        for stage, (begin, end) in enumerate(zip(chosen, chosen[1:])):
            plan = self._stage_plan(cuts[begin], cuts[end], group)
            memory, held = plan["memory"], min(count - stage, microbatches if schedule == FLUSH else count)
            more = memory["activations"] + memory["inputs"]
            if schedule == ASYNCHRONOUS:
                more += memory["parameters"]
            boundary = self._boundary(cuts[end], group * (stage + 1), group) if stage + 1 < count else 0.0
            predicted = plan["predicted_seconds"]
            result.append(CombinedStage(tuple(self.operators[cuts[begin]:cuts[end]]), predicted["total"],
                                        predicted["compute"], memory["peak"] + (held - 1) * more, boundary, plan))
        return result

    # -- cuts ------------------------------------------------------------------------------------------------------

    def _last_uses(self) -> Dict[Tuple[int, int], int]:
        """The last operator, by position, that uses each tensor of an operator; one more than all for outputs."""
        result: Dict[Tuple[int, int], int] = {}
        for index, position in self._position.items():
            for source, output, *_ in self._nodes[index]["inputs"]:
                if source in self._position:
                    result[source, output] = position
        for source, output, *_ in self._symbol["heads"]:
            if source in self._position:
                result[source, output] = len(self.operators)
        return result

    def _size(self, tensor: Tuple[int, int]) -> int:
        name = self._nodes[tensor[0]]["name"]
        return math.prod(self._graph["shapes"][name][tensor[1]]) * self._graph["itemsizes"][name][tensor[1]]

    def crossing(self, cut: int) -> List[Tuple[int, int]]:
        """The tensors of operators before a cut that others behind it use; of the last cut, the outputs."""
        return [tensor for tensor, last in self._last_use.items() if self._position[tensor[0]] < cut <= last]

    def cuts(self) -> List[int]:
        """Where a stage may end, as numbers of operators before it, in ascending order; the first is 0."""
        if self._cuts is None:
            every = len(self.operators)
            sizes = {cut: sum(map(self._size, self.crossing(cut))) for cut in range(1, every)}
            kept = [cut for cut, size in sizes.items()
                    if size <= min(sizes.get(cut - 1, math.inf), sizes.get(cut + 1, math.inf))]
            if len(kept) < min(MOST_CUTS, every) // 2:
                kept = list(sizes)
            wide = max(1, -(-len(kept) // MOST_CUTS))
            kept = [min(kept[start:start + wide], key=lambda cut: (sizes[cut], cut))
                    for start in range(0, len(kept), wide)]
            self._cuts = [0, *kept, every]
        return self._cuts

    def _boundary(self, cut: int, device: int, group: int) -> float:
        """The seconds for what crosses a cut, behind which a stage begins with a device; devices send together."""
        level, extent = boundary_level(self._topology, device)
        bytes_each = sum(map(self._size, self.crossing(cut))) / min(group, extent)
        return 2 * (level.latency + bytes_each / level.bandwidth)

    # -- boundaries ------------------------------------------------------------------------------------------------

    def _chosen(self, cuts: Sequence[int], count: int, group: int) -> List[int]:
        """Positions in `cuts` where stages end, with the first, by a dynamic program over estimates."""
        before = self._estimates(cuts, group)
        best = [[math.inf] * len(cuts) for _ in range(count + 1)]
        origin = [[0] * len(cuts) for _ in range(count + 1)]
        best[0][0] = 0.0
        for stage in range(1, count + 1):
            for end in range(stage, len(cuts) - (count - stage)):
                boundary = self._boundary(cuts[end], group * stage, group) if stage < count else 0.0
                for begin in range(stage - 1, end):
                    seconds = max(best[stage - 1][begin], before[end] - before[begin], boundary)
                    if seconds < best[stage][end]:
                        best[stage][end], origin[stage][end] = seconds, begin
        chosen = [len(cuts) - 1]
        for stage in range(count, 0, -1):
            chosen.insert(0, origin[stage][chosen[0]])
        return chosen

    def _estimates(self, cuts: Sequence[int], group: int) -> List[float]:
        """For each cut an estimate of the time of all before it on one group."""
        if self._computed is None:
            self._computed = [0.0, *(self._stage_plan(0, cut, 1)["predicted_seconds"]["compute"] for cut in cuts[1:])]
        whole = self._stage_plan(0, len(self.operators), group)
        at = [0.0] * (len(self.operators) + 1)
        position = {name: place for place, name in enumerate(self.operators)}
        for item in whole["conversions"]:
            at[position.get(item.get("user"), 0) + 1] += item["seconds"]
        moved = list(itertools.accumulate(at))
        return [seconds / group + moved[cut] for seconds, cut in zip(self._computed, cuts)]

    def _moved(self, cuts: Sequence[int], chosen: List[int], group: int) -> List[int]:
        """The boundaries, moved by one cut at a time as long as that makes the slowest part faster."""
        seconds = self._slowest(cuts, chosen, group)
        while True:
            tried = []
            for place in range(1, len(chosen) - 1):
                for step in (-1, 1):
                    moved = [*chosen[:place], chosen[place] + step, *chosen[place + 1:]]
                    if moved[place - 1] < moved[place] < moved[place + 1] and \
                            self._at(cuts, chosen, group, place) >= seconds:
                        tried.append((self._slowest(cuts, moved, group), moved))
            if not tried or min(tried)[0] >= seconds:
                return chosen
            seconds, chosen = min(tried)

    def _at(self, cuts: Sequence[int], chosen: Sequence[int], group: int, place: int) -> float:
        """The slowest of a boundary and the stages on its two sides: what moving it can change."""
        return max(self._stage_seconds(cuts[chosen[place - 1]], cuts[chosen[place]], group),
                   self._stage_seconds(cuts[chosen[place]], cuts[chosen[place + 1]], group),
                   self._boundary(cuts[chosen[place]], group * place, group))

    def _slowest(self, cuts: Sequence[int], chosen: Sequence[int], group: int) -> float:
        stages = [self._stage_seconds(cuts[begin], cuts[end], group) for begin, end in zip(chosen, chosen[1:])]
        boundaries = [self._boundary(cuts[end], group * (stage + 1), group) for stage, end in enumerate(chosen[1:-1])]
        return max([*stages, *boundaries])

    # -- stages ----------------------------------------------------------------------------------------------------

    def _stage_seconds(self, begin: int, end: int, group: int) -> float:
        return self._stage_plan(begin, end, group)["predicted_seconds"]["total"]

    def _stage_plan(self, begin: int, end: int, group: int) -> Dict[str, Any]:
        key = begin, end, group
        if key not in self._planned:
            self._planned[key] = self._plan(self.stage_graph(begin, end), group, "optimal")
        return self._planned[key]

    def _plan(self, graph: Mapping[str, Any], devices: int, strategy: str) -> Dict[str, Any]:
        return core.plan(graph, {"devices": devices, "strategy": strategy, "topology": within(self._topology, devices),
                                 "objective": "time", "optimizer_states": self._optimizer_states})

    def stage_graph(self, begin: int, end: int) -> Dict[str, Any]:
        """The graph of the operators from one position to another, fed with what comes from others."""
        part = cut_out(self._nodes, set(self._indices[begin:end]))
        shapes, itemsizes, variables = {}, {}, {}
        for node in part.nodes:
            name = node["name"]
            if name in part.received:
                source, output = part.received[name]
                made = self._nodes[source]["name"]
                shapes[name] = [self._graph["shapes"][made][output]]
                itemsizes[name] = [self._graph["itemsizes"][made][output]]
                variables[name] = {"role": "input", "requires_grad": True}
                continue
            shapes[name], itemsizes[name] = self._graph["shapes"][name], self._graph["itemsizes"][name]
            if node["op"] == "null":
                variables[name] = self._graph["variables"][name]
        heads = [tensor for tensor in self.crossing(end) if tensor[0] in part.places]
        return {**self._graph, "symbol": part.symbol_json(heads, self._symbol["attrs"]), "shapes": shapes,
                "itemsizes": itemsizes, "variables": variables}
