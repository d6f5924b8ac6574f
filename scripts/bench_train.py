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
that slow drifts of the machine meet all of them.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

STRATEGIES = ("optimal", "data", "model", "owt", "megatron", "zero", "spartan", "recursive")

DEFAULT_CONTENDERS = ("serial", "serial_all_cores", "data_parallel", "soybean_mx")
MEBIBYTE = 2 ** 20

Device = Tuple[str, int]


@dataclass(frozen=True)
class Contender:
    """What runs in one process.

    Attributes
    ----------
    name : str
        As given to ``--contenders``.
    kind : str
        ``serial``, ``data_parallel`` or ``soybean_mx``.
    devices : tuple of (str, int)
        The contexts that it may use.
    threads : int
        OpenMP threads of each context.
    strategy : str
        Strategy of soybean_mx, else empty.
    """

    name: str
    kind: str
    devices: Tuple[Device, ...]
    threads: int
    strategy: str = ""

    def environment(self) -> Dict[str, str]:
        """The environment of the process; the same for all but for threads and soybean_mx's own variables."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SOYBEAN_MX")}
        environment.update(
            OMP_NUM_THREADS=str(self.threads),
            # Without these all CPU contexts wait for each other's temporary space and random numbers.
            MXNET_CPU_TEMP_COPY="64",
            SOYBEAN_MX="0",
        )
        if self.kind == "soybean_mx":
            kind = self.devices[0][0]
            indices = ",".join(str(index) for _, index in self.devices)
            # A lone number would be read as a count.
            indices = indices if "," in indices else f"{indices}-{indices}"
            environment.update(SOYBEAN_MX="1", SOYBEAN_MX_DEVICES=f"{kind}:{indices}",
                               SOYBEAN_MX_STRATEGY=self.strategy)
        return environment


def parse_devices(text: str) -> Tuple[Device, ...]:
    """``cpu:8`` and ``gpu:4`` are that many from 0; ``gpu:0-3`` and ``gpu:0,2`` are these.

    Raises
    ------
    SystemExit
        With a message, for anything else.
    """
    try:
        from soybean_mx.devices import DeviceError
        from soybean_mx.devices import parse_devices as parse
    except ImportError:
        sys.exit("bench_train.py needs soybean_mx, which is not installed: run `pip install .[cpu]` in the repository.")
    try:
        return tuple(parse(text))
    except DeviceError as error:
        sys.exit(f"bench_train.py: --devices: {error}")


def make_contender(name: str, devices: Tuple[Device, ...], cores: int) -> Contender:
    """The contender called `name`.

    Raises
    ------
    ValueError
        For an unknown name.
    """
    shared = max(1, cores // len(devices)) if devices[0][0] == "cpu" else cores
    if name == "serial":
        return Contender(name, "serial", devices[:1], 1 if devices[0][0] == "cpu" else cores)
    if name == "serial_all_cores":
        return Contender(name, "serial", devices[:1], cores)
    if name == "data_parallel":
        return Contender(name, name, devices, shared)
    base, _, strategy = name.partition(":")
    strategy = strategy or "optimal"
    if base == "soybean_mx" and strategy in STRATEGIES:
        return Contender(name, base, devices, shared, strategy)
    raise ValueError(f"The contender {name!r} is unknown; give {', '.join(DEFAULT_CONTENDERS)} or soybean_mx:STRATEGY "
                     f"with one of {', '.join(STRATEGIES)}.")


def run_contender(contender: Contender, args: argparse.Namespace) -> Dict:
    """Run `contender` once in a process of its own.

    Returns
    -------
    dict
        What ``bench_contender.run`` returns, or ``{"error": message}`` if the process failed.
    """
    config = {"kind": contender.kind, "contexts": contender.devices, "model": args.model, "dtype": args.dtype,
              "batch_size": args.batch_size, "warmup": args.warmup, "repeat": args.repeat}
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_contender.py")
    try:
        process = subprocess.run([sys.executable, script, json.dumps(config)], env=contender.environment(),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                                 timeout=args.timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"no result after {args.timeout:g} s"}
    if process.returncode < 0:
        return {"error": f"ended by {signal.Signals(-process.returncode).name}", "stderr": process.stderr[-4000:]}
    if process.returncode > 0:
        return {"error": _complaint(process), "stderr": process.stderr[-4000:]}
    return json.loads(process.stdout.strip().splitlines()[-1])


def _complaint(process: subprocess.CompletedProcess) -> str:
    """The line of a failed process's output that says what is wrong."""
    lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
    # An exception's message may go on for many lines, the first of which says most.
    exceptions = [line for line in lines if re.match(r"[\w.]+(Error|Exception):", line)]
    return (exceptions or lines)[-1]


