"""How long the planner of stages takes for profiles in PipeDream's format, by cost model and devices.

Each search is repeated, and the median of its processor time counts, which other programs hardly change.
"""
from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Dict, List, Optional

from rich.table import Table
from soybean_mx.files import write_json
from soybean_mx.pipeline import profile as profiles
from soybean_mx.pipeline.stages_command import COST_MODELS, device_levels, plan
from soybean_mx.plan_report import console

MACHINES = (("4", "10GB/s"), ("16", "1.25GB/s"), ("4x4", "10GB/s,1.25GB/s"), ("8x2", "30GB/s,3.125GB/s"))


def seconds(path: Path, devices: str, bandwidth: str, cost_model: str, repeats: int) -> float:
    """The median processor time of a search, in seconds."""
    profile = profiles.load(str(path))
    options = {"levels": device_levels(devices, bandwidth, None), "cost_model": cost_model}
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        plan(profile, options)
        times.append(time.process_time() - begin)
    return statistics.median(times)


def main(argv: Optional[List[str]] = None) -> Dict[str, float]:
    """Measure and print; the slowest search of each profile in seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profiles", nargs="*", type=Path, default=sorted(profiles.SHIPPED.glob("*.graph.txt")),
                        help="profiles; default: those that PipeDream's repository ships")
    parser.add_argument("--repeats", type=int, default=3, help="searches of which the median counts")
    parser.add_argument("--json", default=None, help="file to write the times to")
    args = parser.parse_args(argv)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("profile", "devices", *COST_MODELS):
        table.add_column(column, justify="left" if column == "profile" else "right")
    slowest: Dict[str, float] = {}
    rows = []
    for path in args.profiles:
        name = path.name.split(".")[0]
        for devices, bandwidth in MACHINES:
            times = {model: seconds(path, devices, bandwidth, model, args.repeats) for model in COST_MODELS}
            table.add_row(name, devices, *(f"{value:.3f} s" for value in times.values()))
            rows.append({"profile": name, "devices": devices, "seconds": times})
            slowest[name] = max(slowest.get(name, 0.0), *times.values())
    console().print(table)
    console().print(f"The slowest search takes {max(slowest.values()):.3f} s.")
    if args.json:
        write_json(args.json, rows)
    return slowest


if __name__ == "__main__":
    main()
