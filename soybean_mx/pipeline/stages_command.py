"""``soybean-mx stages``: the stages of a pipeline for a profile, and what they take and need, without any device."""
from __future__ import annotations

import argparse
import json
import math
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from soybean_mx import progress
from soybean_mx import topology as topologies
from soybean_mx.pipeline import profile as profiles
from soybean_mx.pipeline.profile import Profile, ProfileError
from soybean_mx.plan_command import OPTIMIZER_STATES, ArgumentError, parse_size
from soybean_mx.topology import Topology

COST_MODELS = ("overlap", "released", "v1", "sosp")
SCHEDULES = ("1f1b", "flush")
MAX_DEVICES = 1024
# What only one of the command's two uses takes.
_OF_COMPARISONS = ("batch_size", "classes", "schedule", "microbatches")
_OF_PROFILES = ("devices", "bandwidth", "memory_limit", "output")
_PREFIXES = {"": 1, **{prefix: 1000 ** power for power, prefix in enumerate("kMGT", 1)},
             **{f"{prefix}i": 1024 ** power for power, prefix in enumerate("KMGT", 1)}}


def add(commands) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "stages", help="print the stages of a pipeline for a profile", description=(
            "Search for the stages of a pipeline, each on one device or replicated on several, for a profile of a "
            "network's layers (`soybean-mx profile`, or PipeDream's), and print them. Nothing is run."))
    parser.add_argument("profile", metavar="PROFILE",
                        help="a file in the text format of PipeDream's profiler; with --compare a model, as of plan")
    parser.add_argument("--devices", metavar="N[xM...]",
                        help="how many; 8x2: 8 in each of 2 servers. Default: the topology's")
    parser.add_argument("--bandwidth", metavar="RATE[,RATE...]",
                        help="of each device's links, in bytes/s or with a unit such as 10GB/s or 25Gb/s; one for each "
                             "number of --devices, the links within servers first")
    parser.add_argument("--topology", metavar="FILE|PRESET",
                        help="links and devices (see `soybean-mx topology --list`)")
    parser.add_argument("--cost-model", choices=COST_MODELS, default="overlap",
                        help="what a stage takes: overlap (default), or as published by PipeDream's authors")
    parser.add_argument("--memory-limit", metavar="SIZE", help="what a device may hold, such as 12GB or 11GiB")
    optimizer = parser.add_mutually_exclusive_group()
    optimizer.add_argument("--optimizer", choices=tuple(OPTIMIZER_STATES), help="for the memory of its states")
    optimizer.add_argument("--optimizer-states", type=int, metavar="N", help="state tensors per parameter; default: 0")
    compared = parser.add_argument_group("comparison of tilings and pipelines")
    compared.add_argument("--compare", action="store_true",
                          help="plan a model for a --topology as data parallelism, a tiling, a pipeline, and pipelines "
                               "whose stages are tiled, side by side")
    compared.add_argument("--batch-size", type=int, metavar="B", help="of the model; default: 256")
    compared.add_argument("--classes", type=int, metavar="N", help="of the model")
    compared.add_argument("--schedule", choices=SCHEDULES,
                          help="1f1b (default): every batch is a minibatch; flush: a batch is cut into microbatches")
    compared.add_argument("--microbatches", type=int, metavar="M", help="of a batch that is flushed; default: 8")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the profile with the stage of each layer")
    parser.set_defaults(function=run, prog=parser.prog)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; raises what :func:`soybean_mx.cli.main` tells."""
    topology = topologies.load(arguments.topology) if arguments.topology else None
    if arguments.compare:
        return _compare(arguments, topology)
    for option in _OF_COMPARISONS:
        if getattr(arguments, option) is not None:
            raise ArgumentError(f"--{option.replace('_', '-')} {getattr(arguments, option)} was given without "
                                "--compare, and a profile's batch is fixed: leave it out, or add --compare.")
    levels = device_levels(arguments.devices, arguments.bandwidth, topology)
    options = _options(arguments, levels)
    profile = profiles.load(arguments.profile)
    with progress.waiting(f"planning {arguments.profile}"):
        report = plan(profile, options)
    report = {"profile": arguments.profile, "topology": None if topology is None else topology.name, **report}
    if arguments.output is not None:
        try:
            profile.with_stages(report["stages"]).write(arguments.output)
        except OSError as error:
            raise ArgumentError(f"The profile cannot be written to {arguments.output!r} ({error.strerror}): give "
                                "another -o.") from None
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        _print(report, profile, topology)
    return 0


def _compare(arguments: argparse.Namespace, topology: Optional[Topology]) -> int:
    """``--compare``: a model's tilings and pipelines side by side."""
    from soybean_mx.pipeline import combined, combined_report

    if topology is None:
        raise ArgumentError("--compare was given without a --topology, which says how fast devices and links are: give "
                            "one (see `soybean-mx topology --list`).")
    for option in _OF_PROFILES:
        if getattr(arguments, option) is not None:
            raise ArgumentError(f"--{option.replace('_', '-')} {getattr(arguments, option)} was given with --compare, "
                                "which takes the devices and their memory from the topology: leave it out.")
    schedule = arguments.schedule or SCHEDULES[0]
    flushes = schedule == "flush"
    if arguments.microbatches is not None and not (flushes and arguments.microbatches > 0):
        raise ArgumentError(f"--microbatches {arguments.microbatches} was given with --schedule {schedule}: "
                            "give 1 or more, with --schedule flush.")
    microbatches = (arguments.microbatches or 8) if flushes else 1
    batch = arguments.batch_size or 256
    if batch % microbatches:
        raise ArgumentError(f"A batch of {batch} cannot be cut into {microbatches} equal microbatches: give a multiple "
                            "as --batch-size.")
    loaded = _loaded(arguments, batch)
    part = _loaded(arguments, batch // microbatches) if microbatches > 1 else None
    states = OPTIMIZER_STATES.get(arguments.optimizer, arguments.optimizer_states) or 0
    try:
        with progress.waiting(f"planning {arguments.profile}"):
            found = combined.compare(loaded.graph, topology, schedule, microbatches, part and part.graph, states)
    except combined.CombinationError as error:
        raise ArgumentError(str(error)) from None
    header = {"model": arguments.profile, "batch_size": batch, "topology": topology.name,
              "schedule": schedule, "microbatches": microbatches}
    items = combined_report.report(found)
    if arguments.json:
        print(json.dumps({**header, "combinations": items}, indent=1))
    else:
        combined_report.print_report(header, items)
    return 0


def _loaded(arguments: argparse.Namespace, batch: int):
    from soybean_mx import model_loading  # imports MXNet

    try:
        return model_loading.load(arguments.profile, batch, classes=arguments.classes)
    except model_loading.ModelError as error:
        raise ArgumentError(str(error)) from None


def _options(arguments: argparse.Namespace, levels: List[Dict[str, Any]]) -> Dict[str, Any]:
    options: Dict[str, Any] = {"levels": levels, "cost_model": arguments.cost_model}
    if arguments.memory_limit is not None:
        options["memory_limit"] = parse_size(arguments.memory_limit)
    states = OPTIMIZER_STATES.get(arguments.optimizer, arguments.optimizer_states)
    if states is not None:
        if states < 0:
            raise ArgumentError(f"The number of optimizer states is {states}, but 0 or more is needed.")
        options["optimizer_states"] = states
    return options


def parse_rate(text: str) -> float:
    """Bytes per second of a text: a number of them, or one with a unit.

    Parameters
    ----------
    text : str
        Such as ``25Gb/s`` (bits), ``10GB/s``, ``800MiB/s`` (bytes) or ``3.125e9``.

    Raises
    ------
    ArgumentError
        When it is not of that form, or not above 0.
    """
    match = re.fullmatch(r"\s*(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)\s*(?:([kKMGT]i?)?([Bb])(?:/s|ps))?\s*", text)
    prefix = (match.group(2) or "") if match else ""
    prefix = {"K": "k", "ki": "Ki"}.get(prefix, prefix)
    value = float(match.group(1)) * _PREFIXES[prefix] / (8 if match.group(3) == "b" else 1) if match else 0.0
    if not (value > 0 and math.isfinite(value)):
        raise ArgumentError(f"The bandwidth {text!r} is no number of bytes per second above 0: write it as 25Gb/s "
                            "(bits), 10GB/s, 800MiB/s (bytes) or 3125000000.")
    return value


def device_levels(devices: Optional[str], bandwidth: Optional[str],
                  topology: Optional[Topology]) -> List[Dict[str, Any]]:
    """The planner's option ``levels`` (docs/interface.md), the outermost first.

    Parameters
    ----------
    devices : str, optional
        Numbers with ``x`` between them, those within the innermost servers first.
    bandwidth : str, optional
        As many rates with commas between them, in the same order.
    topology : Topology, optional
        In place of both; ``devices`` may then repeat their number.

    Raises
    ------
    ArgumentError
        When something is missing or contradicts another.
    """
    if topology is not None:
        if bandwidth is not None:
            raise ArgumentError(f"Both --bandwidth {bandwidth} and the topology {topology.name!r} were given, which "
                                "has bandwidths of its own: leave one of them out.")
        if devices is not None and math.prod(_counts(devices)) != topology.devices:
            raise ArgumentError(f"{devices} devices were given, but the topology {topology.name!r} has "
                                f"{topology.devices}: leave out --devices, or give a topology of that size.")
        if topology.devices > MAX_DEVICES:
            raise ArgumentError(f"The topology {topology.name!r} has {topology.devices} devices, but at most "
                                f"{MAX_DEVICES} are possible.")
        return [{"groups": list(level.groups) if isinstance(level.groups, tuple) else level.groups,
                 "bandwidth": level.bandwidth} for level in topology.levels]
    if devices is None or bandwidth is None:
        raise ArgumentError("Devices and their links were not given: give --devices N and --bandwidth RATE, or a "
                            "--topology.")
    counts, rates = _counts(devices), [parse_rate(rate) for rate in bandwidth.split(",")]
    if len(counts) != len(rates):
        raise ArgumentError(f"--devices {devices} has {_levels(len(counts))} and --bandwidth {bandwidth} has "
                            f"{len(rates)}: give one bandwidth for each level, the innermost first.")
    return [{"groups": count, "bandwidth": rate} for count, rate in zip(counts, rates)][::-1]


def _levels(count: int) -> str:
    return f"{count} level{'s' * (count != 1)}"


def _counts(text: str) -> Tuple[int, ...]:
    parts = text.strip().split("x")
    if not all(re.fullmatch(r"\d{1,9}", part) for part in parts):
        raise ArgumentError(f"The devices {text!r} are no numbers: write 16, or 8x2 for 8 in each of 2 servers.")
    counts = tuple(int(part) for part in parts)
    if min(counts) < 1 or math.prod(counts) > MAX_DEVICES:
        raise ArgumentError(f"The devices are {text!r}, but 1 to {MAX_DEVICES} are possible.")
    return counts


def plan(profile: Profile, options: Mapping[str, Any]) -> Dict[str, Any]:
    """Search for stages, as the object that ``soybean-mx stages --json`` prints.

    Parameters
    ----------
    profile : Profile
        Of the network's layers.
    options : mapping
        Those of :func:`soybean_mx.core.stages`.

    Returns
    -------
    dict
        ``config`` holds the devices of each stage, ``stages`` the names of their layers (data belongs to the stage
        that reads it first, items that nothing reads to the stage that makes them), ``operators`` the same without
        data, as PipelineTrainer takes them, and ``stage_ms`` what the slowest takes for each minibatch.

    Raises
    ------
    ProfileError
        When the profile holds nothing but data.
    soybean_mx.core.PlanError
        When an option is invalid, or nothing fits into the memory limit.
    """
    from soybean_mx import core

    inputs, unused = profile.inputs(), profile.unused_items()
    if len(inputs) == len(profile.layers):
        raise ProfileError("The profile holds nothing but data: give one with layers that compute.")
    planned = profile.without([*inputs, *unused])
    found = core.stages(_with_data(planned, profile, inputs), dict(options))
    names = [[planned.layers[number].name for number in stage["layers"]] for stage in found["stages"]]
    stage_of = {name: number for number, stage in enumerate(names) for name in stage}
    for name in reversed(inputs):
        readers = [stage_of[reader] for source, reader in profile.edges if source == name and reader in stage_of]
        names[min(readers, default=0)].insert(0, name)
    for name, source in unused.items():
        names[stage_of.get(source, len(names) - 1)].append(name)
    seconds, stages, data = found["seconds"], found["stages"], set(inputs)
    layers = {layer.name: layer for layer in planned.layers}
    return {
        "devices": found["devices"], "levels": options["levels"], "cost_model": options.get("cost_model", "overlap"),
        "config": [stage["replicas"] for stage in stages], "config_text": _config(found["groups"]),
        "groups": found["groups"], "stages": names,
        "operators": [[name for name in stage if name not in data] for stage in names], "stage_ms": seconds * 1e3,
        "minibatches_per_second": 1 / seconds if seconds else None,
        "stage_times_ms": [stage["seconds"] * 1e3 for stage in stages],
        "boundary_times_ms": [boundary * 1e3 for boundary in found["boundary_seconds"]],
        "forward_ms": [sum(layers[name].forward_seconds for name in stage if name in layers) * 1e3 for stage in names],
        "backward_ms": [sum(layers[name].backward_seconds for name in stage if name in layers) * 1e3
                        for stage in names],
        "one_device_ms": found["one_device_seconds"] * 1e3, "data_parallel_ms": found["data_parallel_seconds"] * 1e3,
        "overlapped_data_parallel_ms": found["overlapped_data_parallel_seconds"] * 1e3,
        "speedup_over_one": _ratio(found["one_device_seconds"], seconds),
        "speedup_over_data_parallel": _ratio(found["data_parallel_seconds"], seconds),
        "speedup_over_overlapped_data_parallel": _ratio(found["overlapped_data_parallel_seconds"], seconds),
        "memory_bytes_per_stage": [stage["memory"]["total"] for stage in stages],
        "memory_per_stage": [stage["memory"] for stage in stages],
        "weight_versions": [stage["versions"] for stage in stages],
        "minibatches_in_flight": [stage["in_flight"] for stage in stages],
        "lower_bound_ms": found["lower_bound"] * 1e3, "exact": found["all_cuts"], "cuts": found["cuts"],
        "search_seconds": found["search_seconds"],
    }


def _with_data(planned: Profile, profile: Profile, inputs: Sequence[str]) -> Dict[str, Any]:
    """The planner's form, in which data counts for the memory of the first layer that reads it."""
    form = profiles.core_form(planned)
    position = {layer.name: number for number, layer in enumerate(planned.layers)}
    size = {layer.name: layer.activation_bytes for layer in profile.layers}
    for name in inputs:
        reader = next((reader for source, reader in profile.edges if source == name and reader in position), None)
        if reader is not None:
            layer = form["layers"][position[reader]]
            layer["data_bytes"] = layer.get("data_bytes", 0.0) + size[name]
    return form


def _config(groups: Sequence[Mapping[str, Any]]) -> str:
    return "-".join(str(group["replicas"]) + (f"({_config(group['stages'])})" if "stages" in group else "")
                    for group in groups)


def _ratio(value: float, seconds: float) -> Optional[float]:
    return value / seconds if seconds else None


def _print(report: Mapping[str, Any], profile: Profile, topology: Optional[Topology]) -> None:
    from rich.table import Table
    from rich.text import Text

    from soybean_mx.pipeline import timeline
    from soybean_mx.plan_report import console, seconds, size

    out = console()

    def say(text: str) -> None:
        out.print(Text(text), soft_wrap=True)

    def times(value: Optional[float]) -> str:
        return "-" if value is None else f"{value:.3f}x"

    bound, slowest = report["lower_bound_ms"], report["stage_ms"]
    proof = ("the best of all pipelines" if report["exact"] else f"the best of pipelines over {report['cuts']} cuts")
    gap = f", at most {100 * (slowest / bound - 1):.3g} % over what no pipeline is below" if bound else ""
    rows = [("profile", f"{report['profile']}, {len(profile.layers)} layers"),
            ("devices", f"{report['devices']}{', ' + report['topology'] if report['topology'] else ''}"),
            ("cost model", report["cost_model"]),
            ("replicas", f"{report['config_text']}, {proof}{gap}"),
            ("time", f"{seconds(slowest / 1e3)} for each minibatch" + (
                f", {report['minibatches_per_second']:.4g} minibatches/s" if slowest else "")),
            ("speedup", f"{times(report['speedup_over_one'])} over one device, "
                        f"{times(report['speedup_over_data_parallel'])} over data parallelism, "
                        f"{times(report['speedup_over_overlapped_data_parallel'])} where that overlaps its exchanges"),
            ("search time", seconds(report["search_seconds"]))]
    head = Table.grid(padding=(0, 2))
    for name, value in rows:
        head.add_row(name, Text(value, overflow="fold"))
    out.print(head)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("stage", "layers", "from", "to", "devices", "time", "memory", "of it weights", "older versions",
                   "gradients", "optimizer", "activations"):
        table.add_column(column, justify="left" if column in ("from", "to") else "right", overflow="fold")
    for number, names in enumerate(report["stages"]):
        memory, versions = report["memory_per_stage"][number], report["weight_versions"][number]
        table.add_row(*map(Text, (
            str(number), str(len(names)), names[0], names[-1], str(report["config"][number]),
            seconds(report["stage_times_ms"][number] / 1e3), size(memory["total"]), size(memory["weights"]),
            f"{versions - 1} x {size(memory['weights'])}", size(memory["gradients"]), size(memory["optimizer"]),
            f"{report['minibatches_in_flight'][number]} x "
            f"{size(memory['activations'] / report['minibatches_in_flight'][number])}")))
    out.print()
    out.print(table)
    if topology is not None and max(report["memory_bytes_per_stage"]) > topology.device.memory:
        say(f"MORE than the {size(topology.device.memory)} of a device: plan with --memory-limit "
            f"{topology.device.memory / 1e9:g}GB")
    out.print()
    for line in timeline.draw(report["config"], report["forward_ms"], report["backward_ms"]):
        say(line)
