"""Pipelined training, simulated: the passes of a schedule's stages as tasks, with what goes from stage to stage.

A stage runs on one device, on several replicas of it, or tiled over a group of devices; then a pass of it is what its
own lowered graph takes (:func:`soybean_mx.simulation.simulator.simulate_step`), on all devices of the group at once.
Each device does its passes in the order of the schedule (:mod:`soybean_mx.pipeline.schedule`). Activations go straight
to every stage that uses them, over the links of the topology, and gradients back. Replicas send their gradients to the
first of them, which updates the weights and sends them back, as :class:`soybean_mx.pipeline.trainer.PipelineTrainer`
does.
"""
from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from soybean_mx.input_errors import InputError
from soybean_mx.pipeline import combined
from soybean_mx.pipeline.profile import Profile
from soybean_mx.pipeline.schedule import (
    BACKWARD,
    FORWARD,
    PER_MINIBATCH,
    SYNCHRONOUS,
    UPDATE,
    Operation,
    operations,
    versions_alive,
    warm_up_forwards,
)
from soybean_mx.simulation import memory_use
from soybean_mx.simulation.engine import Played, play
from soybean_mx.simulation.links import Network
from soybean_mx.simulation.operator_times import Roofline
from soybean_mx.simulation.simulator import LinkUse, Simulation, simulate_step, simulation_of
from soybean_mx.simulation.steps import COPY, Step, Task, step_of, with_updates
from soybean_mx.topology import Topology

# Interleaved schedules have several stages on a device, which the planner does not make.
SCHEDULES = ("1f1b", "1f1b-vertical-sync", "2bw", "flush", "gpipe")


class PipelineError(InputError):
    """A pipeline that cannot be simulated; the message is one sentence for the user."""


@dataclass(frozen=True)
class StageWork:
    """What one stage does with a microbatch.

    Parameters
    ----------
    name : str
        For people.
    forward_seconds, backward_seconds : float
        Of its passes.
    update_seconds : float
        Of the update of its weights.
    sent : mapping of int to int
        Bytes that go to each later stage forward, and as many back.
    weight_bytes : tuple of int
        Of its parameters, on each device of the group.
    held_bytes : tuple of int
        Of its parameters, gradients and optimizer states, on each device of the group.
    pass_bytes : tuple of int
        What each microbatch that is under way holds, on each device of the group.
    replicas : int
        How many there are of it.
    link_bytes : mapping of str to int
        What crosses the links within its group with each microbatch, by their names.
    """

    name: str
    forward_seconds: float
    backward_seconds: float
    update_seconds: float
    sent: Mapping[int, int]
    weight_bytes: Tuple[int, ...]
    held_bytes: Tuple[int, ...]
    pass_bytes: Tuple[int, ...]
    replicas: int = 1
    link_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def group(self) -> int:
        """The devices over which it is tiled."""
        return len(self.weight_bytes)


@dataclass(frozen=True)
class PipelineSimulation:
    """A simulated pipeline. All figures are predictions.

    Parameters
    ----------
    stages : tuple of StageWork
        The stages.
    schedule : str
        The schedule.
    microbatches : int
        Of each batch.
    batches : int
        How many were played.
    seconds : float
        Of a batch: the only one where batches are flushed, else in steady state.
    transfer_free_seconds : float
        The same if copies between stages took no time.
    simulation : Simulation
        The whole run. Its links count what goes between stages, and within the groups of tiled ones.
    """

    stages: Tuple[StageWork, ...]
    schedule: str
    microbatches: int
    batches: int
    seconds: float
    transfer_free_seconds: float
    simulation: Simulation

    @property
    def communication_seconds(self) -> float:
        """By how much a batch takes longer than if copies between stages took no time; 0 where it does not."""
        return max(0.0, self.seconds - self.transfer_free_seconds)

    @property
    def link_bytes(self) -> Dict[str, float]:
        """Bytes by the names of links, in a batch."""
        return {name: sent / self.batches for name, sent in self.simulation.link_bytes.items()}


