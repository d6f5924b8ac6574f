"""Time, memory and result of planning, for the networks of the model zoos, and planning time by depth.

Without ``--models`` and ``--depth``, every model of ``mxnet.gluon.model_zoo.vision``, every image classifier of GluonCV
where that is installed, BERT-large and the curves of planning time by depth. Each model is planned in a process of its
own, one at a time, so that its peak memory is its own. Nothing is run or downloaded.
"""
from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
from mxnet.gluon.model_zoo import vision
from rich.table import Table
from soybean_mx import plan_report
from soybean_mx.benchmark.contenders import machine
from soybean_mx.devices import MAX_DEVICES
from soybean_mx.files import write_json, write_text
from tqdm import tqdm

BASELINES = ("data", "model", "owt", "megatron", "recursive", "spartan", "zero")
DEVICES = (8, 64, 1024)
DEPTH_DEVICES = (8,)
SAMPLES_PER_DEVICE = 32  # 256 on 8 devices, as in bench_peers.py
PATIENCE = 10.0  # seconds after which a plan is not repeated
LAYERS = (10, 30, 100, 300, 1000)  # of the perceptrons
TIMES = (1, 3, 10)  # as many blocks as ResNet-50
GIBIBYTE = 2 ** 30

# GluonCV's modules of networks that classify images; the others are of other tasks.
_CLASSIFIERS = {"alexnet", "cifarresnet", "cifarresnext", "cifarwideresnet", "densenet", "dla", "googlenet", "hrnet",
                "inception", "mobilenet", "mobilenetv3", "nasnet", "pruned_resnet.resnetv1b_pruned",
                "quantized.quantized", "residual_attentionnet", "resnest", "resnet", "resnetv1b", "resnext", "senet",
                "shufflenet", "squeezenet", "vgg", "xception", "yolo.darknet"}
# Of these modules: segmentation, and what is quantized of other tasks.
_OTHER_TASK = r"^hrnet_.*_s$|_(voc|coco|ucf101|kinetics400)_int8$|^simple_pose_"


@dataclass(frozen=True)
class Model:
    """A model and how it is asked for.

    Attributes
    ----------
    name : str
        In tables.
    path : str
        As `soybean-mx plan` takes it.
    sample_shapes : tuple of tuple of int, optional
        Of its inputs without the batch; None for models of the zoos.
    """

    name: str
    path: str
    sample_shapes: Optional[Tuple[Tuple[int, ...], ...]] = None


@dataclass(frozen=True)
class Request:
    """What one process of ``plan_measurement.py`` is to do."""

    model: str
    sample_shapes: Optional[Tuple[Tuple[int, ...], ...]]
    devices: Tuple[int, ...]
    baselines: Tuple[str, ...]
    repeat: int
    batch_size: Optional[int]
    samples_per_device: int = SAMPLES_PER_DEVICE
    patience: float = PATIENCE


@dataclass(frozen=True)
class Requirement:
    """A limit on one figure of some models.

    Attributes
    ----------
    text : str
        What is required.
    models : str
        A pattern for whole names.
    devices : int, optional
        Where it holds; None: everywhere.
    figure : str
        A member of a measured plan.
    limit : float
        The most that it may be.
    """

    text: str
    models: str
    devices: Optional[int]
    figure: str
    limit: float


REQUIREMENTS = (
    Requirement("VGG-16 on 8 devices within 20 ms", r"vgg16", 8, "seconds", 0.020),
    Requirement("ResNet-152 on 8 devices within 200 ms", r"resnet152_v[12]", 8, "seconds", 0.200),
    Requirement("every model on 1,024 devices within 2 s", r".*", 1024, "seconds", 2.0),
    Requirement("peak memory of the process below 500 MB", r".*", None, "peak_bytes", 500e6),
)


@dataclass(frozen=True)
class Sheet:
    """A table for people, in the terminal or in Markdown; the columns after the first hold `figures`, or else text."""

    title: str
    headings: Tuple[str, ...]
    rows: Tuple[Tuple[str, ...], ...]
    figures: bool = True

    def rich(self) -> Table:
        """For the terminal."""
        table = Table(title=self.title, title_justify="left")
        for index, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if index and self.figures else "left", no_wrap=not index)
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """For documents."""
        lines = ["| " + " | ".join(cells) + " |" for cells in (self.headings, *self.rows)]
        rule = "|---" + ("|---:" if self.figures else "|---") * (len(self.headings) - 1) + "|"
        return "\n".join([f"## {self.title}", "", lines[0], rule, *lines[1:], ""])


# -- models --------------------------------------------------------------------------------------------------------

