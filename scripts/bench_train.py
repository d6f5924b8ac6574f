"""Time per batch, peak memory and bytes moved of one training step, side by side.

Contenders:

``serial``
    Plain MXNet on one context; on CPUs with one thread, which is what one of several contexts has.
``serial_all_cores``
    Plain MXNet on one context with all cores (CPU only).
``data_parallel``
    MXNet's own: ``split_and_load`` and ``Trainer(kvstore="device")``, hybridized with static_alloc and static_shape.
``soybean_mx``, ``soybean_mx:STRATEGY``
    The program of ``serial``, unmodified, tiled over the devices.

Each contender runs in a process of its own, started anew in every round; rounds go through all contenders in turn, so
that slow drifts of the machine meet all of them. With ``--communication`` the tiled ones run once more in each round,
with everything that crosses devices replaced by local work, and the difference is the communication's share.

Several ``--batch-size`` and ``--devices`` are a sweep: one report for each combination. ``--plot`` draws them.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

from soybean_mx import devices as device_lists
from soybean_mx.benchmark import contenders as running
from soybean_mx.benchmark.contenders import (
    DEFAULT_CONTENDERS,
    Contender,
    add_communication,
    add_ratios,
    cores,
    machine,
    make_contender,
    summarise,
    without_exchanges,
)
from soybean_mx.devices import Device

MEBIBYTE = 2 ** 20
# One contender in a process of its own, which trains a network of benchmark_tasks.py.
PROGRAM = (sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_contender.py"))


def parse_devices(text: str) -> Tuple[Device, ...]:
    """``cpu:8`` and ``gpu:4`` are that many from 0; ``gpu:0-3`` and ``gpu:0,2`` are these.

    Raises
    ------
    SystemExit
        With a message, for anything else.
    """
    try:
        return tuple(device_lists.parse_devices(text))
    except device_lists.DeviceError as error:
        sys.exit(f"bench_train.py: --devices: {error}")


def run_rounds(contenders: Sequence[Contender], workload: Dict[str, Any], rounds: int,
               timeout: float) -> Dict[str, List[Dict]]:
    """Run every contender once in each round, in turn, on the networks of ``benchmark_tasks.py``; by its name."""
    return running.run_rounds(contenders, workload, rounds, timeout, PROGRAM, lambda number, contender: print(
        f"round {number + 1}/{rounds}: {contender.name}", file=sys.stderr, flush=True))


HEADINGS = ("contender", "s/batch", "min - max", "issue ms", "comm.", "peak MiB", "moved MiB", "speed", "memory")


def table(results: Dict[str, Dict]) -> str:
    """The results for people; speed and memory are relative to ``data_parallel``."""
    rows: List[Tuple[str, ...]] = [HEADINGS]
    for name, result in results.items():
        if "seconds" not in result:
            failed = "not_applicable" not in result
            rows.append((name, "failed", result["error"]) if failed else (name, "-", result["not_applicable"]))
            continue
        rows.append((name, f"{result['seconds']:.3f}", f"{result['seconds_min']:.3f} - {result['seconds_max']:.3f}",
                     f"{1e3 * result['issue_seconds']:.1f}",
                     f"{result['communication_share']:.0%}" if "communication_share" in result else "",
                     f"{result['peak_bytes'] / MEBIBYTE:.0f}", f"{result['bytes_moved'] / MEBIBYTE:.1f}",
                     f"{result['speedup']:.2f}x" if "speedup" in result else "",
                     f"{result['memory_ratio']:.2f}x" if "memory_ratio" in result else ""))
    full = [row for row in rows if len(row) == len(HEADINGS)]
    widths = [max(len(row[column]) for row in full) for column in range(len(HEADINGS))]
    widths[0] = max(len(row[0]) for row in rows)
    return "\n".join("  ".join(cell.ljust(width) if column == 0 else cell.rjust(width)
                               for column, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows)


def parse_arguments(argv: Optional[List[str]] = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", default="alexnet", help="mlp, mlpN (four layers, N wide), cnn5_SxS_F (five layers "
                        "of F filters on S x S images), alexnet, vgg11 to vgg19 (also with _bn), lstm, lstmN, "
                        "bert_base, bert_LxU, or a Gluon model zoo name such as resnet50_v1")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[32], metavar="N",
                        help="samples per step, all devices together; several: a sweep")
    parser.add_argument("--devices", nargs="+", default=["cpu:2"], metavar="LIST",
                        help="cpu:8, gpu:4 (that many), gpu:0-3, gpu:0,2 (these); several: a sweep")
    parser.add_argument("--sequence-length", type=int, default=None, metavar="N",
                        help="words in a sample of a language model; default: 35 for lstm, 128 for bert")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "float16"], help="data type")
    parser.add_argument("--contenders", "--strategies", nargs="+", default=list(DEFAULT_CONTENDERS), metavar="NAME",
                        help="what to measure; soybean_mx:STRATEGY for another strategy than optimal")
    parser.add_argument("--communication", action="store_true", help="run soybean_mx once more with its exchanges "
                        "replaced by local work, for the share of the time that communication takes")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the timed ones, in each round")
    parser.add_argument("--repeat", type=int, default=5, help="timed steps in each round")
    parser.add_argument("--rounds", "--interleave", type=int, default=1, help="rounds through all contenders")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds after which a contender is given up")
    parser.add_argument("--json", default=None, metavar="FILE", help="write the results to FILE, a list of reports for "
                        "a sweep; -: to the output, instead of the table")
    parser.add_argument("--plot", default=None, metavar="FILE", help="draw the speed of all contenders by batch size "
                        "into FILE, a .png or .svg")
    args = parser.parse_args(argv)
    for flag in ("batch_size", "repeat", "rounds", "sequence_length"):
        given = getattr(args, flag)
        for value in given if isinstance(given, list) else [given]:
            if value is not None and value < 1:
                parser.error(f"--{flag.replace('_', '-')} {value} was given, but at least 1 is needed.")
    if args.warmup < 0:
        parser.error(f"--warmup {args.warmup} was given, but at least 0 is needed.")
    if args.plot is not None:
        _check_plot(parser, args)
    args.contender_lists = [_contenders(parser, args, devices) for devices in args.devices]
    return args


def _contenders(parser: argparse.ArgumentParser, args: argparse.Namespace, given: str) -> List[Contender]:
    devices, names = parse_devices(given), args.contenders
    if devices[0][0] == "gpu" and names == list(DEFAULT_CONTENDERS):
        names = [name for name in names if name != "serial_all_cores"]
    try:
        return [make_contender(name, devices, cores()) for name in names]
    except ValueError as error:
        return parser.error(str(error))


def _check_plot(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Say before the measurements what would keep their plot from being drawn."""
    if "data_parallel" not in args.contenders:
        parser.error(f"--plot {args.plot} was given, but speedups are over data_parallel: add it to --contenders.")
    try:
        import bench_plots
    except ImportError as error:
        parser.error(f"--plot needs {error.name}: run `pip install .[scripts]` in the repository.")
    try:
        bench_plots.check_path(args.plot)
    except ValueError as error:
        parser.error(f"--plot: {error}")


