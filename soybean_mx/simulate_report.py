"""Simulated steps as people and programs read them: tables, and one JSON object."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from soybean_mx.plan_report import console, seconds, size
from soybean_mx.simulation.pipelines import PipelineSimulation
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


def pipeline_summary(found: PipelineSimulation) -> Dict[str, Any]:
    """What a simulated pipeline says, as one JSON object. Seconds and bytes, of a batch."""
    run = found.simulation
    busy = [seconds / found.batches for seconds in run.busy_seconds]
    return {"schedule": found.schedule, "microbatches": found.microbatches, "predicted_seconds": found.seconds,
            "without_communication_seconds": found.transfer_free_seconds,
            "communication_seconds": found.communication_seconds,
            "communication_share": found.communication_seconds / found.seconds if found.seconds else 0.0,
            "peak_bytes": max(run.peak_bytes),
            "stages": [{"name": stage.name, "replicas": stage.replicas, "group": stage.group,
                        "forward_seconds": stage.forward_seconds, "backward_seconds": stage.backward_seconds,
                        "update_seconds": stage.update_seconds, "sent_bytes": sum(stage.sent.values())}
                       for stage in found.stages],
            "device_use": [{"busy_seconds": seconds, "idle_seconds": max(0.0, found.seconds - seconds),
                            "peak_bytes": peak} for seconds, peak in zip(busy, run.peak_bytes)],
            "links": [{"name": link.name, "bytes": link.sent / found.batches} for link in run.links]}


def print_pipeline(report: Mapping[str, Any]) -> None:
    """A pipeline, its stages and its devices."""
    out = console()
    batch = "" if report["batch_size"] is None else f", batch {report['batch_size']}"
    out.print(Text(f"{report['model']}{batch}, {report['devices']} devices of {report['topology']['name']}: predicted, "
                   f"times: {report['times']}, {report['schedule']}, {report['microbatches']} microbatches"),
              soft_wrap=True)
    for note in report["notes"]:
        out.print(Text(f"note: {note}"), soft_wrap=True)
    out.print(Text(f"{seconds(report['predicted_seconds'])} a batch, "
                   f"{seconds(report['without_communication_seconds'])} if nothing was sent between stages "
                   f"(communication {100 * report['communication_share']:.1f} %); at most "
                   f"{size(report['peak_bytes'])} on a device"), soft_wrap=True)
    table = _table("stage", "devices", "forward", "backward", "update", "sends", "layers")
    for number, stage in enumerate(report["stages"]):
        devices = f"{stage['replicas']} replicas" if stage["replicas"] > 1 else str(stage["group"])
        table.add_row(str(number), devices, seconds(stage["forward_seconds"]), seconds(stage["backward_seconds"]),
                      seconds(stage["update_seconds"]), size(stage["sent_bytes"]), Text(stage["name"]))
    _print_table(out, table, [], "stages")
    out.print()
    table = _table("device", "busy", "idle", "memory")
    for number, use in enumerate(report["device_use"][:_MOST_ROWS]):
        table.add_row(str(number), seconds(use["busy_seconds"]), seconds(use["idle_seconds"]), size(use["peak_bytes"]))
    _print_table(out, table, report["device_use"], "devices")


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
