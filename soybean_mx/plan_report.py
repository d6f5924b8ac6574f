"""Plans as people and programs read them: tables, and one JSON object."""
from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import IO, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

Plan = Mapping[str, Any]

_WIDTH = 140  # of output that is no terminal
_MOST_CONVERSIONS = 10


def console(file: Optional[IO[str]] = None) -> Console:
    """Where tables go: plain text as wide as they need when it is no terminal."""
    file = file or sys.stdout
    return Console(file=file, width=None if file.isatty() or "COLUMNS" in os.environ else _WIDTH, highlight=False)


def size(count: Optional[float]) -> str:
    """A number of bytes with a binary unit; ``-`` for None."""
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.4g} {unit}"
        count /= 1024
    raise AssertionError


def gibibytes(count: Optional[float]) -> str:
    """A number of bytes in GiB; ``-`` for None."""
    return "-" if count is None else f"{count / 2 ** 30:.4g} GiB"


def seconds(value: Optional[float]) -> str:
    """A time; ``-`` for None."""
    if value is None:
        return "-"
    return f"{value:.4g} s" if value >= 1 else f"{value * 1e3:.4g} ms"


def counted(cuts: Sequence[int], choices: Sequence[str]) -> str:
    """The choices of all cuts, with how many parts each makes; the order in which they divide is left out.

    Parameters
    ----------
    cuts : sequence of int
        The number of groups of each cut.
    choices : sequence of str
        The choice at each cut.

    Returns
    -------
    str
        For instance ``n x4, m x2``.
    """
    parts: Dict[str, int] = {}
    for groups, text in zip(cuts, choices):
        choice = text.split("/")[0]
        parts[choice] = parts.get(choice, 1) * groups
    return ", ".join(f"{choice} x{count}" for choice, count in parts.items())


def summary(plan: Plan) -> Dict[str, Any]:
    """What one plan costs, in the members that ``soybean-mx plan --json`` prints.

    Parameters
    ----------
    plan : mapping
        As docs/interface.md says; what it lacks is None.
    """
    predicted = plan.get("predicted_seconds")
    parts = predicted if isinstance(predicted, Mapping) else {"total": predicted}
    return {
        "strategy": plan.get("strategy"), "bytes_moved": plan["bytes"]["total"], "messages": plan.get("messages"),
        "exact": plan.get("exact"), "objective": plan.get("objective"), "objective_value": plan.get("objective_value"),
        "lower_bound": plan.get("lower_bound"), "lower_bound_bytes": plan.get("lower_bound_bytes"),
        "gap": plan.get("gap"), "predicted_seconds": parts.get("total"),
        "predicted_communication_seconds": parts.get("communication"),
        "predicted_compute_seconds": parts.get("compute"),
        "search_seconds": plan.get("search_seconds"), "nodes": plan.get("nodes"), "width": plan.get("width"),
        "peak_bytes_per_device": (plan.get("memory") or {}).get("peak"),
    }


def details(plan: Plan) -> Dict[str, Any]:
    """How a plan cuts everything, in the members that ``soybean-mx plan --json`` prints."""
    return {"bytes": plan["bytes"], "cuts": plan.get("cuts"), "memory": plan.get("memory"), "tilings": plan["tensors"],
            "operators": plan["operators"], "conversions": plan.get("conversions"),
            "whole_operators": plan.get("whole") or []}


@dataclass
class Layer:
    """One row of the table: an operator of the network, with all that it was written out as.

    Parameters
    ----------
    name, operator : str
        The node's name and its operator.
    weight : str, optional
        Its largest parameter of two dims or more.
    inputs : tuple of str
        The names of what it reads.
    cuts : Counter
        How often its parts are cut in each way.
    bytes_moved : int
        Of the conversions for it.
    """

    name: str
    operator: str
    weight: Optional[str]
    inputs: Tuple[str, ...]
    cuts: Counter = field(default_factory=Counter)
    bytes_moved: int = 0