def summarise(rounds: List[Dict]) -> Dict:
    """One object for all rounds of a contender: ``seconds`` is the median of all steps, ``peak_bytes`` the largest."""
    good = [result for result in rounds if "error" not in result]
    if not good:
        return rounds[-1]
    seconds = [value for result in good for value in result["seconds_all"]]
    summary = dict(good[0], seconds=statistics.median(seconds), seconds_min=min(seconds), seconds_max=max(seconds),
                   seconds_all=seconds, peak_bytes=max(result["peak_bytes"] for result in good), rounds=len(good),
                   failed_rounds=len(rounds) - len(good), load_before=rounds[0]["load_before"])
    failed = [result["error"] for result in rounds if "error" in result]
    return dict(summary, errors=failed) if failed else summary


def add_ratios(results: Dict[str, Dict]) -> None:
    """Add each contender's time and memory relative to data parallelism: ``speedup`` is above 1 if it is faster."""
    base = results.get("data_parallel", {})
    for result in results.values():
        if "seconds" in base and "seconds" in result:
            result["speedup"] = base["seconds"] / result["seconds"]
            result["memory_ratio"] = result["peak_bytes"] / max(1, base["peak_bytes"])


def machine() -> Dict:
    """What the figures depend on besides the code."""
    import mxnet

    model = ""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return {"cores": cores(), "processor": model or platform.processor(), "load": os.getloadavg()[0],
            "mxnet": mxnet.__version__, "python": platform.python_version(), "system": platform.platform()}


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


HEADINGS = ("contender", "s/batch", "min - max", "peak MiB", "moved MiB", "speed", "memory")


def table(results: Dict[str, Dict]) -> str:
    """The results for people; speed and memory are relative to ``data_parallel``."""
    rows: List[Tuple[str, ...]] = [HEADINGS]
    for name, result in results.items():
        if "seconds" not in result:
            rows.append((name, "failed", result["error"]))
            continue
        rows.append((name, f"{result['seconds']:.3f}", f"{result['seconds_min']:.3f} - {result['seconds_max']:.3f}",
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
    parser.add_argument("--model", default="alexnet", help="alexnet, vgg11 to vgg19 (also with _bn), mlp, mlpN (four "
                        "layers, N wide), or a Gluon model zoo name such as resnet50_v1")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step, all devices together")
    parser.add_argument("--devices", default="cpu:2", help="cpu:8, gpu:4 (that many), gpu:0-3, gpu:0,2 (these)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "float16"], help="data type")
    parser.add_argument("--contenders", "--strategies", nargs="+", default=list(DEFAULT_CONTENDERS), metavar="NAME",
                        help="what to measure; soybean_mx:STRATEGY for another strategy than optimal")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the timed ones, in each round")
    parser.add_argument("--repeat", type=int, default=5, help="timed steps in each round")
    parser.add_argument("--rounds", "--interleave", type=int, default=1, help="rounds through all contenders")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds after which a contender is given up")
    parser.add_argument("--json", default=None, metavar="FILE", help="write the results to FILE; -: to the output, "
                        "instead of the table")
    args = parser.parse_args(argv)
    for flag in ("batch_size", "repeat", "rounds"):
        if getattr(args, flag) < 1:
            parser.error(f"--{flag.replace('_', '-')} {getattr(args, flag)} was given, but at least 1 is needed.")
    if args.warmup < 0:
        parser.error(f"--warmup {args.warmup} was given, but at least 0 is needed.")
    args.contender_list = _contenders(parser, args)
    return args


def _contenders(parser: argparse.ArgumentParser, args: argparse.Namespace) -> List[Contender]:
    devices, names = parse_devices(args.devices), args.contenders
    if devices[0][0] == "gpu" and names == list(DEFAULT_CONTENDERS):
        names = [name for name in names if name != "serial_all_cores"]
    try:
        return [make_contender(name, devices, cores()) for name in names]
    except ValueError as error:
        return parser.error(str(error))


def main(argv: Optional[List[str]] = None) -> None:
    """Measure and print."""
    args = parse_arguments(argv)
    report = {"model": args.model, "batch_size": args.batch_size, "devices": args.devices, "dtype": args.dtype,
              "warmup": args.warmup, "repeat": args.repeat, "machine": machine()}
    rounds: Dict[str, List[Dict]] = {contender.name: [] for contender in args.contender_list}
    for number in range(args.rounds):
        for contender in args.contender_list:
            print(f"round {number + 1}/{args.rounds}: {contender.name}", file=sys.stderr, flush=True)
            load = os.getloadavg()[0]
            rounds[contender.name].append(dict(run_contender(contender, args), load_before=load))
    results = {name: summarise(measured) for name, measured in rounds.items()}
    for contender in args.contender_list:
        results[contender.name].update(threads=contender.threads, contexts=len(contender.devices))
    add_ratios(results)
    report.update(results)
    if args.json != "-":
        print("{model}, batch {batch_size}, {devices}, {dtype}".format(**report))
        print("machine: " + ", ".join(f"{key} {value}" for key, value in report["machine"].items()))
        print(table(results))
    if args.json:
        text = json.dumps(report, indent=1)
        if args.json == "-":
            print(text)
        else:
            with open(args.json, "w", encoding="utf-8") as output:
                output.write(text + "\n")
    if all("seconds" not in result for result in results.values()):
        sys.exit("bench_train.py: every contender failed.")


if __name__ == "__main__":
    main()