BERT = Model("bert_large", "language_models:bert_large", ((512,),))


def zoo_models() -> Tuple[List[Model], Dict[str, str]]:
    """All models of the zoos, each name once, MXNet's first; and those left out, with the reason."""
    names, skipped = mxnet_names(), {}
    try:
        theirs = importlib.import_module("gluoncv.model_zoo.model_zoo")._models
    except ImportError:
        skipped["GluonCV's models"] = "GluonCV is not installed (pip install soybean_mx[zoo])"
        theirs = {}
    for name, function in theirs.items():
        module = function.__module__[len("gluoncv.model_zoo."):]
        if module not in _CLASSIFIERS or re.search(_OTHER_TASK, name) or name in names:
            continue
        if module.startswith("quantized"):
            skipped[name] = "quantized: for inference only"
        else:
            names.append(name)
    return [Model(name, name) for name in names], skipped


def mxnet_names() -> List[str]:
    """The names of ``mxnet.gluon.model_zoo.vision``, which says them in its error only."""
    try:
        vision.get_model("")
    except ValueError as error:
        return str(error).split("\n\t")[1:]
    raise AssertionError("MXNet has a model without a name.")


def named(names: Iterable[str]) -> List[Model]:
    """The models that ``--models`` asks for."""
    return [BERT if name == BERT.name else Model(name, name) for name in names]


def depth_models() -> List[Model]:
    """The networks of the curves of planning time by depth."""
    perceptrons = [Model(f"perceptron_{n}", f"depth_networks:perceptron_{n}", ((1024,),)) for n in LAYERS]
    return perceptrons + [Model(f"resnet_{n}", f"depth_networks:resnet_{n}", ((3, 224, 224),)) for n in TIMES]


# -- measuring -----------------------------------------------------------------------------------------------------


