"""Bytes moved by the plans of soybean_mx and of other automatic parallelisers, for the same networks on 8 devices.

The peers' figures were obtained by running each on a CPU (float32, forward, backward and reduction of gradients, all
devices together). Those of soybean_mx are planned here and counted a second time on the lowered graph.
"""
from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from rich.table import Table
from soybean_mx import core, model_loading, plan_report
from soybean_mx.files import write_json

DEVICES = 8
GIBIBYTE = 2 ** 30
OURS = "soybean_mx"


@dataclass(frozen=True)
class Column:
    """One network and its batch.

    Attributes
    ----------
    name, title : str
        In JSON, and in the table.
    function : str
        In ``peer_networks.py``.
    shape : tuple of int
        Of its input.
    """

    name: str
    title: str
    function: str
    shape: Tuple[int, ...]


@dataclass(frozen=True)
class Peer:
    """What one planner moves and takes.

    Attributes
    ----------
    name : str
        With the mesh where it has several.
    gibibytes : tuple of float or None
        By column; of a range, the least. None where it was not run.
    seconds : float or None
        The least that it took from the traced program to the plan, tables of costs included.
    said : str
        All that is known of its time.
    """

    name: str
    gibibytes: Tuple[Optional[float], ...]
    seconds: Optional[float]
    said: str


COLUMNS = (
    Column("alexnet", "AlexNet, 256", "alexnet", (256, 3, 227, 227)),
    Column("vgg16", "VGG-16, 256", "vgg16", (256, 3, 224, 224)),
    Column("mlp_512", "MLP, 512", "perceptron", (512, 8192)),
    Column("mlp_8192", "MLP, 8192", "perceptron", (8192, 8192)),
)
PEERS = (
    Peer("data parallel", (3.26, 7.22, 14.0, 14.0), None, ""),
    Peer("Colossal-AI solver, 8", (1.43, 2.11, 0.90, None), 0.1, "0.1 to 4"),
    Peer("Colossal-AI solver, 2x4", (1.89, 2.67, 0.59, 9.5), 0.1, "0.1 to 4"),
    Peer("PyTorch AutoParallel (ILP), 8", (0.44, 1.33, 0.66, 14.0), 1.0, "1 to 10"),
    Peer("PyTorch AutoParallel (ILP), 2x4", (0.35, 1.24, 1.45, 8.75), 1.0, "1 to 10"),
    Peer("nnScaler 0.8", (0.31, 1.18, 0.66, 10.5), 0.22, "0.02, tables 0.2 to 1.4, trace 7 to 300"),
    Peer("XLA auto-sharding (Alpa's ILP)", (0.33, 1.13, 0.98, None), 60.0, "60 to 220 with compilation"),
    Peer("XLA, Megatron plan by hand", (None, None, 0.55, None), None, ""),
    Peer("PaSE", (0.312, 0.918, 0.50, 6.0), 0.1, "1.6 / 1.3 / 0.1"),
)


def measure(column: Column, repeat: int) -> Dict[str, Any]:
    """Plan one network `repeat` times.

    Returns
    -------
    dict
        ``bytes``; ``lowered_bytes``, counted on the edges of the lowered graph; ``lower_bound_bytes``, ``exact``,
        ``gap``, ``width``; ``seconds``, the median time of a whole call of the planner, and ``search_seconds`` of the
        search in it.
    """
    graph = model_loading.load(f"peer_networks:{column.function}", input_shapes=[column.shape]).graph
    calls, searches = [], []
    for _ in range(repeat):
        start = time.perf_counter()
        plan = core.plan(graph, {"devices": DEVICES})
        calls.append(time.perf_counter() - start)
        searches.append(plan["search_seconds"])
    return {"bytes": plan["bytes"]["total"], "lowered_bytes": core.lower(graph, plan)["bytes"]["total"],
            "seconds": statistics.median(calls), "search_seconds": statistics.median(searches),
            **{name: plan[name] for name in ("lower_bound_bytes", "exact", "gap", "width")}}


def best_peer(index: int) -> float:
    """The fewest GiB that any peer moves in a column."""
    return min(peer.gibibytes[index] for peer in PEERS if peer.gibibytes[index] is not None)


def report(repeat: int) -> Dict[str, Any]:
    """All columns: what ``--json`` writes."""
    columns = {}
    for index, column in enumerate(COLUMNS):
        found = measure(column, repeat)
        peers = {peer.name: peer.gibibytes[index] for peer in PEERS}
        columns[column.name] = {"input_shape": list(column.shape), **found, "gibibytes": found["bytes"] / GIBIBYTE,
                                "peers_gibibytes": peers, "best_peer_gibibytes": best_peer(index)}
    return {"devices": DEVICES, "repeat": repeat, "columns": columns,
            "peers_seconds": {peer.name: peer.seconds for peer in PEERS},
            "best_peer_seconds": min(peer.seconds for peer in PEERS if peer.seconds is not None)}


def table(found: Dict[str, Any]) -> Table:
    """The comparison; the best of each column is bold and marked with an asterisk."""
    result = Table(title=f"GiB moved in a step by {DEVICES} devices together; *: the fewest")
    result.add_column("planner")
    for column in COLUMNS:
        result.add_column(column.title, justify="right", no_wrap=True)
    result.add_column("seconds to search")
    ours = [found["columns"][column.name] for column in COLUMNS]
    for peer in PEERS:
        result.add_row(peer.name, *_cells(peer.gibibytes, ours), peer.said)
    result.add_section()
    result.add_row(OURS, *_cells([item["gibibytes"] for item in ours], ours),
                   " / ".join(f"{item['search_seconds']:.3g}" for item in ours))
    result.add_row("its lower bound", *(f"{item['lower_bound_bytes'] / GIBIBYTE:.4g}  " for item in ours), "")
    result.add_row("ratio to the best peer", *(f"{item['gibibytes'] / item['best_peer_gibibytes']:.3f}  "
                                               for item in ours), "")
    return result


def _cells(gibibytes: Sequence[Optional[float]], ours: Sequence[Dict[str, Any]]) -> List[str]:
    cells = []
    for value, item in zip(gibibytes, ours):
        text = "-" if value is None else f"{value:.4g}"
        best = value is not None and value <= min(item["gibibytes"], item["best_peer_gibibytes"])
        cells.append(f"[bold]{text} *[/bold]" if best else f"{text}  ")
    return cells


def main(argv: Optional[List[str]] = None) -> None:
    """Plan, and print beside the peers; ends with status 1 when the lowered graphs move other bytes than planned."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="times that each network is planned, for median times")
    parser.add_argument("--json", default=None, metavar="FILE", help="write the figures to FILE; -: to the output, "
                        "instead of the table")
    args = parser.parse_args(argv)
    if args.repeat < 1:
        parser.error(f"--repeat {args.repeat} was given, but at least 1 is needed.")
    found = report(args.repeat)
    if args.json == "-":
        print(json.dumps(found, indent=1))
    else:
        plan_report.console().print(table(found))
        if args.json is not None:
            write_json(args.json, found)
    wrong = [name for name, item in found["columns"].items() if item["bytes"] != item["lowered_bytes"]]
    if wrong:
        sys.exit(f"bench_peers.py: the lowered graph of {', '.join(wrong)} moves other bytes than its plan says: this "
                 "is an error of the planner or of the lowering.")


if __name__ == "__main__":
    main()
