"""``soybean-mx plan``: what tiling a model over some devices would move, take and need, without any device."""
from __future__ import annotations

import argparse
import json
import os
import re
from fnmatch import fnmatchcase
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple, Union

from soybean_mx import pins as user_pins
from soybean_mx import progress
from soybean_mx import topology as topologies
from soybean_mx.devices import MAX_DEVICES
from soybean_mx.files import write_json
from soybean_mx.input_errors import InputError
from soybean_mx.topology import Topology

STRATEGIES = ("data", "model", "owt", "megatron", "recursive", "spartan", "zero", "optimal")
OBJECTIVES = ("bytes", "time")
BATCH_NORMS = ("exact", "fused", "local")
OPTIMIZER_STATES = {"sgd": 0, "momentum": 1, "adam": 2}
_UNITS = {"": 1, **{f"{prefix}B": 1000 ** power for power, prefix in enumerate(("", "k", "M", "G", "T"))},
          **{f"{prefix}iB": 1024 ** power for power, prefix in enumerate(("K", "M", "G", "T"), 1)}}


class ArgumentError(InputError):
    """Arguments that cannot be used; the message is one sentence for the user."""


def add(commands) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "plan", help="print the plan for a model", description=(
            "Search for the tiling of a model over some devices and print it. Nothing is run or downloaded, and no "
            "device is needed."))
    add_model_arguments(parser)
    add_planner_arguments(parser)
    parser.add_argument("--compare", action="store_true", help="print what all strategies cost, side by side")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the plan as JSON (docs/interface.md)")
    parser.add_argument("--html", metavar="FILE", help=(
        "write a page that shows the plans of all strategies: a graph of layers, tilings, memory, a time line "
        "(docs/explorer.md)"))
    parser.add_argument("--dot", metavar="FILE", help="write the plan as a graph for Graphviz")
    parser.set_defaults(function=run, prog=parser.prog)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, and what it is fed, to the arguments of a command."""
    parser.add_argument("model", metavar="MODEL", help=(
        "a name of mxnet.gluon.model_zoo.vision or of GluonCV's model zoo, module:function that returns a Gluon block, "
        "or an exported -symbol.json"))
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--batch-size", type=int, metavar="B", help="for models of the zoos; default: 256")
    shapes.add_argument("--input-shape", action="append", default=[], metavar="[NAME=]N,C,H,W",
                        help="the shape of an input with its batch; once for each input")
    parser.add_argument("--dtype", default="float32", help="float32 (default), float16 or float64")
    parser.add_argument("--classes", type=int, metavar="N", help="for models of the zoos")
    parser.add_argument("--input-gradients", action="store_true", help="ask for the gradients of the inputs too")


def add_planner_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the devices and the planner's options to the arguments of a command."""
    parser.add_argument("--devices", type=int, metavar="N", help="how many; default: the topology's")
    parser.add_argument("--topology", metavar="FILE|PRESET",
                        help="links and devices, for predicted times (see `soybean-mx topology --list`)")
    parser.add_argument("--objective", choices=OBJECTIVES, default="bytes",
                        help="least bytes moved (default), or least predicted time with a topology")
    parser.add_argument("--strategy", default=os.environ.get("SOYBEAN_MX_STRATEGY") or "optimal", metavar="NAME",
                        help=f"{', '.join(STRATEGIES)} or random:SEED; default: $SOYBEAN_MX_STRATEGY, or else optimal")
    parser.add_argument("--memory-limit", metavar="SIZE", help="what a device may hold, such as 12GB or 11GiB")
    optimizer = parser.add_mutually_exclusive_group()
    optimizer.add_argument("--optimizer", choices=tuple(OPTIMIZER_STATES), help="for the memory of its states")
    optimizer.add_argument("--optimizer-states", type=int, metavar="N", help="state tensors per parameter")
    parser.add_argument("--spatial", choices=("auto", "yes", "no"), default="auto",
                        help="whether height and width may be cut; auto: when there are more devices than samples")
    parser.add_argument("--pin", action="append", default=[], metavar="PATTERN=CHOICE[,CHOICE...]",
                        help="fix tensors or operators, such as 'fc*_weight=split 0'; may be repeated")
    parser.add_argument("--pins", metavar="FILE", help="the same from a JSON file; default: $SOYBEAN_MX_PINS")
    parser.add_argument("--batch-norm", choices=BATCH_NORMS, help="default: $SOYBEAN_MX_BATCH_NORM, or else exact")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; raises what :func:`soybean_mx.cli.main` tells."""
    topology = topologies.load(arguments.topology) if arguments.topology else None
    options = planner_options(arguments, topology)
    if arguments.compare and arguments.output is not None:
        raise ArgumentError(f"Both --compare and -o {arguments.output} were given, but only one plan can be written: "
                            "run once more with --strategy and -o.")
    if arguments.compare and (arguments.html is not None or arguments.dot is not None):
        raise ArgumentError("Both --compare and --html or --dot were given, but one command does one of them: leave "
                            "out --compare (a page has all strategies side by side).")
    loaded = load_model(arguments)
    if arguments.compare:
        return _compare(arguments, loaded, options, topology)
    return _plan(arguments, loaded, options, topology)


def load_model(arguments: argparse.Namespace) -> Any:
    """The model that :func:`add_model_arguments` asks for.

    Raises
    ------
    ArgumentError
        When it cannot be loaded.
    """
    from soybean_mx import model_loading  # imports MXNet

    try:
        with progress.waiting(f"loading {arguments.model}"):
            return model_loading.load(arguments.model, arguments.batch_size, parse_input_shapes(arguments.input_shape),
                                      arguments.dtype, arguments.classes, arguments.input_gradients)
    except model_loading.ModelError as error:
        raise ArgumentError(str(error)) from None


def parse_input_shapes(
        texts: Iterable[str]) -> Union[None, Tuple[Tuple[int, ...], ...], Dict[str, Tuple[int, ...]]]:
    """The shapes of ``--input-shape``, in their order or by name; None for none.

    Raises
    ------
    ArgumentError
        When one is no list of numbers, or some are named and others not.
    """
    parsed = []
    for text in texts:
        name, _, numbers = text.rpartition("=")
        if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*,?\s*", numbers):
            raise ArgumentError(f"The input shape {text!r} is no list of numbers: write it as 256,3,227,227, or as "
                                "NAME=256,3,227,227.")
        parsed.append((name.strip(), tuple(int(number) for number in numbers.split(",") if number.strip())))
    if not parsed:
        return None
    names = {name for name, _ in parsed}
    if names == {""}:
        return tuple(shape for _, shape in parsed)
    if "" in names or len(names) != len(parsed):
        raise ArgumentError(f"The input shapes {', '.join(texts)} name some inputs and not others, or one twice: name "
                            "each once, or none.")
    return dict(parsed)


def planner_options(arguments: argparse.Namespace, topology: Optional[Topology]) -> Dict[str, Any]:
    """The planner's options (docs/interface.md) that :func:`add_planner_arguments` asks for.

    Raises
    ------
    ArgumentError, soybean_mx.pins.PinError
        When they cannot be used.
    """
    options: Dict[str, Any] = {"devices": _devices(arguments.devices, topology), "strategy": arguments.strategy,
                               "batch_norm": _batch_norm(arguments.batch_norm)}
    if arguments.strategy not in STRATEGIES and not re.fullmatch(r"random:\d+", arguments.strategy):
        raise ArgumentError(f"The strategy is {arguments.strategy!r}, but {', '.join(STRATEGIES)} and random:SEED are "
                            "possible.")
    if arguments.objective == "time" and topology is None:
        raise ArgumentError("The objective time was given without a topology, which says how fast links are: give "
                            "--topology too.")
    if arguments.objective != "bytes":
        options["objective"] = arguments.objective
    if arguments.spatial != "auto":
        options["spatial"] = arguments.spatial
    if topology is not None:
        options["topology"] = topology.to_json()
    if arguments.memory_limit is not None:
        options["memory_limit"] = parse_size(arguments.memory_limit)
    states = OPTIMIZER_STATES.get(arguments.optimizer, arguments.optimizer_states)
    if states is not None:
        if states < 0:
            raise ArgumentError(f"The number of optimizer states is {states}, but 0 or more is needed.")
        options["optimizer_states"] = states
    given = [user_pins.read(arguments.pins, "--pins")] if arguments.pins is not None else []
    given += [user_pins.parse(text) for text in arguments.pin]
    if given:
        options["pins"] = user_pins.merge(given)
    return options


def _batch_norm(given: Optional[str]) -> str:
    value = given or os.environ.get("SOYBEAN_MX_BATCH_NORM") or "exact"
    if value not in BATCH_NORMS:
        raise ArgumentError(f"SOYBEAN_MX_BATCH_NORM is {value!r}, but {', '.join(BATCH_NORMS)} are possible.")
    return value


def _devices(given: Optional[int], topology: Optional[Topology]) -> int:
    if given is None and topology is None:
        raise ArgumentError("The number of devices was not given: give --devices N, or a --topology.")
    if given is not None and not 1 <= given <= MAX_DEVICES:
        raise ArgumentError(f"The number of devices is {given}, but 1 to {MAX_DEVICES} are possible.")
    if topology is None:
        return given
    if given is not None and given != topology.devices:
        raise ArgumentError(f"{given} devices were given, but the topology {topology.name!r} has {topology.devices}: "
                            "leave out --devices, or give a topology of that size.")
    return topology.devices


def parse_size(text: str) -> int:
    """Bytes of a text such as ``12GB`` (1000 to the power of 3) or ``11GiB`` (1024).

    Raises
    ------
    ArgumentError
        When it is not of that form, or not above 0.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    units = {unit.lower(): factor for unit, factor in _UNITS.items()}
    if match is None or match.group(2).lower() not in units or float(match.group(1)) == 0:
        raise ArgumentError(f"The size {text!r} is no number of bytes above 0: write it as 12GB, 11GiB or 12000000000.")
    return int(float(match.group(1)) * units[match.group(2).lower()])


