"""Simulated steps as people and programs read them: tables, and one JSON object."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from soybean_mx.plan_report import console, seconds, size
from soybean_mx.simulation.simulator import Simulation

_MOST_ROWS = 16


def summary(simulation: Simulation, strategy: str) -> Dict[str, Any]:
    """What a simulation says, as one JSON object. Seconds and bytes.

    Parameters
    ----------
    simulation : Simulation
        A step.
    strategy : str
        How it was planned.
    """
    devices = zip(simulation.busy_seconds, simulation.idle_seconds, simulation.copying_seconds,
                  simulation.peak_bytes, simulation.needed_bytes)
    return {"strategy": strategy, "predicted_seconds": simulation.seconds,
            "without_communication_seconds": simulation.transfer_free_seconds,
            "communication_seconds": simulation.communication_seconds,
            "communication_share": simulation.communication_share,
            "peak_bytes": max(simulation.peak_bytes),
            "bytes_moved": sum(event.sent for event in simulation.events),
            "device_use": [{"busy_seconds": busy, "idle_seconds": idle, "sending_seconds": sending,
                            "peak_bytes": peak, "needed_bytes": needed}
                           for busy, idle, sending, peak, needed in devices],
            "links": [{"name": link.name, "bytes": link.sent, "busy_seconds": link.busy_seconds}
                      for link in simulation.links]}


def print_simulation(header: Mapping[str, Any], item: Mapping[str, Any]) -> None:
    """One step, its devices and its links."""
    out = console()
    _print_header(out, header)
    out.print(Text(f"{item['strategy']}: {seconds(item['predicted_seconds'])} a step, "
                   f"{seconds(item['without_communication_seconds'])} if nothing was sent (communication "
                   f"{100 * item['communication_share']:.1f} %); {size(item['bytes_moved'])} moved; at most "
                   f"{size(item['peak_bytes'])} on a device"), soft_wrap=True)
    table = _table("device", "busy", "idle", "sending", "memory", "needed at a time")
    for number, use in enumerate(item["device_use"][:_MOST_ROWS]):
        table.add_row(str(number), seconds(use["busy_seconds"]), seconds(use["idle_seconds"]),
                      seconds(use["sending_seconds"]), size(use["peak_bytes"]), size(use["needed_bytes"]))
    _print_table(out, table, item["device_use"], "devices")
    links: List[Mapping[str, Any]] = sorted(item["links"], key=lambda link: -link["busy_seconds"])
    if links:
        out.print()
        table = _table("busiest links", "bytes", "busy")
        for link in links[:_MOST_ROWS]:
            table.add_row(Text(link["name"]), size(link["bytes"]), seconds(link["busy_seconds"]))
        _print_table(out, table, links, "links")


def print_comparison(header: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> None:
    """Strategies side by side, the fastest first."""
    out = console()
    _print_header(out, header)
    table = _table("strategy", "a step", "without communication", "communication", "moved", "memory")
    for item in sorted(items, key=lambda item: item.get("predicted_seconds", float("inf"))):
        if "error" in item:
            table.add_row(item["strategy"], Text(item["error"]))
            continue
        table.add_row(item["strategy"], seconds(item["predicted_seconds"]),
                      seconds(item["without_communication_seconds"]), f"{100 * item['communication_share']:.1f} %",
                      size(item["bytes_moved"]), size(item["peak_bytes"]))
    out.print(table)


def _print_header(out, header: Mapping[str, Any]) -> None:
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in header["input_shapes"].items())
    updates = "without updates" if header["optimizer_states"] is None else "with updates"
    out.print(Text(f"{header['model']}, {shapes}, {header['devices']} devices of {header['topology']['name']}: "
                   f"predicted, times: {header['times']}, {updates}"), soft_wrap=True)
    for note in header["notes"]:
        out.print(Text(f"note: {note}"), soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if table.columns else "left", overflow="fold")
    return table


def _print_table(out, table: Table, rows: Sequence[Any], what: str) -> None:
    out.print(table)
    if len(rows) > _MOST_ROWS:
        out.print(Text(f"and {len(rows) - _MOST_ROWS} more {what}"))