def measure(model: Model, request: Request, timeout: float) -> Dict[str, Any]:
    """Plan one model in a process of its own.

    Returns
    -------
    dict
        ``plans`` and ``baselines``, as ``plan_measurement.py`` prints them; ``skipped`` with the reason where the model
        cannot be loaded, ``failed`` where the process did not end well.
    """
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plan_measurement.py")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SOYBEAN_MX")}
    command = [sys.executable, script, json.dumps(asdict(request))]
    result: Dict[str, Any] = {"model": model.name, "devices": list(request.devices), "plans": [], "baselines": []}
    try:
        process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 timeout=timeout)
        printed = process.stdout
        if process.returncode < 0:
            result["failed"] = f"ended by {signal.Signals(-process.returncode).name}"
        elif process.returncode > 0:
            result["failed"] = (process.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
    except subprocess.TimeoutExpired as expired:
        printed = expired.stdout or b""
        result["failed"] = f"not done after {timeout:g} s"
    for line in printed.decode("utf-8").splitlines():
        item = json.loads(line)
        if "skipped" in item:
            result["skipped"] = item["skipped"]
        else:
            result["plans" if item["strategy"] == "optimal" else "baselines"].append(item)
    return result


def measure_all(models: Sequence[Model], devices: Sequence[int], baselines: Sequence[str],
                args: argparse.Namespace) -> List[Dict[str, Any]]:
    """Plan all models, one after the other; an interrupt ends it with what has been measured."""
    results: List[Dict[str, Any]] = []
    try:
        progress = tqdm(models, unit="model", file=sys.stderr)
        for model in progress:
            progress.set_postfix_str(model.name)
            request = Request(model.path, model.sample_shapes, tuple(devices), tuple(baselines), args.repeat,
                              args.batch_size)
            results.append(measure(model, request, args.timeout))
    except KeyboardInterrupt:  # hours of measuring are not to be lost
        results += [{"model": model.name, "devices": list(devices), "plans": [], "baselines": [],
                     "failed": "interrupted before it was measured"} for model in models[len(results):]]
    return results


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The k of ``seconds = c * sizes ** k`` that fits best, by least squares of the logarithms; NaN for one point."""
    if len(sizes) < 2:
        return math.nan
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def fit_depth(results: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """For every kind of network and number of devices, its points and the exponent of time by operators."""
    curves: Dict[Tuple[str, int], List[Dict[str, Any]]] = {}
    for result in results:
        kind, _, depth = result["model"].rpartition("_")
        for plan in result["plans"]:
            curves.setdefault((kind, plan["devices"]), []).append({"depth": int(depth), **plan})
    return [{"network": kind, "devices": devices, "points": points,
             "exponent": exponent([point["nodes"] for point in points], [point["seconds"] for point in points])}
            for (kind, devices), points in curves.items()]


def check(results: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The requirements, with the worst figure of each.

    Returns
    -------
    list of dict
        ``met`` is False too where a model's process ended before the plan in question, as then nothing shows that it is
        met (these are ``unfinished``); it is None where nothing was asked for that the requirement is about.
    """
    found = []
    for requirement in REQUIREMENTS:
        concerned = [result for result in results if re.fullmatch(requirement.models, result["model"])]
        figures = [(plan[requirement.figure], result["model"]) for result in concerned for plan in result["plans"]
                   if requirement.devices in (None, plan["devices"])]
        unfinished = [result["model"] for result in concerned
                      if "failed" in result and requirement.devices in (None, *result["devices"])
                      and requirement.devices not in [plan["devices"] for plan in result["plans"]]]
        worst, model = max(figures, default=(None, None))
        missed = sum(value > requirement.limit for value, _ in figures)
        found.append({"required": requirement.text, "figure": requirement.figure, "limit": requirement.limit,
                      "worst": worst, "worst_model": model, "measured": len(figures), "missed": missed,
                      "unfinished": unfinished,
                      "met": not missed and not unfinished if figures or unfinished else None})
    return found


# -- printing ------------------------------------------------------------------------------------------------------


def sheets(report: Dict[str, Any]) -> List[Sheet]:
    """All tables of a report."""
    found = []
    if report["models"]:
        found.append(_requirements_sheet(report["requirements"]))
        found += [_plans_sheet(report["models"], devices, report["baselines"]) for devices in report["devices"]]
    if report["depth"]:
        found.append(_depth_sheet(report["depth"]))
    left_out = _left_out(report)
    if left_out:
        found.append(Sheet("Left out, or not completed", ("model", "reason"), tuple(left_out.items()), False))
    return found


def _left_out(report: Dict[str, Any]) -> Dict[str, str]:
    reasons = dict(report["skipped"])
    for result in report["models"] + report["depth_models"]:
        if "skipped" in result or "failed" in result:
            reasons[result["model"]] = result.get("skipped") or result["failed"]
    return reasons


def _requirements_sheet(requirements: Iterable[Dict[str, Any]]) -> Sheet:
    rows = []
    for item in requirements:
        if item["met"] is None:
            rows.append((item["required"], "-", "-", "-", "not measured"))
            continue
        is_memory = item["figure"] == "peak_bytes"
        worst = plan_report.seconds(item["worst"])
        if is_memory and item["worst"] is not None:
            worst = f"{item['worst'] / 1e6:.0f} MB"
        rows.append((item["required"], worst, item["worst_model"] or "-",
                     f"{item['measured'] - item['missed']} of {item['measured'] + len(item['unfinished'])}",
                     "yes" if item["met"] else "no"))
    return Sheet("Required", ("required", "worst", "of", "plans that meet it (of measured and unfinished)",
                              "met"), tuple(rows), False)


def _plans_sheet(results: Iterable[Dict[str, Any]], devices: int, baselines: Sequence[str]) -> Sheet:
    rows = []
    for result in results:
        for plan in (plan for plan in result["plans"] if plan["devices"] == devices):
            ratios = {item["strategy"]: item["bytes"] / plan["bytes"] if plan["bytes"] else math.nan
                      for item in result["baselines"] if item["devices"] == devices and "bytes" in item}
            rows.append((result["model"], str(plan["nodes"]), str(plan["width"]), f"{plan['seconds'] * 1e3:.1f}",
                         f"{plan['bytes'] / GIBIBYTE:.3f}", f"{plan['lower_bound_bytes'] / GIBIBYTE:.3f}",
                         "exact" if plan["exact"] else f"{100 * plan['gap']:.2g} %",
                         *(f"{ratios[name]:.3g}" if name in ratios else "-" for name in baselines),
                         f"{plan['peak_bytes'] / 1e6:.0f}"))
    headings = ("model", "nodes", "width", "ms", "GiB", "bound", "gap", *(f"{name} x" for name in baselines), "peak MB")
    return Sheet(f"{devices:,} devices".replace(",", " "), headings, tuple(rows))


def _depth_sheet(curves: Iterable[Dict[str, Any]]) -> Sheet:
    rows = []
    for curve in curves:
        rows += [(f"{curve['network']} {point['depth']}", f"{curve['devices']}", str(point["nodes"]),
                  str(point["width"]), f"{point['seconds'] * 1e3:.1f}", f"{point['peak_bytes'] / 1e6:.0f}", "")
                 for point in curve["points"]]
        rows[-1] = (*rows[-1][:-1], f"{curve['exponent']:.2f}")
    return Sheet("Planning time by depth", ("network", "devices", "nodes", "width", "ms", "peak MB",
                                            "exponent (time by nodes)"), tuple(rows))


def document(report: Dict[str, Any]) -> str:
    """The report as a Markdown document."""
    machine_text = ", ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
                             for key, value in report["machine"].items())
    batch = report["batch_size"] or f"{SAMPLES_PER_DEVICE} samples for each device"
    return "\n".join([
        "# What planning takes", "", "Written by:", "",
        "<!-- not run: hours; tests/scripts/test_bench_planner.py runs it smaller -->", "```sh", report["command"],
        "```", "",
        f"{report['date']}; {machine_text}. Batch: {batch}. \"ms\" is the median of {report['repeat']} searches (fewer "
        f"where one takes seconds), \"GiB\" what all devices together move in a step, \"bound\" what no plan goes "
        "below, and \"gap\" how far above it the plan is; \"x\" is what a baseline moves relative to the plan. \"peak "
        "MB\" is the largest resident memory of the process that planned the model on this and fewer devices, MXNet's "
        "own 190 MB or so included.", "", *(sheet.markdown() for sheet in sheets(report))])


