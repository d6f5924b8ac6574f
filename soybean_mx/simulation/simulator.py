"""What a training step takes on a topology: the tasks of the lowered graph, played (docs/simulation.md)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from soybean_mx.simulation import memory_use
from soybean_mx.simulation.engine import Played, play
from soybean_mx.simulation.links import Network
from soybean_mx.simulation.memory_use import Change
from soybean_mx.simulation.operator_times import Roofline
from soybean_mx.simulation.steps import COPY, Step, Task, step_of, with_updates
from soybean_mx.topology import Topology


class Event(NamedTuple):
    """When a task runs.

    Attributes
    ----------
    kind, node, device, to
        As of :class:`soybean_mx.simulation.steps.Task`.
    sent : int
        Bytes, of a copy.
    begin, end : float
        Seconds since the step's start.
    links : tuple of str
        The names of the links that a copy crosses.
    """

    kind: str
    node: str
    device: int
    to: int
    sent: int
    begin: float
    end: float
    links: Tuple[str, ...] = ()


@dataclass(frozen=True)
class LinkUse:
    """What crosses one direction of a link in a step.

    Parameters
    ----------
    name : str
        The level, the devices and the direction.
    sent : int
        Bytes.
    busy_seconds : float
        For how long some transfer is under way, latencies included.
    """

    name: str
    sent: int
    busy_seconds: float


@dataclass(frozen=True)
class Simulation:
    """A simulated step. All figures are predictions.

    Parameters
    ----------
    topology : Topology
        What it runs on.
    copy_engines : bool
        Whether devices copy while they compute.
    seconds : float
        What a step takes.
    transfer_free_seconds : float
        What it would take if copies between devices took no time.
    busy_seconds, copying_seconds : tuple of float
        By device: in which it runs operators, and in which it sends (on devices without copy engines it can do one of
        them at a time).
    peak_bytes : tuple of int
        By device: tiles of parameters, gradients, optimizer states and inputs, and the blocks that MXNet's executor
        holds for all other tensors.
    needed_bytes : tuple of int
        By device: the most that is in use at a time.
    alive_bytes : tuple of tuple of Change
        By device: the bytes that are in use beside the tiles, from a time on.
    links : tuple of LinkUse
        All links that something crosses.
    events : tuple of Event
        All tasks, by their begin.
    """

    topology: Topology
    copy_engines: bool
    seconds: float
    transfer_free_seconds: float
    busy_seconds: Tuple[float, ...]
    copying_seconds: Tuple[float, ...]
    peak_bytes: Tuple[int, ...]
    needed_bytes: Tuple[int, ...]
    alive_bytes: Tuple[Tuple[Change, ...], ...]
    links: Tuple[LinkUse, ...]
    events: Tuple[Event, ...]

    @property
    def idle_seconds(self) -> Tuple[float, ...]:
        """By device: in which it runs no operator."""
        return tuple(self.seconds - busy for busy in self.busy_seconds)

    @property
    def link_bytes(self) -> Dict[str, int]:
        """Bytes by the names of links."""
        return {link.name: link.sent for link in self.links}

    @property
    def communication_seconds(self) -> float:
        """By how much a step is longer than if copies took no time; 0 where another order makes it shorter."""
        return max(0.0, self.seconds - self.transfer_free_seconds)

    @property
    def communication_share(self) -> float:
        """The part of the step that :attr:`communication_seconds` is."""
        return self.communication_seconds / self.seconds if self.seconds else 0.0


def simulate(graph: Mapping[str, Any], plan: Mapping[str, Any], topology: Topology, times: Optional[Any] = None,
             copy_engines: Optional[bool] = None, optimizer_states: Optional[int] = None) -> Simulation:
    """Simulate a training step of a plan: forward and backward pass, and the updates if wanted.

    Parameters
    ----------
    graph, plan : dict
        The program, and its plan for as many devices as the topology has (docs/interface.md).
    topology : Topology
        The devices and links.
    times : object with ``durations(step)``, optional
        What tasks take, such as :class:`soybean_mx.simulation.operator_times.Roofline`, which it is unless given.
    copy_engines : bool, optional
        Whether devices copy while they compute; as the topology's devices do unless given.
    optimizer_states : int, optional
        Tensors that the optimizer keeps for each parameter, whose updates are then part of the step. Without it there
        are no updates.

    Raises
    ------
    soybean_mx.core.PlanError
        When the plan does not fit the graph.
    ValueError
        When the topology has fewer devices than the plan.
    """
    engines = topology.device.copy_engines if copy_engines is None else copy_engines
    return simulate_step(step_of(graph, plan, {"copy_engines": engines}), topology, times, engines, optimizer_states)


def simulate_step(step: Step, topology: Topology, times: Optional[Any] = None, copy_engines: Optional[bool] = None,
                  optimizer_states: Optional[int] = None) -> Simulation:
    """As :func:`simulate`, of a step that is known."""
    if topology.devices < step.devices:
        raise ValueError(f"The plan is for {step.devices} devices, but the topology {topology.name!r} has "
                         f"{topology.devices}: give one that has as many.")
    engines = topology.device.copy_engines if copy_engines is None else copy_engines
    if optimizer_states is not None:
        step = with_updates(step, optimizer_states)
    durations = (times or Roofline(topology.device)).durations(step)
    network = Network(topology)
    played = play(step.tasks, durations, network, step.devices, engines)
    free = play(step.tasks, durations, network, step.devices, engines, free_transfers=True)
    alive = memory_use.alive(step, played)
    tiles = memory_use.tile_bytes(step, optimizer_states or 0)
    peak = [held + blocks for held, blocks in zip(tiles, memory_use.block_bytes(step))]
    needed = [held + max(change.size for change in curve) for held, curve in zip(tiles, alive)]
    return simulation_of(step.tasks, played, free, network, topology, engines, peak, needed, alive)


def simulation_of(tasks: Sequence[Task], played: Played, free: Played, network: Network, topology: Topology,
                  copy_engines: bool, peak: Sequence[int], needed: Sequence[int],
                  alive: Sequence[Sequence[Change]]) -> Simulation:
    """What tasks that have been played come to.

    Parameters
    ----------
    tasks : sequence of Task
        The tasks.
    played, free : Played
        When they run, and when they would if copies took no time.
    network : Network
        What they were played on.
    topology, copy_engines
        Of the result.
    peak, needed : sequence of int
        Bytes by device.
    alive : sequence of sequence of Change
        By device.
    """
    busy, copying = [0.0] * len(peak), [0.0] * len(peak)
    for task, begin, end in zip(tasks, *played):
        (copying if task.kind == COPY else busy)[task.device] += end - begin
    return Simulation(topology, copy_engines, played.seconds, free.seconds, tuple(busy), tuple(copying), tuple(peak),
                      tuple(needed), tuple(map(tuple, alive)), _link_uses(tasks, played, network),
                      _events(tasks, played, network))


def _events(tasks: Sequence[Task], played: Played, network: Network) -> Tuple[Event, ...]:
    events = [Event(task.kind, task.node, task.device, task.to, task.sent, begin, end,
                    tuple(link.name for link in network.path(task.device, task.to).links) if task.kind == COPY else ())
              for task, begin, end in zip(tasks, *played)]
    return tuple(sorted(events, key=lambda event: (event.begin, event.end)))


def _link_uses(tasks: Sequence[Task], played: Played, network: Network) -> Tuple[LinkUse, ...]:
    sent: Dict[Any, int] = {}
    spans: Dict[Any, List[Tuple[float, float]]] = {}
    for task, begin, end in zip(tasks, *played):
        if task.kind != COPY:
            continue
        for link in network.path(task.device, task.to).links:
            sent[link] = sent.get(link, 0) + task.sent
            spans.setdefault(link, []).append((begin, end))
    return tuple(LinkUse(link.name, sent[link], _length(spans[link])) for link in sorted(sent))


def _length(spans: Sequence[Tuple[float, float]]) -> float:
    """How long some span is there."""
    total, last = 0.0, 0.0
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, last))
        last = max(last, end)
    return total
