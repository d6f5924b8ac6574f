"""``soybean-mx simulate``: what a training step would take, as a simulator plays it (docs/simulation.md)."""
from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

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
from soybean_mx.topology import Device, Level, Topology

ROOFLINE, MEASURED = "roofline", "measured"
# Those of soybean_mx.simulation.pipelines, which take a batch in microbatches and which do not.
_IN_MICROBATCHES = ("2bw", "flush", "gpipe")
SCHEDULES = ("1f1b", "1f1b-vertical-sync", *_IN_MICROBATCHES)
# How many contexts operators are measured on at once.
_MOST_MEASURED = 16
# What only plans of tilings take, and only pipelines.
_OF_TILINGS = {"strategy": "--strategy", "plan": "--plan", "pin": "--pin", "pins": "--pins", "compare": "--compare",
               "objective": "--objective", "memory_limit": "--memory-limit", "spatial": "--spatial",
               "batch_norm": "--batch-norm"}
_OF_PIPELINES = ("schedule", "microbatches")
_DEFAULTS = {"strategy": os.environ.get("SOYBEAN_MX_STRATEGY") or "optimal", "objective": "bytes", "spatial": "auto"}
_WHY_NOT = {False: "whose stages are planned by their predicted times", True: "whose profile says what it computes"}


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
    pipelines = parser.add_argument_group("pipelines")
    pipelines.add_argument("--pipeline", type=int, metavar="G",
                           help="a pipeline whose stages are tiled over G devices each; 1: not tiled")
    pipelines.add_argument("--profile", action="store_true",
                           help="MODEL is a profile in PipeDream's format: a pipeline by its times, with replicated "
                                "stages as `soybean-mx stages` plans them")
    pipelines.add_argument("--schedule", choices=SCHEDULES, help="default: 1f1b")
    pipelines.add_argument("--microbatches", type=int, metavar="M",
                           help="of a batch, for flush, gpipe and 2bw; default: 8 for these")
    parser.add_argument("--trace", metavar="FILE", help="write a chrome trace, for Perfetto or chrome://tracing")
    parser.add_argument("--beside", metavar="FILE",
                        help="add a trace of a real run (`soybean-mx run --trace`) to the file of --trace")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(function=run, prog=parser.prog)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; raises what :func:`soybean_mx.cli.main` tells."""
    _check(arguments)
    if arguments.pipeline is not None or arguments.profile:
        return _run_pipeline(arguments)
    return _run(arguments)


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
    pipelined = arguments.pipeline is not None or arguments.profile
    for option in _OF_PIPELINES:
        if not pipelined and getattr(arguments, option) is not None:
            raise ArgumentError(f"--{option} {getattr(arguments, option)} was given without a pipeline: give "
                                "--pipeline G or --profile too.")
    if pipelined:
        _check_pipeline(arguments)
    for option in ("trace", "write_times"):
        path = getattr(arguments, option)
        if path is not None and (os.path.isdir(path) or not os.access(os.path.dirname(os.path.abspath(path)),
                                                                      os.W_OK | os.X_OK)):
            raise ArgumentError(f"The file of --{option.replace('_', '-')} {path!r} cannot be written: give another.")


def _check_pipeline(arguments: argparse.Namespace) -> None:
    given = [option for name, option in _OF_TILINGS.items()
             if getattr(arguments, name) != _DEFAULTS.get(name) and getattr(arguments, name)]
    given += [f"--{name.replace('_', '-')}" for name in ("batch_size", "classes", "input_shape", "input_gradients")
              if arguments.profile and getattr(arguments, name)]
    if given:
        raise ArgumentError(f"{given[0]} was given for a pipeline, {_WHY_NOT[arguments.profile]}: leave it out.")
    if arguments.profile and arguments.pipeline is not None:
        raise ArgumentError(f"Both --profile and --pipeline {arguments.pipeline} were given, but stages of a profile "
                            "are replicated and not tiled: leave one of them out.")
    if arguments.profile and arguments.times != ROOFLINE:
        raise ArgumentError(f"Both --profile and --times {arguments.times} were given, but a profile has times of its "
                            "own: leave one of them out.")
    if arguments.beside is not None:
        raise ArgumentError(f"--beside {arguments.beside} was given for a pipeline, whose own traces are of another "
                            "form: leave it out.")
    count = arguments.microbatches
    in_microbatches = arguments.schedule in _IN_MICROBATCHES
    if count is not None and (count < 1 or not in_microbatches):
        raise ArgumentError(f"--microbatches {count} was given with the schedule {arguments.schedule or '1f1b'}: give "
                            f"1 or more, with --schedule {', '.join(_IN_MICROBATCHES)}.")


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


def _run_pipeline(arguments: argparse.Namespace) -> int:
    from soybean_mx import simulate_report
    from soybean_mx.pipeline.combined import CombinationError
    from soybean_mx.simulation import chrome_trace
    from soybean_mx.simulation.pipelines import PipelineError, simulate_pipeline

    if arguments.topology is None:
        raise ArgumentError("A pipeline was asked for without a --topology, which says how fast links are: give one "
                            "(see `soybean-mx topology --list`).")
    topology = topologies.load(arguments.topology)
    if arguments.devices not in (None, topology.devices):
        raise ArgumentError(f"{arguments.devices} devices were given, but the topology {topology.name!r} has "
                            f"{topology.devices}: leave out --devices, or give a topology of that size.")
    schedule = arguments.schedule or SCHEDULES[0]
    microbatches = (arguments.microbatches or 8) if schedule in _IN_MICROBATCHES else 1
    states = OPTIMIZER_STATES.get(arguments.optimizer, arguments.optimizer_states)
    try:
        make = _profiled if arguments.profile else _tiled
        header, stages = make(arguments, topology, schedule, microbatches, states or 0)
        found = simulate_pipeline(stages, schedule, microbatches, topology)
    except (PipelineError, CombinationError) as error:
        raise ArgumentError(str(error)) from None
    if arguments.trace is not None:
        try:
            chrome_trace.write(arguments.trace, chrome_trace.of_simulation(
                found.simulation, f"{header['model']}, {schedule}"))
        except OSError as error:
            raise ArgumentError(f"The trace cannot be written to {arguments.trace!r} ({error.strerror}): give another "
                                "--trace.") from None
    report = {**header, "devices": topology.devices, "topology": topology.to_json(), "optimizer_states": states or 0,
              **simulate_report.pipeline_summary(found)}
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        simulate_report.print_pipeline(report)
    return 0


def _profiled(arguments: argparse.Namespace, topology: Topology, schedule: str, microbatches: int, states: int):
    """What a profile is, and the stages that the planner makes of it."""
    from soybean_mx.pipeline import profile as profiles
    from soybean_mx.pipeline.stages_command import device_levels, plan
    from soybean_mx.simulation.pipelines import profiled_stages

    profile = profiles.load(arguments.model)
    planned = plan(profile, {"levels": device_levels(None, None, topology), "optimizer_states": states})
    header = {"model": arguments.model, "batch_size": None, "times": "profile", "notes": []}
    return header, profiled_stages(profile, planned["stages"], planned["config"], topology, states)


def _tiled(arguments: argparse.Namespace, topology: Topology, schedule: str, microbatches: int, states: int):
    """What a model is, and the stages that the joint planner makes of it."""
    from soybean_mx.pipeline import combined
    from soybean_mx.simulation.pipelines import stage_steps, tiled_stages

    whole = load_model(arguments)
    if whole.batch_size is None or whole.batch_size % microbatches:
        raise ArgumentError(f"A batch of {whole.batch_size} cannot be cut into {microbatches} equal microbatches: give "
                            "a multiple as --batch-size.")
    part = whole
    if microbatches > 1:
        part = load_model(_for_microbatches(arguments, whole, microbatches))
    synchronous = schedule in ("flush", "gpipe") or microbatches > 1
    choices = {item.group: item for item in combined.compare(
        whole.graph, topology, "flush" if synchronous else "1f1b", microbatches, part.graph, states)
        if len(item.stages) > 1}
    if arguments.pipeline not in choices:
        possible = ", ".join(map(str, sorted(choices))) or "none"
        raise ArgumentError(f"--pipeline {arguments.pipeline} was given, but with {topology.devices} devices of "
                            f"{topology.name!r} stages can have {possible}: give one of these.")
    stages = choices[arguments.pipeline].stages
    times = None
    if arguments.times != ROOFLINE:
        steps = stage_steps(part.graph, stages, topology)
        times = _measured_or_read(arguments, steps, arguments.pipeline)
    header = {"model": whole.name, "batch_size": whole.batch_size, "times": arguments.times,
              "notes": list(whole.notes)}
    return header, tiled_stages(part.graph, stages, topology, times, states)


def _for_microbatches(arguments: argparse.Namespace, whole: Any, microbatches: int) -> argparse.Namespace:
    """The arguments for a microbatch of a model."""
    shapes = [f"{name}={shape[0] // microbatches}," + ",".join(map(str, shape[1:]))
              for name, shape in whole.input_shapes.items()]
    return argparse.Namespace(**{**vars(arguments), "batch_size": None, "input_shape": shapes})


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
        with progress.waiting(f"planning {request.loaded.name}"):
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
    from soybean_mx.simulation.operator_times import Roofline

    if arguments.times == ROOFLINE:
        return Roofline(request.topology.device)
    return _measured_or_read(arguments, steps, request.options["devices"])


def _measured_or_read(arguments: argparse.Namespace, steps: List[Any], devices: int) -> Any:
    from soybean_mx.simulation.operator_times import read_times

    if arguments.times != MEASURED:
        return read_times(arguments.times)
    if devices > _MOST_MEASURED:
        raise ArgumentError(f"--times measured was given for {devices} devices, but operators are measured on as many "
                            f"CPU contexts at once, {_MOST_MEASURED} at most: use --times roofline, or fewer devices.")
    import mxnet as mx

    from soybean_mx.simulation.measurement import measure_times

    with progress.bar("operators") as advance:
        times = measure_times(steps, [mx.cpu(device) for device in range(devices)], progress=advance)
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
