"""A modelled step as bars that can be drawn: what each device does for each layer, and when."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Tuple

from soybean_mx.explorer.layers import LayerGraph

# What is closer, and what is shorter, than this share of the step is not told apart.
_RESOLUTION = 1 / 1000
_BUCKET = "~bucket"  # small parameters of several layers that travel together
KINDS = ("forward", "backward", "sum", "copy")


@dataclass(frozen=True)
class Bar:
    """What a device does for one layer, without a visible pause; or, where that is short, for several.

    Parameters
    ----------
    device : int
        Whose.
    kind : str
        One of ``KINDS``; a copy is drawn with the device that sends it.
    layer : int
        Position in the graph of layers; -1 for what is of several (small
        parameters that travel together). Of several that are drawn as one, one that takes long.
    begin, end : float
        Seconds from the start of the step.
    busy : float
        Seconds of it in which the device is at it.
    """

    device: int
    kind: str
    layer: int
    begin: float
    end: float
    busy: float


def bars(layers: LayerGraph, events: List[Mapping[str, Any]], seconds: float) -> Tuple[Bar, ...]:
    """Put the events of a step together.

    Parameters
    ----------
    layers : LayerGraph
        What the events' nodes are named after.
    events : list of mapping
        ``timeline`` of a lowered graph (docs/interface.md).
    seconds : float
        How long the step is.

    Returns
    -------
    tuple of Bar
        By device; of one device and kind, in the order of time.
    """
    known: Dict[str, int] = {}
    found: List[Bar] = []
    last: Dict[Tuple[int, str], Bar] = {}
    for event in sorted(events, key=lambda event: event["begin"]):
        name = event["node"].partition("@")[0]
        if name not in known:
            known[name] = _layer(name, layers)
        lane = (event["device"], event["kind"])
        bar = Bar(*lane, known[name], event["begin"], event["end"], event["end"] - event["begin"])
        before = last.get(lane)
        if before is not None and _are_one(before, bar, seconds * _RESOLUTION):
            layer = before.layer if before.busy >= bar.busy else bar.layer
            bar = Bar(*lane, layer, before.begin, max(before.end, bar.end), before.busy + bar.busy)
        elif before is not None:
            found.append(before)
        last[lane] = bar
    return tuple(sorted([*found, *last.values()], key=lambda bar: (bar.device, KINDS.index(bar.kind), bar.begin)))


def _layer(name: str, layers: LayerGraph) -> int:
    """The layer that a node of the lowered graph is for: what it is called after, before ``~`` and a number."""
    if name.endswith(_BUCKET):
        return -1
    while name not in layers.makers and "~" in name:
        name = name.rpartition("~")[0]
    number = layers.layer_of(name)
    return -1 if number is None else number


def _are_one(before: Bar, bar: Bar, resolution: float) -> bool:
    """Whether two bars that follow each other are drawn as one."""
    if bar.begin - before.end >= resolution:
        return False
    return before.layer == bar.layer or bar.end - before.begin < resolution