def search(graph: Mapping[str, Any], options: Mapping[str, Any]) -> Dict[str, Any]:
    """Plan, and check that every pin of the user was about something.

    Raises
    ------
    soybean_mx.core.PlanError
        When the plan is refused.
    soybean_mx.pins.PinError
        When a pin matches nothing.
    """
    from soybean_mx import core

    if "pins" not in options:
        names = {node["name"] for node in json.loads(graph["symbol"])["nodes"]}
        of_any = user_pins.matching(user_pins.from_environment(), names)
        return core.plan(graph, {**options, **({"pins": of_any} if of_any else {})})
    plan = core.plan(graph, options)
    names = {*plan["tensors"], *plan["operators"]}
    for pattern in options["pins"]:
        if pattern not in names and not any(fnmatchcase(name, pattern) for name in names):
            raise user_pins.PinError(f"The pin {pattern!r} matches no tensor and no operator of the model: see their "
                                     "names with --json, under tilings and operators.")
    return plan


def _header(arguments: argparse.Namespace, loaded, options: Mapping[str, Any], topology: Optional[Topology]):
    return {"model": loaded.name, "batch_size": loaded.batch_size,
            "input_shapes": {name: list(shape) for name, shape in loaded.input_shapes.items()},
            "dtype": arguments.dtype, "devices": options["devices"], "strategy": options["strategy"],
            "batch_norm": options["batch_norm"],
            "topology": None if topology is None else topology.to_json(), "notes": list(loaded.notes)}


