"""``soybean-mx bench``: training steps of a model by plain MXNet, its data parallelism and soybean_mx, side by side."""
from __future__ import annotations

import argparse
import json
import statistics
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from soybean_mx import progress
from soybean_mx.benchmark import contenders as running
from soybean_mx.benchmark.contenders import Contender
from soybean_mx.devices import Device, DeviceError, contexts, parse_devices
from soybean_mx.plan_command import STRATEGIES, ArgumentError, parse_input_shapes

DEFAULT_BATCH_SIZE = 32
_TASK = "soybean_mx.benchmark.model_task:loaded_task"
_TITLES = {"serial": "plain MXNet", "serial_all_cores": "plain MXNet, all cores",
           "data_parallel": "MXNet's data parallelism"}
_BASES = {"over_one_device": "serial", "over_data_parallel": "data_parallel"}


def add(commands) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "bench", help="time training steps of a model on real devices", description=(
            "Train a model for a few steps on the devices of this machine: by plain MXNet on one of them, by MXNet's "
            "own data parallelism and tiled by soybean_mx. Each runs in processes of its own, in turn. A step is "
            "forward, loss, backward and an update by SGD with momentum, on random data."))
    parser.add_argument("model", metavar="MODEL", help="as of `soybean-mx plan`")
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--batch-size", type=int, metavar="B",
                        help=f"of all devices together, for models of the zoos; default: {DEFAULT_BATCH_SIZE}")
    shapes.add_argument("--input-shape", action="append", default=[], metavar="[NAME=]N,C,H,W",
                        help="the shape of an input with its batch; once for each input")
    parser.add_argument("--dtype", default="float32", help="float32 (default), float64, or float16 (GPUs)")
    parser.add_argument("--classes", type=int, metavar="N", help="for models of the zoos")
    parser.add_argument("--devices", default="cpu:2", metavar="LIST",
                        help="two or more: cpu:8, gpu:4 (that many, from 0), gpu:0-3 or gpu:0,2; default: %(default)s")
    parser.add_argument("--strategies", default="optimal", metavar="NAME[,NAME...]",
                        help=f"of soybean_mx: {', '.join(STRATEGIES)}; default: %(default)s")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="timed in each round; default: %(default)s")
    parser.add_argument("--warmup", type=int, default=1, metavar="N", help="steps before these; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, metavar="N",
                        help="in each of which each contender runs once; default: %(default)s")
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="S",
                        help="seconds after which a process is given up; default: %(default)g")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(function=run, prog=parser.prog)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; 1 where a contender fails. Raises what :func:`soybean_mx.cli.main` tells."""
    workload = _workload(arguments)
    chosen = _contenders(arguments)
    with progress.bar("measuring, processes") as advance:
        done = -1

        def starting(*_) -> None:
            nonlocal done
            done += 1
            if advance is not None:
                advance(done, arguments.rounds * len(chosen))

        rounds = running.run_rounds(chosen, workload, arguments.rounds, arguments.timeout, starting=starting)
    report = _report(arguments, workload, chosen, rounds)
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        _print(report)
    return 1 if any(item["error"] is not None for item in report["contenders"]) else 0


def _workload(arguments: argparse.Namespace) -> Dict[str, Any]:
    """What the processes are given, after a look at all that could be wrong with it."""
    for flag, least in (("steps", 1), ("warmup", 0), ("rounds", 1)):
        if getattr(arguments, flag) < least:
            raise ArgumentError(f"--{flag} is {getattr(arguments, flag)}, but {least} or more is needed.")
    if not arguments.timeout > 0:
        raise ArgumentError(f"--timeout is {arguments.timeout:g}, but seconds above 0 are needed.")
    for strategy in _strategies(arguments):
        if strategy not in STRATEGIES:
            raise ArgumentError(f"The strategy is {strategy!r}, but {', '.join(STRATEGIES)} are possible.")
    try:
        devices = parse_devices(arguments.devices)
        if len(devices) < 2:
            raise ArgumentError(f"The device list {arguments.devices!r} names one device, but several are compared "
                                "with one: give 2 or more.")
        contexts(arguments.devices)
    except DeviceError as error:
        raise ArgumentError(str(error)) from None
    shapes = parse_input_shapes(arguments.input_shape)
    batch = DEFAULT_BATCH_SIZE if arguments.batch_size is None and shapes is None else arguments.batch_size
    loaded = _loaded(arguments, batch, shapes)
    size = loaded.batch_size or 0
    if size < len(devices):
        raise ArgumentError(f"The batch is of {size} samples, but there are {len(devices)} devices, each of which gets "
                            "some in data parallelism: give a batch of that many or more.")
    other = next((name for name, shape in loaded.input_shapes.items() if shape[:1] != (size,)), None)
    if other is not None:
        raise ArgumentError(f"The input {other} has the shape {'x'.join(map(str, loaded.input_shapes[other]))}, but "
                            f"the first one holds a batch of {size}: give all inputs the same first extent.")
    return {"task": [_TASK, arguments.model, batch, shapes, arguments.dtype, arguments.classes],
            "batch_size": size, "dtype": arguments.dtype, "warmup": arguments.warmup, "repeat": arguments.steps}


def _loaded(arguments: argparse.Namespace, batch: Optional[int], shapes: Any) -> Any:
    from soybean_mx import model_loading  # imports MXNet

    try:
        loaded = model_loading.load(arguments.model, batch, shapes, arguments.dtype, arguments.classes)
    except model_loading.ModelError as error:
        raise ArgumentError(str(error)) from None
    if loaded.notes:
        raise ArgumentError(f"{loaded.notes[0]} It cannot be trained without them: name a function that returns a "
                            "block that trains as it is, as module:function.")
    return loaded


def _strategies(arguments: argparse.Namespace) -> Tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in arguments.strategies.split(",")))


def _contenders(arguments: argparse.Namespace) -> List[Contender]:
    devices: Tuple[Device, ...] = tuple(parse_devices(arguments.devices))
    plain = ["serial", "serial_all_cores"] if devices[0][0] == "cpu" else ["serial"]
    names = [*plain, "data_parallel", *(f"soybean_mx:{strategy}" for strategy in _strategies(arguments))]
    return [running.make_contender(name, devices, running.cores()) for name in names]


def _report(arguments: argparse.Namespace, workload: Mapping[str, Any], chosen: Sequence[Contender],
            rounds: Mapping[str, Sequence[Mapping[str, Any]]]) -> Dict[str, Any]:
    """What ``--json`` prints."""
    return {"model": arguments.model, "batch_size": workload["batch_size"], "dtype": arguments.dtype,
            "devices": arguments.devices, "steps": arguments.steps, "rounds": arguments.rounds,
            "machine": running.machine(),
            "contenders": [{"name": contender.name, "title": _title(contender), "devices": len(contender.devices),
                            "threads_per_device": contender.threads, **_figures(contender.name, rounds)}
                           for contender in chosen]}


def _title(contender: Contender) -> str:
    return _TITLES.get(contender.name) or f"soybean_mx, {contender.strategy}"


def _figures(name: str, rounds: Mapping[str, Sequence[Mapping[str, Any]]]) -> Dict[str, Any]:
    found = running.summarise(rounds[name])
    if "seconds" not in found:
        return {"error": found["error"]}
    failed = found.get("errors")
    result = {"error": failed[0] if failed else None, "seconds": found["seconds"], "seconds_min": found["seconds_min"],
              "seconds_max": found["seconds_max"], "seconds_all": found["seconds_all"],
              "processor_seconds": found["processor_seconds"],
              "peak_bytes": found["peak_bytes"], "bytes_moved": found["bytes_moved"],
              "first_loss": found["first_loss"], "last_loss": found["last_loss"]}
    for member, base in _BASES.items():
        speedups = running.ratios(rounds[base], rounds[name])  # the other's seconds to this one's
        result[member] = None if not speedups else {
            "speedup": statistics.median(speedups), "least": min(speedups), "most": max(speedups)}
    return result


def _print(report: Mapping[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from soybean_mx.plan_report import console, size

    out, machine = console(), report["machine"]
    out.print(Text(f"{report['model']}, batch {report['batch_size']}, {report['dtype']}, {report['devices']}: "
                   f"rounds: {report['rounds']}, steps in each: {report['steps']}; medians (least-most)"))
    out.print(Text(f"{machine['processor']}, {machine['cores']} cores, load {machine['load']:.1f}, MXNet "
                   f"{machine['mxnet']}"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("", "devices", "seconds per step", "of processors", "speed / one device", "speed / data parallelism",
                   "peak memory", "moved"):
        table.add_column(column, justify="left" if column == "" else "right", overflow="fold")
    for item in report["contenders"]:
        if "seconds" not in item:
            table.add_row(item["title"], str(item["devices"]), "failed", *["-"] * 5)
            continue
        table.add_row(
            item["title"], str(item["devices"]),
            f"{item['seconds']:.3f} ({item['seconds_min']:.3f}-{item['seconds_max']:.3f})",
            f"{item['processor_seconds']:.3f}",
            *(_speedup(item[member]) for member in _BASES), size(item["peak_bytes"]), size(item["bytes_moved"]))
    out.print(table)
    for item in report["contenders"]:
        if item["error"] is not None:
            which = "some rounds" if "seconds" in item else "every round"
            out.print(Text(f"{item['title']}: {which} failed: {item['error']}"), soft_wrap=True)


def _speedup(found: Optional[Mapping[str, float]]) -> str:
    return "-" if found is None else f"{found['speedup']:.2f}x ({found['least']:.2f}-{found['most']:.2f})"
