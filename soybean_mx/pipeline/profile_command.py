"""``soybean-mx profile``: times every layer of a Gluon model on one CPU context and writes a profile."""
from __future__ import annotations

import argparse
import json
import os
import re
import time
from typing import Any, Dict, List, Mapping

from soybean_mx import progress
from soybean_mx.plan_command import ArgumentError, parse_input_shapes

DEFAULT_BATCH_SIZE = 32
_MOST_LAYERS = 15


def add(commands) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "profile", help="time the layers of a model", description=(
            "Time every operator of a Gluon model, forward and backward, on one CPU context, and write a profile in "
            "the text format of PipeDream's profiler, which `soybean-mx stages` takes."))
    parser.add_argument("model", metavar="MODEL", help="as of `soybean-mx plan`")
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--batch-size", type=int, metavar="B",
                        help=f"for models of the zoos; default: {DEFAULT_BATCH_SIZE}")
    shapes.add_argument("--input-shape", action="append", default=[], metavar="[NAME=]N,C,H,W",
                        help="the shape of an input with its batch; once for each input")
    parser.add_argument("--dtype", default="float32", help="float32 (default), float16 or float64")
    parser.add_argument("--classes", type=int, metavar="N", help="for models of the zoos")
    parser.add_argument("--repeats", type=int, default=5, metavar="N",
                        help="how often each pass is timed; the median counts; default: 5")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: the model's name with .graph.txt")
    parser.set_defaults(function=run, prog=parser.prog)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; raises what :func:`soybean_mx.cli.main` tells."""
    report = _profile(arguments)
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        _print(report)
    return 0


def _profile(arguments: argparse.Namespace) -> Dict[str, Any]:
    if arguments.repeats < 1:
        raise ArgumentError(f"The number of repeats is {arguments.repeats}, but 1 or more is needed.")
    output = arguments.output or re.sub(r"[^\w.\-]+", "_", os.path.basename(arguments.model)) + ".graph.txt"
    folder = os.path.dirname(os.path.abspath(output))
    if not os.access(folder, os.W_OK | os.X_OK) or os.path.isdir(output):  # before minutes of work
        raise ArgumentError(f"The profile cannot be written to {output!r}: give another -o.")
    shapes = parse_input_shapes(arguments.input_shape)
    batch = arguments.batch_size
    if batch is None and shapes is None:
        batch = DEFAULT_BATCH_SIZE
    from soybean_mx import model_loading  # imports MXNet
    from soybean_mx.pipeline import layer_times

    try:
        loaded = model_loading.load(arguments.model, batch, shapes, arguments.dtype, arguments.classes)
    except model_loading.ModelError as error:
        raise ArgumentError(str(error)) from None
    start = time.perf_counter()
    with progress.bar("operators") as advance:
        found = layer_times.measure(loaded.graph, loaded.input_shapes, arguments.dtype, arguments.repeats, advance)
    try:
        found.profile.write(output)
    except OSError as error:
        raise ArgumentError(f"The profile cannot be written to {output!r} ({error.strerror}): give another "
                            "-o.") from None
    layers = [{"name": layer.name, "description": layer.description, "forward_ms": layer.forward_seconds * 1e3,
               "backward_ms": layer.backward_seconds * 1e3, "activation_bytes": layer.activation_bytes,
               "parameter_bytes": layer.parameter_bytes} for layer in found.profile.layers]
    return {"model": loaded.name, "batch_size": loaded.batch_size, "dtype": arguments.dtype,
            "input_shapes": {name: list(shape) for name, shape in loaded.input_shapes.items()},
            "repeats": arguments.repeats, "output": output, "notes": list(loaded.notes),
            "forward_ms": _total(layers, "forward_ms"), "backward_ms": _total(layers, "backward_ms"),
            "activation_bytes": _total(layers, "activation_bytes"),
            "parameter_bytes": _total(layers, "parameter_bytes"), "measured_operators": found.measured,
            "seconds": time.perf_counter() - start, "layers": layers,
            "edges": [list(edge) for edge in found.profile.edges]}


def _total(layers: List[Dict[str, Any]], member: str) -> float:
    return sum(layer[member] for layer in layers)


def _print(report: Mapping[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from soybean_mx.plan_report import console, seconds, size

    out = console()
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in report["input_shapes"].items())
    out.print(Text(f"{report['model']}, {shapes}: {seconds(report['forward_ms'] / 1e3)} forward, "
                   f"{seconds(report['backward_ms'] / 1e3)} backward, {size(report['parameter_bytes'])} of parameters, "
                   f"{size(report['activation_bytes'])} of outputs; {report['measured_operators']} different operators "
                   f"of {len(report['layers']) - len(report['input_shapes'])} measured in "
                   f"{seconds(report['seconds'])}"), soft_wrap=True)
    for note in report["notes"]:
        out.print(Text(f"note: {note}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("slowest layers", "operator", "forward", "backward", "outputs", "parameters"):
        table.add_column(column, justify="left" if column in ("slowest layers", "operator") else "right",
                         overflow="fold")
    slowest = sorted(report["layers"], key=lambda layer: -layer["forward_ms"] - layer["backward_ms"])
    for layer in slowest[:_MOST_LAYERS]:
        table.add_row(*map(Text, (layer["name"], layer["description"].partition("(")[0],
                                  seconds(layer["forward_ms"] / 1e3), seconds(layer["backward_ms"] / 1e3),
                                  size(layer["activation_bytes"]), size(layer["parameter_bytes"]))))
    out.print(table)
    out.print(Text(f"written to {report['output']}"), soft_wrap=True)