# -- command line --------------------------------------------------------------------------------------------------


def parse_arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", type=_names, metavar="A,B,C", help="these only, by the names of the zoos or "
                        f"{BERT.name}")
    parser.add_argument("--depth", action="store_true", help="the curves of planning time by depth only, or with "
                        "--models too")
    parser.add_argument("--devices", type=_numbers, metavar="N,M", help="default: 8,64,1024, and 8 for depth")
    parser.add_argument("--batch-size", type=int, metavar="B", help="samples in a batch, whatever the number of "
                        f"devices; default: {SAMPLES_PER_DEVICE} for each device")
    parser.add_argument("--baselines", type=_names, default=list(BASELINES), metavar="A,B", help="what to compare the "
                        f"bytes with, out of {','.join(BASELINES)} (default: all), or none; they multiply the time")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="plans for a median time (default 3); "
                        f"fewer where they take {PATIENCE:g} s")
    parser.add_argument("--timeout", type=float, default=600, help="seconds after which a model's process is ended "
                        "(default 600); what it has measured is kept")
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE; -: to the output, instead of tables")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables to FILE")
    args = parser.parse_args(argv)
    args.baselines = [] if args.baselines == ["none"] else args.baselines
    for name in args.baselines:
        if name not in BASELINES:
            parser.error(f"--baselines {name!r} was given, but {', '.join(BASELINES)} or none are possible.")
    for flag in ("repeat", "batch_size"):
        value = getattr(args, flag)
        if value is not None and value < 1:
            parser.error(f"--{flag.replace('_', '-')} {value} was given, but at least 1 is needed.")
    for devices in args.devices or ():
        if not 1 <= devices <= MAX_DEVICES:
            parser.error(f"--devices {devices} was given, but 1 to {MAX_DEVICES} are possible.")
    return args


def _names(text: str) -> List[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> List[int]:
    return sorted({int(number) for number in text.split(",")})


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Measure and print; ends with status 1 when nothing could be planned."""
    args = parse_arguments(argv)
    given = sys.argv[1:] if argv is None else argv
    skipped: Dict[str, str] = {}
    if args.models is not None:
        models = named(args.models)
    elif args.depth:
        models = []
    else:
        models, skipped = zoo_models()
        models.append(BERT)
    deep = depth_models() if args.depth or args.models is None else []
    devices = args.devices or list(DEVICES)
    measured = measure_all(models, devices, args.baselines, args) if models else []
    depth = measure_all(deep, args.devices or DEPTH_DEVICES, (), args) if deep else []
    report = {"command": " ".join(["python scripts/bench_planner.py", *given]), "date": time.strftime("%Y-%m-%d"),
              "machine": machine(), "repeat": args.repeat, "batch_size": args.batch_size, "devices": devices,
              "baselines": args.baselines, "requirements": check(measured), "models": measured,
              "depth": fit_depth(depth), "depth_models": depth, "skipped": skipped}
    if args.markdown is not None:
        write_text(args.markdown, document(report))
    if args.json == "-":
        print(json.dumps(report, indent=1))
    else:
        console = plan_report.console()
        for sheet in sheets(report):
            console.print(sheet.rich())
        if args.json is not None:
            write_json(args.json, report)
    if not any(result["plans"] for result in measured + depth):
        sys.exit("bench_planner.py: no model could be planned; the reasons are above.")


if __name__ == "__main__":
    main()