def layers(graph: Mapping[str, Any], plan: Plan) -> List[Layer]:
    """The operators of a graph with what a plan does to each.

    Parameters
    ----------
    graph, plan : mapping
        As docs/interface.md says.

    Returns
    -------
    list of Layer
        In the order of the graph. Conversions count for the operator that they are made for, and those of an output
        that stays for the operator that makes it.
    """
    nodes = json.loads(graph["symbol"])["nodes"]
    found = {node["name"]: Layer(node["name"], node["op"], _weight(graph, nodes, node),
                                 tuple(nodes[source[0]]["name"] for source in node["inputs"]))
             for node in nodes if node["op"] != "null"}
    readers = {name: layer for layer in reversed(list(found.values())) for name in layer.inputs}
    for name, choices in plan["operators"].items():
        layer = _layer_of(found, name)
        if layer is not None:
            layer.cuts[tuple(choices)] += 1
    for conversion in plan.get("conversions") or ():
        names = [conversion.get("user"), conversion["tensor"]]
        candidates = [_layer_of(found, name) for name in names if name] + [readers.get(conversion["tensor"])]
        layer = next((candidate for candidate in candidates if candidate is not None), None)
        if layer is not None:
            layer.bytes_moved += conversion["bytes"]
    return list(found.values())


def _layer_of(found: Mapping[str, Layer], name: str) -> Optional[Layer]:
    """The operator of that name, or the one that was written out as it: whose name it begins with."""
    while name and name not in found:
        name = name.rpartition("_")[0]
    return found.get(name)


def _weight(graph: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]], node: Mapping[str, Any]) -> Optional[str]:
    names = [nodes[source[0]]["name"] for source in node["inputs"]]
    weights = [name for name in names if graph["variables"].get(name, {}).get("role") == "parameter"
               and len(graph["shapes"][name][0]) > 1]
    return max(weights, key=lambda name: _product(graph["shapes"][name][0]), default=None)


def _product(shape: Iterable[int]) -> int:
    result = 1
    for extent in shape:
        result *= extent
    return result


def print_plan(out: Console, header: Mapping[str, Any], graph: Mapping[str, Any], plan: Plan) -> None:
    """Print one plan.

    Parameters
    ----------
    out : rich.console.Console
        Where to.
    header : mapping
        The object of ``soybean-mx plan --json``.
    graph, plan : mapping
        As docs/interface.md says.
    """
    _print_header(out, header)
    _print_layers(out, graph, plan)
    _print_conversions(out, plan)
    whole = plan.get("whole") or []
    if whole:
        _say(out, f"computed whole on one device, for want of a rule: {', '.join(whole)}")


def _say(out: Console, text: str) -> None:
    out.print(Text(text), soft_wrap=True)


def _print_header(out: Console, header: Mapping[str, Any]) -> None:
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in header["input_shapes"].items())
    lines = [("model", f"{header['model']}, {shapes}"),
             ("devices", f"{header['devices']}{_topology_note(header)}"), ("strategy", str(header["strategy"]))]
    if "bytes_moved" in header:
        bound, gap = header["lower_bound_bytes"], header["gap"]
        proof = "" if header["exact"] is None else ", exact" if header["exact"] else ", not proven to be the least"
        lines += [("bytes moved", f"{gibibytes(header['bytes_moved'])} a step{proof}"),
                  ("lower bound", gibibytes(bound) + ("" if gap is None else f", gap {100 * gap:.3g} %")),
                  ("predicted time", _predicted(header)), ("search time", seconds(header["search_seconds"])),
                  ("peak memory", gibibytes(header["peak_bytes_per_device"]) + _memory_note(header))]
    table = Table.grid(padding=(0, 2))
    for name, value in lines:
        table.add_row(name, Text(value, overflow="fold"))
    out.print(table)
    for note in header["notes"]:
        _say(out, f"note: {note}")


