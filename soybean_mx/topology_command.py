"""``soybean-mx topology``: shows, lists and measures topologies."""
from __future__ import annotations

import argparse
import json
import sys
from typing import Optional

from soybean_mx import progress, startup
from soybean_mx import topology as topologies
from soybean_mx.devices import VARIABLE, contexts, parse_devices
from soybean_mx.files import write_json
from soybean_mx.topology import PRESETS, Level, Topology, TopologyError


def add(commands) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "topology", help="show, list or measure how devices are linked", description=(
            "Show a topology, list the presets, or measure the devices that are here. `soybean-mx plan --topology` "
            "takes each."))
    parser.add_argument("name", metavar="PRESET|FILE", nargs="?",
                        help="a preset, hosts of one such as 4xp3.16xlarge@25Gb/s, or a JSON file")
    parser.add_argument("--list", action="store_true", help="list the presets")
    parser.add_argument("--measure", action="store_true", help="measure the devices that are here")
    parser.add_argument("--devices", metavar="LIST",
                        help="what to measure, such as cpu:4 or gpu:0-3; default: all GPUs, or else cpu:2")
    parser.add_argument("--json", action="store_true", help="print JSON, which `plan --topology` reads")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the topology as JSON")
    parser.set_defaults(function=run, prog=parser.prog)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; raises what :func:`soybean_mx.cli.main` tells."""
    wanted = [bool(arguments.name), arguments.list, arguments.measure]
    if sum(wanted) != 1:
        raise TopologyError(f"{sum(wanted)} of a name, --list and --measure were given: give one of them.")
    if arguments.devices is not None and not arguments.measure:
        raise TopologyError(f"--devices {arguments.devices} was given without --measure: it says what to measure.")
    if arguments.list:
        if arguments.output is not None:
            raise TopologyError(f"-o {arguments.output} was given with --list: name the preset to write.")
        _print_list(arguments.json)
        return 0
    topology = _measured(arguments.devices) if arguments.measure else topologies.load(arguments.name)
    if arguments.output is not None:
        try:
            write_json(arguments.output, topology.to_json())
        except OSError as error:
            raise TopologyError(f"The topology cannot be written to {arguments.output!r} ({error.strerror}): give "
                                "another -o.") from None
    if arguments.json:
        print(json.dumps(topology.to_json(), indent=1))
    else:
        _print_topology(topology)
    return 0


def _measured(devices: Optional[str]) -> Topology:
    startup.set_environment(parse_devices(devices) if devices is not None else None)  # before MXNet is imported
    from soybean_mx import topology_measurement

    chosen = contexts(devices)
    with progress.waiting(f"measuring {len(chosen)} devices"):
        topology, ordered = topology_measurement.measure(chosen)
    if ordered != chosen:
        order = f"{ordered[0].device_type}:{','.join(str(context.device_id) for context in ordered)}"
        print(f"note: devices that are near each other are numbered together: train with {VARIABLE}={order}",
              file=sys.stderr)
    return topology


def _rate(value: float) -> str:
    return f"{value / 1e9:.4g} GB/s"


def _groups(level: Level) -> str:
    if level.groups is None:
        return "each host's devices"
    return f"hosts of {', '.join(map(str, level.groups))}" if isinstance(level.groups, tuple) else str(level.groups)


def _print_topology(topology: Topology) -> None:
    from rich.table import Table
    from rich.text import Text

    from soybean_mx.plan_report import console

    out, device = console(), topology.device
    out.print(Text(f"{topology.name}: {topology.devices} devices, each {device.flops / 1e12:.4g} TFLOP/s, "
                   f"{device.memory / 1e9:.4g} GB of memory at {_rate(device.memory_bandwidth)}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("level", "groups", "bandwidth per device and direction", "latency"):
        table.add_column(column)
    for level in topology.levels:
        table.add_row(Text(level.name), _groups(level), _rate(level.bandwidth), f"{level.latency * 1e6:.4g} us")
    out.print(table)


def _print_list(as_json: bool) -> None:
    if as_json:
        print(json.dumps({name: preset.topology.to_json() for name, preset in PRESETS.items()}, indent=1))
        return
    from rich.table import Table

    from soybean_mx.plan_report import console

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("preset", "devices", "network of a host", "what it is (nominal figures)"):
        table.add_column(column)
    for name, preset in PRESETS.items():
        table.add_row(name, str(preset.topology.devices), f"{preset.network * 8 / 1e9:g} Gb/s", preset.description)
    out = console()
    out.print(table)
    out.print("Hosts of a preset: 2xNAME to 128xNAME, with another network as in 4xp3.16xlarge@100Gb/s.")
