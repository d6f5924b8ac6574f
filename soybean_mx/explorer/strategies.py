"""The plans that a page sets side by side: one of each strategy, with a modelled step where that is not too large."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from soybean_mx import core
from soybean_mx.explorer.layers import LayerGraph
from soybean_mx.explorer.timeline import Bar, bars

# Operators of the program times devices: up to the first, every strategy's step is modelled; up to the second, that of
# the plan which was asked for. At 20,000, that takes about 5 s and 0.5 GB for each.
_MODELLED_ALL, _MODELLED_ONE = 20_000, 40_000


@dataclass(frozen=True)
class Step:
    """A training step in the model of the lowered graph.

    Parameters
    ----------
    seconds : float
        How long it takes.
    idle : tuple of float
        Seconds in which a device computes nothing, by device.
    bars : tuple of Bar
        What the devices do, and when.
    """

    seconds: float
    idle: Tuple[float, ...]
    bars: Tuple[Bar, ...]


@dataclass(frozen=True)
class Strategy:
    """What the planner says to one strategy.

    Parameters
    ----------
    name : str
        The strategy.
    plan : mapping, optional
        As docs/interface.md says, with ``memory_by_device``; None where it is refused.
    step : Step, optional
        None where it is refused, or too large to be modelled.
    error : str, optional
        Why it is refused.
    """

    name: str
    plan: Optional[Mapping[str, Any]]
    step: Optional[Step]
    error: Optional[str]


def modelled(layers: LayerGraph, devices: int, names: Sequence[str], selected: str) -> Tuple[str, ...]:
    """The strategies whose step is small enough to be modelled."""
    size = devices * sum(len(layer.operators) for layer in layers.layers)
    if size <= _MODELLED_ALL:
        return tuple(names)
    return (selected,) if size <= _MODELLED_ONE else ()


def plan_strategies(graph: Mapping[str, Any], layers: LayerGraph, names: Sequence[str], selected: str,
                    search: Callable[[str], Dict[str, Any]], topology: Optional[Mapping[str, Any]],
                    devices: int, progress: Callable[[str], None]) -> Tuple[Strategy, ...]:
    """Plan with each strategy.

    Parameters
    ----------
    graph : mapping
        As docs/interface.md says.
    layers : LayerGraph
        Its layers.
    names : sequence of str
        The strategies.
    selected : str
        The one that was asked for.
    search : callable
        Gives the plan of a strategy, or raises core.PlanError.
    topology : mapping, optional
        The machine of the modelled step; without one, the core's default GPUs.
    devices : int
        How many.
    progress : callable
        Called with each strategy's name before its work.

    Returns
    -------
    tuple of Strategy
        In the order of the names.
    """
    with_step = modelled(layers, devices, names, selected)
    found: List[Strategy] = []
    for name in names:
        progress(name)
        try:
            plan = search(name)
        except core.PlanError as error:
            found.append(Strategy(name, None, None, " ".join(str(error).split())))
            continue
        step = None
        if name in with_step:
            like = next((other for other in found if other.step is not None and _is_same(other.plan, plan)), None)
            step = _step(graph, plan, layers, topology) if like is None else like.step
        found.append(Strategy(name, plan, step, None))
    return tuple(found)


def _is_same(plan: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return plan["tensors"] == other["tensors"] and plan["operators"] == other["operators"]


def _step(graph: Mapping[str, Any], plan: Mapping[str, Any], layers: LayerGraph,
          topology: Optional[Mapping[str, Any]]) -> Step:
    engines = True if topology is None else topology["device"].get("copy_engines", True)
    lowered = core.lower(graph, plan, {"timeline": True, "copy_engines": engines, "topology": topology})
    schedule = lowered["schedule"]
    seconds = schedule["seconds"]
    return Step(seconds, tuple(schedule["idle"]), bars(layers, lowered["timeline"], seconds))
