"""A plan as a Graphviz graph: layers with their cuts, tensors with their tilings, conversions with their bytes."""
from __future__ import annotations

from collections import defaultdict
from typing import Any, DefaultDict, List, Mapping, Optional, Sequence, Tuple

from graphviz import Digraph

from soybean_mx.explorer.layers import Layer, LayerGraph, Tensor
from soybean_mx.explorer.page_data import places, short_names
from soybean_mx.plan_report import counted, size

_MOVED = "#c2410c"
_WIDEST = 8.0  # points, of the line of what moves most
_INDENT = "  "

Conversions = Mapping[Tuple[int, int], Sequence[Mapping[str, Any]]]


def dot_text(title: str, layers: LayerGraph, plan: Mapping[str, Any]) -> str:
    """The text of a graph for Graphviz.

    Parameters
    ----------
    title : str
        What stands above it.
    layers : LayerGraph
        The network.
    plan : mapping
        As docs/interface.md says.

    Returns
    -------
    str
        A box for each layer: its operators, how its first one is cut, and how its result is tiled; an ellipse for each
        parameter; an edge for what passes. What moves bytes is red, labelled with them, and the wider the more.
    """
    labels = short_names([layer.name for layer in layers.layers])
    conversions = _by_place(layers, plan)
    most = max((_bytes(items) for items in conversions.values()), default=0)
    graph = Digraph(graph_attr={"label": title, "labelloc": "t", "rankdir": "TB", "fontname": "sans-serif"},
                    node_attr={"shape": "box", "style": "rounded", "fontname": "sans-serif", "fontsize": "10"},
                    edge_attr={"fontname": "sans-serif", "fontsize": "9", "color": "#8a94a3", "arrowsize": "0.6"})
    for number, (layer, label) in enumerate(zip(layers.layers, labels)):
        graph.node(f"layer{number}", _words(layer, label, layers, plan))
        for name in layer.parameters:
            tensor = layers.tensors[name]
            if tensor.role == "parameter":
                _parameter(graph, number, tensor, plan, conversions[number, number], most)
        inner = [item for item in conversions[number, number] if not _is_parameter(item, layers)]
        if _bytes(inner):
            graph.edge(f"layer{number}", f"layer{number}", **_moved(inner, plan["cuts"], most))
    for source, target in dict.fromkeys(edge[:2] for edge in layers.edges):
        carried = [name for origin, reader, name in layers.edges if (origin, reader) == (source, target)]
        items = conversions[source, target]
        attributes = _moved(items, plan["cuts"], most) if _bytes(items) else {
            "label": "\\n".join(_tiling(name, plan) for name in carried)}
        graph.edge(f"layer{source}", f"layer{target}", **attributes)
    return graph.source if graph.source.endswith("\n") else graph.source + "\n"


def _by_place(layers: LayerGraph, plan: Mapping[str, Any]) -> DefaultDict[Tuple[int, int], List[Mapping[str, Any]]]:
    found: DefaultDict[Tuple[int, int], List[Mapping[str, Any]]] = defaultdict(list)
    for item in plan["conversions"]:
        found[places(item, layers)].append(item)
    return found


def _bytes(items: Sequence[Mapping[str, Any]]) -> int:
    return sum(item["bytes"] for item in items)


def _is_parameter(item: Mapping[str, Any], layers: LayerGraph) -> bool:
    tensor = layers.tensors.get(item["tensor"])
    return tensor is not None and tensor.role == "parameter"


def _tiling(name: str, plan: Mapping[str, Any]) -> str:
    choices: Optional[Sequence[str]] = plan["tensors"].get(name)
    return "" if choices is None else counted(plan["cuts"], choices)


def _words(layer: Layer, label: str, layers: LayerGraph, plan: Mapping[str, Any]) -> str:
    lines = [label]
    if layer.kind == "input":
        lines += [_shape(layers.tensors[layer.name]), _tiling(layer.name, plan)]
    if layer.operators:
        lines.append(", ".join(dict.fromkeys(operator.operator for operator in layer.operators
                                             if operator.name == operator.origin)))
        cut = plan["operators"].get(layer.main.name)
        lines.append("" if cut is None else f"cut {counted(plan['cuts'], cut)}")
    return "\\n".join(line for line in lines if line)


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _parameter(graph: Digraph, number: int, tensor: Tensor, plan: Mapping[str, Any],
               items: Sequence[Mapping[str, Any]], most: int) -> None:
    own = [item for item in items if item["tensor"] == tensor.name]
    name = f"layer{number}:{tensor.name}".replace(":", " ")  # a colon would be a port
    graph.node(name, f"{tensor.name}\\n{_shape(tensor)}\\n{_tiling(tensor.name, plan)}", shape="ellipse", style="")
    attributes = _moved(own, plan["cuts"], most) if _bytes(own) else {}
    graph.edge(name, f"layer{number}", **attributes)


def _moved(items: Sequence[Mapping[str, Any]], cuts: Sequence[int], most: int) -> Mapping[str, str]:
    lines = [f"{counted(cuts, item['from'])} to {counted(cuts, item['to'])}" for item in items if item["bytes"]]
    if len(lines) > 2:  # the parts of an operator that was written out
        lines = [f"{len(lines)} conversions"]
    width = 1 + (_WIDEST - 1) * (_bytes(items) / most) ** 0.5
    return {"label": "\\n".join([*lines, size(_bytes(items))]), "color": _MOVED, "fontcolor": _MOVED,
            "penwidth": f"{width:.2f}"}
