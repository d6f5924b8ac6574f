"""``soybean-mx simulate``: what a training step would take, as a simulator plays it (docs/simulation.md)."""
from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from soybean_mx import pins as user_pins
from soybean_mx import progress
from soybean_mx import topology as topologies
from soybean_mx.plan_command import (
    OPTIMIZER_STATES,
    STRATEGIES,
    ArgumentError,
    add_model_arguments,
    add_planner_arguments,
    load_model,
    planner_options,
    search,
)
from soybean_mx.topology import Device, Level, Topology, TopologyError

ROOFLINE, MEASURED = "roofline", "measured"


class Request(NamedTuple):
    """What is to be simulated.

    Attributes
    ----------
    loaded : soybean_mx.model_loading.LoadedModel
        The model.
    options : dict
        Of the planner.
    topology : Topology
        The devices and links.
    states : int or None
        Tensors that the optimizer keeps for each parameter; None: without updates.
    """

    loaded: Any
    options: Dict[str, Any]
    topology: Topology
    states: Optional[int]


def add(commands) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "simulate", help="predict the time, memory and traffic of a training step", description=(
            "Play a training step of a plan on a topology: every operator of every device, and every copy on its "
            "links. Nothing is run unless times are measured."))
    add_model_arguments(parser)
    add_planner_arguments(parser)
    parser.add_argument("--plan", metavar="FILE", help="a plan that `soybean-mx plan -o` wrote, in place of a search")
    parser.add_argument("--times", default=ROOFLINE, metavar=f"{ROOFLINE}|{MEASURED}|FILE",
                        help="what operators take: by the topology's device (default), measured now on CPU contexts, "
                             "or from a file that --write-times wrote")
    parser.add_argument("--write-times", metavar="FILE", help="write the measured times, with --times measured")
    parser.add_argument("--compare", action="store_true", help="simulate all strategies, side by side")
    parser.add_argument("--trace", metavar="FILE", help="write a chrome trace, for Perfetto or chrome://tracing")
    parser.add_argument("--beside", metavar="FILE",
                        help="add a trace of a real run (`soybean-mx run --trace`) to the file of --trace")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(function=run, prog=parser.prog)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Arguments that cannot be used end it with status 2, a plan that is refused with 1."""
    from soybean_mx.core import PlanError
    from soybean_mx.pipeline.profile import ProfileError
    from soybean_mx.simulation.chrome_trace import TraceError
    from soybean_mx.simulation.operator_times import TimesError

    try:
        _check(arguments)
        return _run(arguments)
    except (ArgumentError, TopologyError, user_pins.PinError, TimesError, TraceError, ProfileError) as error:
        status, message = 2, error
    except PlanError as error:
        status, message = 1, error
    print(f"{arguments.prog}: error: {' '.join(str(message).split())}", file=sys.stderr)
    return status


def _check(arguments: argparse.Namespace) -> None:
    if arguments.write_times is not None and arguments.times != MEASURED:
        raise ArgumentError(f"--write-times {arguments.write_times} was given with --times {arguments.times}, but only "
                            "measured times are written: give --times measured.")
    if arguments.beside is not None and arguments.trace is None:
        raise ArgumentError(f"--beside {arguments.beside} was given without --trace, to whose file it is added: give "
                            "--trace FILE.")
    for option in ("trace", "plan"):
        if arguments.compare and getattr(arguments, option) is not None:
            raise ArgumentError(f"Both --compare and --{option} {getattr(arguments, option)} were given, but that is "
                                "for one plan: leave one of them out.")
    for option in ("trace", "write_times"):
        path = getattr(arguments, option)
        if path is not None and (os.path.isdir(path) or not os.access(os.path.dirname(os.path.abspath(path)),
                                                                      os.W_OK | os.X_OK)):
            raise ArgumentError(f"The file of --{option.replace('_', '-')} {path!r} cannot be written: give another.")


def _run(arguments: argparse.Namespace) -> int:
    from soybean_mx import simulate_report

    request = _request(arguments)
    header = _header(arguments, request)
    if arguments.compare:
        plans, refused = _all_plans(request)
    else:
        plans, refused = {arguments.strategy: _plan(arguments, request)}, {}
    results, steps = _simulated(arguments, request, plans)
    if arguments.trace is not None:
        (name, simulation), = results.items()
        _write_trace(arguments, request, simulation, steps[name], f"{request.loaded.name}, {name}")
    items = [simulate_report.summary(simulation, name) for name, simulation in results.items()]
    if arguments.compare:
        items += [{"strategy": name, "error": error} for name, error in refused.items()]
    if arguments.json:
        print(json.dumps({**header, "strategies": items} if arguments.compare else {**header, **items[0]}, indent=1))
    elif arguments.compare:
        simulate_report.print_comparison(header, items)
    else:
        simulate_report.print_simulation(header, items[0])
    return 0


def _request(arguments: argparse.Namespace) -> Request:
    topology = topologies.load(arguments.topology) if arguments.topology else None
    options = planner_options(arguments, topology)
    states = OPTIMIZER_STATES.get(arguments.optimizer, arguments.optimizer_states)
    topology = topology or assumed(options["devices"])
    loaded = load_model(arguments)
    if not topology.device.copy_engines:  # CPU contexts, for which soybean_mx has operators of its own
        loaded = replace(loaded, graph={**loaded.graph, "own_operators": True})
    return Request(loaded, options, topology, states)


def assumed(devices: int) -> Topology:
    """The GPUs that the lowering assumes where nothing is known of the devices (docs/interface.md)."""
    return Topology("assumed GPUs", Device(1e13, 16e9, 5e11), (Level("link", max(2, devices), 1e10, 1e-5),))


def _plan(arguments: argparse.Namespace, request: Request) -> Dict[str, Any]:
    if arguments.plan is None:
        return search(request.loaded.graph, request.options)
    try:
        with open(arguments.plan, encoding="utf-8") as file:
            plan = json.load(file)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"The plan {arguments.plan!r} cannot be read ({error}): give a file that `soybean-mx plan "
                            "-o` wrote.") from None
    devices = plan.get("devices") if isinstance(plan, dict) else None
    if devices != request.options["devices"]:
        raise ArgumentError(f"The plan {arguments.plan!r} is for {devices} devices, but {request.options['devices']} "
                            "were given: give a plan for as many.")
    return plan


def _all_plans(request: Request) -> Tuple[Dict[str, Dict[str, Any]], Dict[str, str]]:
    """The plan of each strategy, and why others have none."""
    from soybean_mx.core import PlanError

    plans, refused = {}, {}
    with progress.bar("plans") as advance:
        for number, strategy in enumerate(STRATEGIES):
            if advance is not None:
                advance(number, len(STRATEGIES))
            try:
                plans[strategy] = search(request.loaded.graph, {**request.options, "strategy": strategy})
            except PlanError as error:
                refused[strategy] = " ".join(str(error).split())
    return plans, refused


def _simulated(arguments, request: Request, plans: Mapping[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The simulation, and the step, of each plan."""
    from soybean_mx.simulation.simulator import simulate_step
    from soybean_mx.simulation.steps import step_of

    options = {"copy_engines": request.topology.device.copy_engines}
    steps = {name: step_of(request.loaded.graph, plan, options) for name, plan in plans.items()}
    times = _times(arguments, request, list(steps.values()))
    results = {}
    with progress.bar("simulations") as advance:
        for number, (name, step) in enumerate(steps.items()):
            if advance is not None:
                advance(number, len(steps))
            results[name] = simulate_step(step, request.topology, times, optimizer_states=request.states)
    return results, steps


