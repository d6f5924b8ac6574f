"""What ``soybean-mx stages --compare`` prints: data parallelism, tiling, pipelines and both together, side by side."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from soybean_mx.pipeline.combined import Combination


def report(combinations: Sequence[Combination]) -> List[Dict[str, Any]]:
    """The combinations as ``--json`` prints them: times in milliseconds, sizes in bytes."""
    data_parallel = next(item.seconds for item in combinations if item.name == "data parallelism")
    return [{
        "name": item.name, "step_ms": item.seconds * 1e3, "speedup_over_data_parallel": data_parallel / item.seconds,
        "fits": item.fits, "tiled_over": item.group, "stages": [list(stage.operators) for stage in item.stages],
        "stage_times_ms": [stage.seconds * 1e3 for stage in item.stages],
        "compute_ms": [stage.compute_seconds * 1e3 for stage in item.stages],
        "boundary_times_ms": [stage.boundary_seconds * 1e3 for stage in item.stages[:-1]],
        "memory_bytes_per_stage": [stage.memory_bytes for stage in item.stages],
    } for item in combinations]


def print_report(header: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> None:
    """A table, the fastest that fits first."""
    from rich.table import Table
    from rich.text import Text

    from soybean_mx.plan_report import console, seconds, size

    out = console()
    out.print(Text(f"{header['model']}, batch {header['batch_size']}, {header['topology']}, {header['schedule']}, "
                   f"predicted"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("", "a step", "of data parallelism", "slowest stage", "slowest boundary", "fullest device", ""):
        table.add_column(column, justify="right" if table.columns else "left", overflow="fold")
    for item in items:
        boundary = max(item["boundary_times_ms"], default=0.0)
        table.add_row(*map(Text, (
            item["name"], seconds(item["step_ms"] / 1e3), f"{item['speedup_over_data_parallel']:.2f}x",
            seconds(max(item["stage_times_ms"]) / 1e3), seconds(boundary / 1e3) if boundary else "-",
            size(max(item["memory_bytes_per_stage"])), "" if item["fits"] else "does not fit")))
    out.print(table)
    best = items[0]
    if len(best["stages"]) > 1:
        out.print()
        for number, names in enumerate(best["stages"]):
            out.print(Text(f"stage {number}: {names[0]} .. {names[-1]} ({len(names)} operators), "
                           f"{seconds(best['stage_times_ms'][number] / 1e3)}"), soft_wrap=True)
