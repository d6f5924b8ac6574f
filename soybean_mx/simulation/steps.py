"""A training step as tasks: what the lowering says that devices do and send (docs/interface.md, ``step``)."""
from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from soybean_mx import core

FORWARD, BACKWARD, SUM, COPY, UPDATE = "forward", "backward", "sum", "copy", "update"

Made = Tuple[int, int]  # a task, and which of its outputs; -1: none, the task is only waited for


class Task(NamedTuple):
    """Something that a device computes, or sends to another one.

    Attributes
    ----------
    kind : str
        ``forward``, ``backward`` (the gradient of ``node``), ``sum`` (of gradients that come to it), ``copy`` (of what
        it makes, or of a gradient) or ``update`` (of a parameter's tile by the optimizer).
    node : str
        The name of the node of the lowered symbol that it is for.
    device, to : int
        Where it runs; of a copy, who sends and who receives.
    position : int
        When it is handed to the engine, among all others.
    in_turn : bool
        Whether it runs behind the last such task of its device that was handed over, as most operators of MXNet do.
    operations : float
        Floating-point operations.
    traffic : float
        Bytes that it reads from its device's memory and writes to it.
    sent : int
        Bytes that it sends: of a copy.
    inputs : tuple of (int, int)
        The tasks that it waits for, and which output of each it reads.
    kept : tuple of (int, int)
        What it reads of the forward pass besides.
    made : tuple of int
        The bytes of its outputs; 0 for what has a place of its own, such as the gradient of a parameter.
    over : (int, int), optional
        What its outputs may be written over where they are as large.
    same : bool
        Whether they are ``over`` itself, under another shape.
    """

    kind: str
    node: str
    device: int
    to: int
    position: int
    in_turn: bool
    operations: float
    traffic: float
    sent: int
    inputs: Tuple[Made, ...]
    kept: Tuple[Made, ...]
    made: Tuple[int, ...]
    over: Optional[Made] = None
    same: bool = False


@dataclass(frozen=True)
class Tile:
    """A variable of the lowered graph: a device's part of a parameter, a state or an input.

    Parameters
    ----------
    name : str
        Of its node.
    device : int
        Where it lies.
    role : str
        ``parameter``, ``auxiliary`` or ``input``.
    size : int
        Bytes.
    has_gradient : bool
        Whether the program wants its gradient, which has an array of its own.
    """

    name: str
    device: int
    role: str
    size: int
    has_gradient: bool


@dataclass(frozen=True)
class Step:
    """A training step of a lowered graph.

    Parameters
    ----------
    devices : int
        How many there are.
    tasks : tuple of Task
        Numbered from 0: ``inputs``, ``kept`` and ``over`` of each are numbers here.
    gradients : dict of str to int
        The task that completes the gradient of each variable that has one.
    heads : tuple of (int, int)
        What the program gives out.
    tiles : tuple of Tile
        What the devices hold.
    start_seconds : float
        What the engine takes to start an operator, in the core's model.
    lowered : dict
        The lowered graph (docs/interface.md).
    graph : dict
        What was lowered.
    """

    devices: int
    tasks: Tuple[Task, ...]
    gradients: Mapping[str, int]
    heads: Tuple[Made, ...]
    tiles: Tuple[Tile, ...]
    start_seconds: float
    lowered: Mapping[str, Any]
    graph: Mapping[str, Any]


def step_of(graph: Mapping[str, Any], plan: Mapping[str, Any],
            options: Optional[Mapping[str, Any]] = None) -> Step:
    """The step of a plan.

    Parameters
    ----------
    graph, plan : dict
        As of :func:`soybean_mx.core.lower`.
    options : dict, optional
        Options of the lowering.

    Raises
    ------
    soybean_mx.core.PlanError
        When the plan does not fit the graph.
    """
    lowered = core.lower(dict(graph), dict(plan), {**(options or {}), "step": True})
    step = lowered["step"]
    tasks = tuple(_task(item) for item in step["tasks"])
    return Step(plan["devices"], tasks, step["gradients"], tuple((task, output) for task, output in step["heads"]),
                tuple(_tile(item, graph) for item in lowered["variables"]), step["start_seconds"],
                lowered, graph)


def with_updates(step: Step, optimizer_states: int) -> Step:
    """The step with an update of each tile of a parameter, which begins when its gradient is there.

    Parameters
    ----------
    step : Step
        A step without updates.
    optimizer_states : int
        Tensors that the optimizer keeps for each parameter: each is read and written, as the parameter is, and the
        gradient is read.
    """
    last = max((task.position for task in step.tasks), default=0)
    updates = [Task(UPDATE, tile.name, tile.device, tile.device, last + 1 + number, False, 0.0,
                    float((3 + 2 * optimizer_states) * tile.size), 0, ((step.gradients[tile.name], -1),), (), (0,))
               for number, tile in enumerate(step.tiles)
               if tile.role == "parameter" and tile.name in step.gradients]
    return replace(step, tasks=(*step.tasks, *updates))


def _task(item: Dict[str, Any]) -> Task:
    pairs = {name: tuple((task, output) for task, output in item[name]) for name in ("inputs", "kept")}
    over = item.get("over")
    return Task(item["kind"], item["node"], item["device"], item["to"], item["position"], item["in_turn"],
                item["operations"], item["traffic"], item["sent"], pairs["inputs"], pairs["kept"],
                tuple(item["made"]), None if over is None else (over[0], over[1]), item.get("same", False))


def _tile(item: Mapping[str, Any], graph: Mapping[str, Any]) -> Tile:
    size = graph["itemsizes"][item["source"]][0]
    for begin, end in zip(item["begin"], item["end"]):
        size *= end - begin
    variable = graph["variables"][item["source"]]
    return Tile(item["name"], item["device"], variable["role"], size, variable["requires_grad"])


def operators_of(step: Step) -> Dict[str, Dict[str, Any]]:
    """The nodes of the lowered symbol, by name."""
    return {node["name"]: node for node in json.loads(step.lowered["symbol"])["nodes"]}