def _times(arguments: argparse.Namespace, request: Request, steps: List[Any]) -> Any:
    from soybean_mx.simulation.operator_times import Roofline, read_times

    if arguments.times == ROOFLINE:
        return Roofline(request.topology.device)
    if arguments.times != MEASURED:
        return read_times(arguments.times)
    import mxnet as mx

    from soybean_mx.simulation.measurement import measure_times

    with progress.bar("operators") as advance:
        times = measure_times(steps, [mx.cpu(device) for device in range(request.options["devices"])],
                              progress=advance)
    if arguments.write_times is not None:
        try:
            times.write(arguments.write_times)
        except OSError as error:
            raise ArgumentError(f"The times cannot be written to {arguments.write_times!r} ({error.strerror}): give "
                                "another --write-times.") from None
    return times


def _header(arguments: argparse.Namespace, request: Request) -> Dict[str, Any]:
    loaded = request.loaded
    return {"model": loaded.name, "batch_size": loaded.batch_size,
            "input_shapes": {name: list(shape) for name, shape in loaded.input_shapes.items()},
            "devices": request.options["devices"], "topology": request.topology.to_json(), "times": arguments.times,
            "optimizer_states": request.states, "notes": list(loaded.notes)}


def _write_trace(arguments: argparse.Namespace, request: Request, simulation: Any, step: Any, name: str) -> None:
    from soybean_mx.simulation import chrome_trace

    parts = [chrome_trace.of_simulation(simulation, name, chrome_trace.operator_names(step))]
    if arguments.beside is not None:
        parts.append(chrome_trace.read(arguments.beside))
    try:
        chrome_trace.write(arguments.trace, *parts)
    except OSError as error:
        raise ArgumentError(f"The trace cannot be written to {arguments.trace!r} ({error.strerror}): give another "
                            "--trace.") from None