def _plan(arguments, loaded, options, topology) -> int:
    from soybean_mx import plan_report

    with progress.waiting(f"planning {loaded.name}"):
        plan = search(loaded.graph, options)
    header = {**_header(arguments, loaded, options, topology), **plan_report.summary(plan)}
    header["objective"] = header["objective"] or arguments.objective
    _write_pictures(arguments, header, loaded.graph, options, plan)
    if arguments.output is not None:
        try:
            write_json(arguments.output, plan)
        except OSError as error:
            raise ArgumentError(f"The plan cannot be written to {arguments.output!r} ({error.strerror}): give another "
                                "-o.") from None
    if arguments.json:
        print(json.dumps({**header, **plan_report.details(plan)}, indent=1))
    else:
        plan_report.print_plan(plan_report.console(), header, loaded.graph, plan)
    return 0


def _write_pictures(arguments, header, graph, options, plan) -> None:
    if arguments.html is None and arguments.dot is None:
        return
    from soybean_mx.explorer import output

    for option, path in (("--html", arguments.html), ("--dot", arguments.dot)):
        if path is None:
            continue
        try:
            if option == "--dot":
                output.write_dot(path, header, graph, plan)
            else:
                output.write_page(path, header, graph, options, STRATEGIES,
                                  lambda changed: search(graph, changed))
        except output.PageError as error:
            raise ArgumentError(str(error)) from None
        except OSError as error:
            raise ArgumentError(f"The file {path!r} cannot be written ({error.strerror}): give another "
                                f"{option}.") from None


def _compare(arguments, loaded, options, topology) -> int:
    from soybean_mx import plan_report
    from soybean_mx.core import PlanError

    items = []
    with progress.bar("strategies") as advance:
        best = plan_report.summary(search(loaded.graph, {**options, "strategy": "optimal"}))
        least = best["bytes_moved"]
        for strategy in STRATEGIES:
            try:
                costs = best if strategy == "optimal" else plan_report.summary(
                    search(loaded.graph, {**options, "strategy": strategy}))
                ratio = costs["bytes_moved"] / least if least else None
                items.append({**costs, "strategy": strategy, "ratio_to_optimal": ratio, "error": None})
            except PlanError as error:
                items.append({**dict.fromkeys(best), "strategy": strategy, "ratio_to_optimal": None,
                              "error": " ".join(str(error).split())})
            if advance is not None:
                advance(len(items), len(STRATEGIES))
    header = {**_header(arguments, loaded, options, topology), "objective": arguments.objective, "strategies": items}
    del header["strategy"]
    if arguments.json:
        print(json.dumps(header, indent=1))
    else:
        plan_report.print_comparison(plan_report.console(), header)
    return 0
