"""The command line: ``python -m soybean_mx`` and ``soybean-mx``."""
from __future__ import annotations

import argparse
import os
import runpy
import sys
from typing import List, NoReturn, Optional

import soybean_mx
from soybean_mx import (
    bench_command,
    doctor,
    explain_command,
    operators_command,
    plan_command,
    reproduce_command,
    simulate_command,
    startup,
    topology_command,
    tracing,
)
from soybean_mx.core import PlanError
from soybean_mx.devices import VARIABLE, DeviceError, contexts, parse_devices
from soybean_mx.input_errors import InputError
from soybean_mx.pipeline import profile_command, stages_command


def main(argv: Optional[List[str]] = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : list of str, optional
        Arguments without the program's name; ``sys.argv[1:]`` when absent.

    Returns
    -------
    int
        The exit status: 0, 1 when a plan is refused, 2 for what cannot be used (where argparse finds it, it exits
        itself), with one line on the standard error that says why.
    """
    parser = make_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 2
    if arguments.function is _run:  # errors of the script's own are its own
        return _run(arguments)
    try:
        return arguments.function(arguments)
    except InputError as error:
        status, message = 2, error
    except PlanError as error:
        status, message = 1, error
    print(f"{arguments.prog}: error: {' '.join(str(message).split())}", file=sys.stderr)
    return status


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="soybean-mx", description=(
            "Train a single-device Gluon script on many devices, or see what that would take."))
    parser.add_argument("--version", action="version", version=f"soybean_mx {soybean_mx.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add_command in _COMMANDS:
        add_command(commands)
    return parser


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as commands do: the usage is for ``--help``."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (`{self.prog} --help` says what is possible)\n")


def _add_run(commands) -> None:
    parser = commands.add_parser("run", help="run a script on several devices", description=(
        "Run a Gluon script as `python SCRIPT ARGS` would, with its hybridized blocks tiled over the devices."))
    parser.add_argument("--devices", metavar="LIST",
                        help=f"cpu:8 or gpu:4 (that many, from 0), gpu:0-3 or gpu:0,2 (these); default: ${VARIABLE}, "
                             "or else all GPUs, or else cpu:2")
    parser.add_argument("--trace", metavar="FILE", help=(
        "write a chrome trace of what the devices run, for Perfetto or chrome://tracing; on at most 4 CPU contexts"))
    parser.add_argument("script", help="the script's path")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(function=_run, error=parser.error)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.devices is not None:
        try:
            parse_devices(arguments.devices)
        except DeviceError as error:
            arguments.error(str(error))
        os.environ[VARIABLE] = arguments.devices
    if not os.path.isfile(arguments.script):
        arguments.error(f"There is no script {arguments.script!r}: give the path of a Python file.")
    # In the environment, so that worker processes of the script act alike.
    os.environ["SOYBEAN_MX"] = "1"
    startup.install()
    sys.argv = [arguments.script, *arguments.args]
    sys.path[0] = os.path.dirname(os.path.abspath(arguments.script))
    if arguments.trace is None:
        runpy.run_path(arguments.script, run_name="__main__")
        return 0
    try:
        devices = [f"{context.device_type}:{context.device_id}" for context in contexts(os.environ.get(VARIABLE))]
        with tracing.recording(arguments.trace, devices=devices, name=os.path.basename(arguments.script)):
            runpy.run_path(arguments.script, run_name="__main__")
    except (DeviceError, tracing.RecordingError) as error:
        arguments.error(str(error))
    return 0


_COMMANDS = (
    _add_run,
    plan_command.add,
    explain_command.add,
    simulate_command.add,
    topology_command.add,
    operators_command.add,
    profile_command.add,
    stages_command.add,
    bench_command.add,
    reproduce_command.add,
    doctor.add,
)
