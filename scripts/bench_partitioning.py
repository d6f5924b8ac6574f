"""What partitioning itself costs (SoyBean's Table 1): all tiles of a network on one device, beside the network whole.

The network is the perceptron of four layers that are all as wide. Contenders, all on one device with all cores:

``serial``
    Plain MXNet, hybridized with static_alloc and static_shape.
``tiles 1``
    soybean_mx with nothing to divide: its executor and its updates, which are others than Gluon's.
``tiles 2``, ``tiles 4``, ...
    soybean_mx's plan for that many devices, all of them this one: exchanges are copies within its memory.

Each runs in a process of its own, in every round; rounds go through all in turn.
"""
from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Dict, List, Optional, Sequence

from rich.table import Table
from soybean_mx import plan_report
from soybean_mx.benchmark.contenders import Contender, cores, machine, summarise
from soybean_mx.files import write_json

from bench_train import parse_devices, run_rounds

WIDTH = 8192
BATCH_SIZES = (128, 256, 512, 1024, 2048)
TILES = (1, 2, 4, 8)
LIMIT, LIMIT_FROM = 1.05, 512  # what is asked for, and from which batch size on
SERIAL = "serial"


def contenders(device: str, tiles: Sequence[int]) -> List[Contender]:
    """Plain MXNet on the first of the devices, and soybean_mx with each number of tiles there."""
    first = parse_devices(device)[:1]
    return [Contender(SERIAL, "serial", first, cores()),
            *(Contender(f"tiles {count}", "soybean_mx", first, cores(), "optimal", count)
              for count in dict.fromkeys(tiles))]


def measure(args: argparse.Namespace, batch_size: int) -> Dict[str, Any]:
    """All contenders at one batch size: what ``--json`` holds for it.

    Returns
    -------
    dict
        ``batch_size``, and for each contender what ``bench_train.py`` says of one, with ``ratio_to_serial`` and
        ``ratio_to_one_tile``: of its seconds to theirs, in the median.
    """
    workload = {"model": f"mlp{args.width}", "dtype": "float32", "batch_size": batch_size, "warmup": args.warmup,
                "repeat": args.repeat}
    chosen = contenders(args.device, args.tiles)
    results = {name: summarise(rounds) for name, rounds in run_rounds(chosen, workload, args.rounds,
                                                                      args.timeout).items()}
    for base, ratio in ((SERIAL, "ratio_to_serial"), ("tiles 1", "ratio_to_one_tile")):
        for result in results.values():
            if "seconds" in result and "seconds" in results.get(base, {}):
                result[ratio] = result["seconds"] / results[base]["seconds"]
    return {"batch_size": batch_size, **results}


def missed(report: Dict[str, Any]) -> List[str]:
    """Where the tiles take more of plain MXNet's time than they may, or failed."""
    found = []
    for row in report["batches"]:
        for name in (f"tiles {count}" for count in report["tiles"] if count > 1):
            if row["batch_size"] >= LIMIT_FROM and row[name].get("ratio_to_serial", LIMIT + 1) > LIMIT:
                found.append(f"{name} at batch {row['batch_size']}")
    return found


def table(report: Dict[str, Any]) -> Table:
    """Seconds per step, and in brackets their ratio to plain MXNet's."""
    result = Table(title=f"4 layers {report['width']} wide on {report['device']}: seconds per step "
                   "(relative to plain MXNet)")
    names = [name for name in report["batches"][0] if name != "batch_size"]
    result.add_column("batch", justify="right")
    for name in names:
        result.add_column("plain MXNet" if name == SERIAL else name, justify="right", no_wrap=True)
    for row in report["batches"]:
        result.add_row(str(row["batch_size"]), *(_cell(row[name]) for name in names))
    return result


def _cell(result: Dict[str, Any]) -> str:
    if "seconds" not in result:
        return f"failed: {result['error'][:40]}"
    ratio = f" ({result['ratio_to_serial']:.2f})" if "ratio_to_serial" in result else ""
    return f"{result['seconds']:.3f}{ratio}"


def parse_arguments(argv: Optional[List[str]] = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--width", type=int, default=WIDTH, help="of the four layers; 8192 takes 3 GB and more")
    parser.add_argument("--batch-size", type=int, nargs="+", default=list(BATCH_SIZES), metavar="N",
                        help="samples per step")
    parser.add_argument("--tiles", type=int, nargs="+", default=list(TILES), metavar="N",
                        help="devices whose work the one device does")
    parser.add_argument("--device", default="cpu:1", help="the device; the first where it is a list")
    parser.add_argument("--warmup", type=int, default=1, help="steps before the timed ones, in each round")
    parser.add_argument("--repeat", type=int, default=3, help="timed steps in each round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds through all contenders")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds after which a contender is given up")
    parser.add_argument("--json", default=None, metavar="FILE", help="write the figures to FILE; -: to the output, "
                        "instead of the table")
    args = parser.parse_args(argv)
    for flag, least in (("width", 1), ("batch_size", 1), ("tiles", 1), ("warmup", 0), ("repeat", 1), ("rounds", 1)):
        given = getattr(args, flag)
        for value in given if isinstance(given, list) else [given]:
            if value < least:
                parser.error(f"--{flag.replace('_', '-')} {value} was given, but at least {least} is needed.")
    return args


def main(argv: Optional[List[str]] = None) -> None:
    """Measure and print."""
    args = parse_arguments(argv)
    report: Dict[str, Any] = {"width": args.width, "device": args.device, "tiles": args.tiles, "warmup": args.warmup,
                              "repeat": args.repeat, "rounds": args.rounds, "machine": machine(), "batches": []}
    for batch_size in args.batch_size:
        report["batches"].append(measure(args, batch_size))
        if args.json not in (None, "-"):
            write_json(args.json, report)  # after each, so that an interrupted run leaves what it has
    if args.json == "-":
        print(json.dumps(report, indent=1))
    else:
        console = plan_report.console()
        console.print(table(report))
        over = missed(report)
        console.print(f"More than {LIMIT - 1:.0%} slower than plain MXNet at batch {LIMIT_FROM} and more: "
                      f"{', '.join(over) or 'none'}.")
    names = [contender.name for contender in contenders(args.device, args.tiles)]
    if not any("seconds" in row[name] for row in report["batches"] for name in names):
        sys.exit("bench_partitioning.py: every contender failed.")


if __name__ == "__main__":
    main()