def measure(args: argparse.Namespace, batch_size: int, devices: str, contenders: Sequence[Contender]) -> Dict:
    """The report of one combination: what it is, and a result for each contender by its name."""
    workload = {"model": args.model, "dtype": args.dtype, "batch_size": batch_size, "warmup": args.warmup,
                "repeat": args.repeat, "sequence_length": args.sequence_length}
    applicable = [contender for contender in contenders if not contender.why_not()]
    to_run = []
    for contender in applicable:
        to_run.append(contender)
        if args.communication and contender.kind == "soybean_mx":
            to_run.append(without_exchanges(contender))
    measured = {name: summarise(rounds)
                for name, rounds in run_rounds(to_run, workload, args.rounds, args.timeout).items()}
    results = {}
    for contender in contenders:
        result = measured.get(contender.name) or {"not_applicable": contender.why_not()}
        local = measured.get(without_exchanges(contender).name)
        if local is not None:
            add_communication(result, local)
        result.update(threads=contender.threads, contexts=len(contender.devices))
        results[contender.name] = result
    add_ratios(results)
    return {**workload, "devices": devices, "machine": machine(), **results}


def main(argv: Optional[List[str]] = None) -> None:
    """Measure and print."""
    args = parse_arguments(argv)
    reports: List[Dict] = []
    sweep = len(args.devices) * len(args.batch_size) > 1
    for devices, contenders in zip(args.devices, args.contender_lists):
        for batch_size in args.batch_size:
            reports.append(measure(args, batch_size, devices, contenders))
            _publish(args, reports, sweep)
    if args.json == "-":
        print(json.dumps(reports if sweep else reports[0], indent=1))
    names = [contender.name for contenders in args.contender_lists for contender in contenders]
    if not any("seconds" in report.get(name, {}) for report in reports for name in names):
        sys.exit("bench_train.py: every contender failed.")


def _publish(args: argparse.Namespace, reports: Sequence[Dict], sweep: bool) -> None:
    """Print the latest report, and write the files anew, so that an interrupted sweep leaves what it has."""
    from soybean_mx.files import write_json

    report = reports[-1]
    if args.json != "-":
        print("{model}, batch {batch_size}, {devices}, {dtype}".format(**report))
        print("machine: " + ", ".join(f"{key} {value}" for key, value in report["machine"].items()))
        print(table({name: report[name] for name in dict.fromkeys(args.contenders) if name in report}), flush=True)
    if args.json not in (None, "-"):
        write_json(args.json, list(reports) if sweep else report)
    if args.plot is not None:
        import bench_plots

        bench_plots.draw(reports, args.contenders, args.plot)


if __name__ == "__main__":
    main()