def _predicted(header: Mapping[str, Any]) -> str:
    if header["predicted_seconds"] is None:
        return "- (with --topology)"
    parts = [f"{seconds(header[f'predicted_{name}_seconds'])} {what}"
             for name, what in (("communication", "communication"), ("compute", "computation"))
             if header[f"predicted_{name}_seconds"] is not None]
    return seconds(header["predicted_seconds"]) + (f" a step: {', '.join(parts)}" if parts else " a step")


def _topology_note(header: Mapping[str, Any]) -> str:
    return f", {header['topology']['name']}" if header["topology"] else ""


def _memory_note(header: Mapping[str, Any]) -> str:
    if header["peak_bytes_per_device"] is None:
        return ""
    there = header["topology"] and header["topology"]["device"]["memory"]
    if there and header["peak_bytes_per_device"] > there:
        return f" per device, MORE than its {gibibytes(there)}: plan with --memory-limit {there / 1e9:g}GB"
    return f" per device, of {gibibytes(there)}" if there else " per device"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        justify = "right" if column in ("bytes", "ratio", "time", "memory") else "left"
        table.add_column(column, justify=justify, overflow="fold")
    return table


def _print_layers(out: Console, graph: Mapping[str, Any], plan: Plan) -> None:
    cuts, tensors, has_bytes = plan["cuts"], plan["tensors"], plan.get("conversions") is not None
    table = _table("layer", "operator", "cut", "weight", "output", *(["bytes"] if has_bytes else []))
    for layer in layers(graph, plan):
        if layer.weight is None and not layer.bytes_moved:
            continue
        cut = counted(cuts, layer.cuts.most_common(1)[0][0]) if layer.cuts else "-"
        tilings = [counted(cuts, tensors[name]) if name in tensors else "-" for name in (layer.weight, layer.name)]
        row = [layer.name, layer.operator, cut, *tilings, *([size(layer.bytes_moved)] if has_bytes else [])]
        table.add_row(*map(Text, row))
    out.print()
    out.print(table)


def _print_conversions(out: Console, plan: Plan) -> None:
    conversions = plan.get("conversions")
    if not conversions:
        return
    moving = sorted((item for item in conversions if item["bytes"]), key=lambda item: -item["bytes"])
    table = _table("conversion of", "for", "from", "to", "bytes")
    for item in moving[:_MOST_CONVERSIONS]:
        table.add_row(*map(Text, (item["tensor"], item.get("user") or "-", counted(plan["cuts"], item["from"]),
                                  counted(plan["cuts"], item["to"]), size(item["bytes"]))))
    more = f", of which the largest {_MOST_CONVERSIONS}" if len(moving) > _MOST_CONVERSIONS else ""
    out.print()
    _say(out, f"{len(conversions)} conversions, {len(moving)} move bytes{more}:")
    out.print(table)


def print_comparison(out: Console, header: Mapping[str, Any]) -> None:
    """Print the strategies of ``soybean-mx plan --compare`` side by side.

    Parameters
    ----------
    out : rich.console.Console
        Where to.
    header : mapping
        The object of ``soybean-mx plan --compare --json``.
    """
    _print_header(out, {**header, "strategy": "all"})
    table = _table("strategy", "bytes", "ratio", "time", "memory", "")
    for item in header["strategies"]:
        if item["error"] is not None:
            table.add_row(item["strategy"], "-", "-", "-", "-", Text(f"refused: {item['error']}"))
            continue
        ratio = item["ratio_to_optimal"]
        table.add_row(item["strategy"], gibibytes(item["bytes_moved"]), "-" if ratio is None else f"{ratio:.2f}",
                      seconds(item["predicted_seconds"]), gibibytes(item["peak_bytes_per_device"]),
                      "" if item["exact"] in (True, None) else "not proven to be the least of its kind")
    out.print()
    out.print(table)