def simulate_pipeline(stages: Sequence[StageWork], schedule: str, microbatches: int, topology: Topology,
                      copy_engines: Optional[bool] = None) -> PipelineSimulation:
    """Simulate pipelined training.

    Parameters
    ----------
    stages : sequence of StageWork
        The stages, on consecutive devices.
    schedule : str
        One of SCHEDULES.
    microbatches : int
        Of each batch.
    topology : Topology
        Devices and links.
    copy_engines : bool, optional
        Whether devices copy while they compute; as the topology's devices do unless given.

    Raises
    ------
    PipelineError
        When the schedule is unknown, or the topology has too few devices.
    """
    if schedule not in SCHEDULES:
        raise PipelineError(f"The schedule is {schedule!r}, but {', '.join(SCHEDULES)} can be simulated.")
    needed = sum(stage.replicas * stage.group for stage in stages)
    if needed > topology.devices:
        raise PipelineError(f"The stages are for {needed} devices, but the topology {topology.name!r} has "
                            f"{topology.devices}: give one that has as many.")
    engines = topology.device.copy_engines if copy_engines is None else copy_engines
    replicas = [stage.replicas for stage in stages]
    # Enough for each device to have come into its steady state and to be in it for a while.
    batches = 1 if schedule in SYNCHRONOUS else -(-(8 * sum(replicas) + 16) // microbatches)
    order = operations(schedule, replicas, [microbatches] * batches)
    run = _Run(stages, order, schedule, microbatches).build()
    network = Network(topology)
    played = play(run.tasks, run.durations, network, topology.devices, engines)
    free = play(run.tasks, run.durations, network, topology.devices, engines, free_transfers=True)
    peak, curves = _memory(stages, schedule, run, played, topology.devices)
    simulation = simulation_of(run.tasks, played, free, network, topology, engines, peak, peak, curves)
    inner = _inner_links(stages, microbatches * batches)
    links = {link.name: link for link in simulation.links}
    for name, sent in inner.items():
        before = links.get(name, LinkUse(name, 0, 0.0))
        links[name] = replace(before, sent=before.sent + sent)
    simulation = replace(simulation, links=tuple(links[name] for name in sorted(links)))
    return PipelineSimulation(tuple(stages), schedule, microbatches, batches,
                              *(_per_batch(run, item, replicas, batches, microbatches) for item in (played, free)),
                              simulation)


def tiled_stages(graph: Mapping[str, Any], stages: Sequence[combined.CombinedStage], topology: Topology,
                 times: Optional[Any] = None, optimizer_states: int = 0) -> List[StageWork]:
    """The work of the stages that the joint planner made, each tiled over a group of devices (or on one).

    Parameters
    ----------
    graph : mapping
        The network for a microbatch (docs/interface.md).
    stages : sequence of CombinedStage
        As :func:`soybean_mx.pipeline.combined.compare` gives them, for groups of equal size.
    topology : Topology
        Devices and links.
    times : object with ``durations(step)``, optional
        What operators take; the roofline of the topology's device unless given.
    optimizer_states : int
        Tensors that the optimizer keeps for each parameter.
    """
    names = [stage.operators for stage in stages]
    steps = stage_steps(graph, stages, topology)
    result = []
    for number, (step, sent) in enumerate(zip(steps, combined.sent_bytes(graph, names))):
        group = stages[number].plan["devices"]
        first = number * group
        found = simulate_step(step, topology, times)
        forward = max((event.end for event in found.events if event.kind == FORWARD), default=0.0)
        held = memory_use.tile_bytes(step, optimizer_states)[first:first + group]
        fed = [sum(tile.size for tile in step.tiles if tile.role == "input" and tile.device == first + device)
               * (1 + int(number > 0)) for device in range(group)]
        weights = [sum(tile.size for tile in step.tiles if tile.role == "parameter" and tile.device == first + device)
                   for device in range(group)]
        blocks = memory_use.block_bytes(step)[first:first + group]
        result.append(StageWork(
            f"{names[number][0]} .. {names[number][-1]}", forward, found.seconds - forward,
            _update_seconds(step, topology, times, optimizer_states), sent, tuple(weights),
            tuple(one - other for one, other in zip(held, fed)), tuple(a + b for a, b in zip(blocks, fed)), 1,
            found.link_bytes))
    return result


def _update_seconds(step: Step, topology: Topology, times: Optional[Any], optimizer_states: int) -> float:
    """What the updates of a stage take on the device that has most of them to do."""
    updated = with_updates(step, optimizer_states)
    seconds = [0.0] * topology.devices
    for task, duration in zip(updated.tasks, (times or Roofline(topology.device)).durations(updated)):
        if task.kind == UPDATE:
            seconds[task.device] += duration
    return max(seconds)


def stage_steps(graph: Mapping[str, Any], stages: Sequence[combined.CombinedStage], topology: Topology) -> List[Step]:
    """The step of each stage on its own, on the devices that it has in the topology."""
    result = []
    graphs = combined.stage_graphs(graph, [stage.operators for stage in stages])
    first = 0
    for stage, part in zip(stages, graphs):
        step = step_of(part, stage.plan, {"copy_engines": topology.device.copy_engines})
        result.append(_moved(step, first, topology.devices))
        first += step.devices
    return result


def profiled_stages(profile: Profile, stages: Sequence[Sequence[str]], replicas: Sequence[int], topology: Topology,
                    optimizer_states: int = 0) -> List[StageWork]:
    """The work of stages of a profile, each on a device or replicated.

    Parameters
    ----------
    profile : Profile
        The layers with their measured times.
    stages : sequence of sequence of str
        The layers of each, such as ``stages`` of :func:`soybean_mx.pipeline.stages_command.plan`.
    replicas : sequence of int
        The devices of each.
    topology : Topology
        Whose devices update the weights.
    optimizer_states : int
        Tensors that the optimizer keeps for each parameter.
    """
    layers = {layer.name: layer for layer in profile.layers}
    stage_of = {name: number for number, names in enumerate(stages) for name in names}
    data = set(profile.inputs())
    result = []
    for number, (names, count) in enumerate(zip(stages, replicas)):
        own = [layers[name] for name in names]
        sent: Dict[int, int] = {}
        for layer in own:
            if layer.name in data:  # which each stage is fed
                continue
            users = {stage_of[reader] for source, reader in profile.edges if source == layer.name}
            for user in sorted(users - {number}):
                sent[user] = sent.get(user, 0) + int(layer.activation_bytes)
        weights = int(sum(layer.parameter_bytes for layer in own))
        result.append(StageWork(
            f"{names[0]} .. {names[-1]}", sum(layer.forward_seconds for layer in own),
            sum(layer.backward_seconds for layer in own),
            (3 + 2 * optimizer_states) * weights / topology.device.memory_bandwidth, sent, (weights,),
            ((2 + optimizer_states) * weights,), (int(sum(layer.activation_bytes for layer in own)),), count))
    return result


def _moved(step: Step, first: int, devices: int) -> Step:
    """A step on other devices, which begin with another number."""
    tasks = tuple(task._replace(device=task.device + first, to=task.to + first) for task in step.tasks)
    tiles = tuple(replace(tile, device=tile.device + first) for tile in step.tiles)
    return replace(step, devices=devices, tasks=tasks, tiles=tiles)


class _Run:
    """The tasks of a run, which are made one after the other."""

    def __init__(self, stages: Sequence[StageWork], order: Sequence[Operation], schedule: str, microbatches: int):
        self._stages, self._order = stages, order
        self._per_minibatch = schedule in PER_MINIBATCH
        self._first = list(itertools.accumulate([0, *(stage.replicas * stage.group for stage in stages)]))
        self._microbatches = microbatches
        self.tasks: List[Task] = []
        self.durations: List[float] = []
        self.passes: Dict[Tuple[str, int, int], List[int]] = {}  # kind, stage, microbatch -> the group's tasks
        self._arrived: Dict[Tuple[str, int, int], List[int]] = {}  # what waits for a pass, before it is made
        self._since_update: Dict[int, List[int]] = {}
        self._versions: Dict[Tuple[int, int, int], List[int]] = {}  # stage, replica, version -> tasks

    def build(self) -> "_Run":
        """All tasks."""
        for operation in self._order:
            if operation.kind == UPDATE:
                self._update(operation)
            else:
                self._pass(operation)
        return self

    def devices(self, stage: int, replica: int) -> List[int]:
        """The devices of a replica of a stage."""
        group = self._stages[stage].group
        first = self._first[stage] + replica * group
        return list(range(first, first + group))

    def _add(self, task: Task, seconds: float) -> int:
        self.tasks.append(task._replace(position=len(self.tasks)))
        self.durations.append(seconds)
        return len(self.tasks) - 1

    def _work(self, kind: str, name: str, device: int, waits: Sequence[int], seconds: float) -> int:
        inputs = tuple((number, -1) for number in dict.fromkeys(waits))
        return self._add(Task(kind, name, device, device, 0, True, 0.0, 0.0, 0, inputs, (), ()), seconds)

    def _copy(self, name: str, sender: int, receiver: int, sent: int, after: int) -> int:
        return self._add(Task(COPY, name, sender, receiver, 0, False, 0.0, 0.0, sent, ((after, -1),), (), ()), 0.0)

    def _pass(self, operation: Operation) -> None:
        kind, number, microbatch, version = operation
        stage = self._stages[number]
        replica = microbatch % stage.replicas
        name = f"stage {number}, microbatch {microbatch}"
        waits = list(self._arrived.pop((kind, number, microbatch), ()))
        waits += self._versions.get((number, replica, version), ()) if kind == FORWARD else ()
        waits += self.passes[FORWARD, number, microbatch] if kind == BACKWARD else ()
        seconds = stage.forward_seconds if kind == FORWARD else stage.backward_seconds
        made = [self._work(kind, name, device, waits, seconds) for device in self.devices(number, replica)]
        self.passes[kind, number, microbatch] = made
        if kind == FORWARD:
            others = stage.sent.items()
        else:
            others = [(other, item.sent[number]) for other, item in enumerate(self._stages) if number in item.sent]
            self._gather(number, replica, made)
        for other, size in others:
            receivers = self.devices(other, microbatch % self._stages[other].replicas)
            self._arrived.setdefault((kind, other, microbatch), []).extend(
                self._copy(f"{name} to stage {other}", sender, receiver, size // len(receivers), task)
                for (sender, task), receiver in zip(zip(self.devices(number, replica), made), receivers))

    def _gather(self, number: int, replica: int, made: Sequence[int]) -> None:
        """A replica's gradients, on their way to the first one."""
        waiting = self._since_update.setdefault(number, [])
        if replica == 0:
            waiting += made
            return
        stage = self._stages[number]
        pairs = zip(self.devices(number, replica), self.devices(number, 0), stage.weight_bytes, made)
        waiting += [self._copy(f"stage {number}, gradients", sender, receiver, size, task)
                    for sender, receiver, size, task in pairs]

    def _update(self, operation: Operation) -> None:
        _, number, _, version = operation
        stage = self._stages[number]
        waits = self._since_update.pop(number, [])
        first = self.devices(number, 0)
        made = [self._work(UPDATE, f"stage {number}", device, waits, stage.update_seconds) for device in first]
        self._versions[number, 0, version] = made
        for replica in range(1, stage.replicas):
            pairs = zip(first, self.devices(number, replica), stage.weight_bytes, made)
            self._versions[number, replica, version] = [
                self._copy(f"stage {number}, weights", sender, receiver, size, task)
                for sender, receiver, size, task in pairs]


def _per_batch(run: _Run, played: Played, replicas: Sequence[int], batches: int, microbatches: int) -> float:
    """Seconds of a batch: in steady state, from how far apart batches leave the first stage."""
    if batches == 1:
        return played.seconds
    ends = sorted(max(played.ends[task] for task in tasks) for (kind, stage, _), tasks in run.passes.items()
                  if kind == BACKWARD and stage == 0)
    fill = min(2 * sum(replicas), len(ends) // 4)
    window = ends[fill:len(ends) - fill]
    period = microbatches
    # Replicas end at times of their own, in turn, and so do as many minibatches as are under way.
    for count in (*replicas, warm_up_forwards(replicas, 0) + 1):
        period = period * count // math.gcd(period, count)
    span = (len(window) - 1) // period * period or len(window) - 1
    return (window[-1] - window[-1 - span]) / span * microbatches


def _memory(stages: Sequence[StageWork], schedule: str, run: _Run, played: Played, devices: int):
    """The most bytes on each device, and what microbatches under way hold over time."""
    replicas = [stage.replicas for stage in stages]
    changes: List[Dict[float, int]] = [{} for _ in range(devices)]
    fixed = [0] * devices
    for number, stage in enumerate(stages):
        versions = versions_alive(schedule, replicas, number)
        for replica in range(stage.replicas):
            for device, weights, held in zip(run.devices(number, replica), stage.weight_bytes, stage.held_bytes):
                fixed[device] = held + (versions - 1) * weights
    for (kind, number, microbatch), tasks in run.passes.items():
        if kind != FORWARD:
            continue
        ends = run.passes[BACKWARD, number, microbatch]
        for task, last, size in zip(tasks, ends, stages[number].pass_bytes):
            at = changes[run.tasks[task].device]
            at[played.begins[task]] = at.get(played.begins[task], 0) + size
            at[played.ends[last]] = at.get(played.ends[last], 0) - size
    curves = []
    for at in changes:
        held, curve = 0, [memory_use.Change(0.0, 0)]
        for seconds in sorted(at):
            held += at[seconds]
            curve.append(memory_use.Change(seconds, held))
        curves.append(curve)
    return [own + max(change.size for change in curve) for own, curve in zip(fixed, curves)], curves


def _inner_links(stages: Sequence[StageWork], passes: int) -> Dict[str, int]:
    result: Dict[str, int] = {}
    for stage in stages:
        for name, sent in stage.link_bytes.items():
            result[name] = result.get(name, 0) + sent * passes
    return result


__all__ = ["PipelineError", "PipelineSimulation", "SCHEDULES", "StageWork", "profiled_stages",
           "simulate_pipeline", "stage_steps", "tiled_stages"]
