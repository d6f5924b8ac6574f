"""``soybean-mx reproduce``: the figures and tables of a paper, made again, as a page with plots."""
from __future__ import annotations

import argparse
import json
import os
from typing import Any, Callable, Dict, List, Mapping

from soybean_mx import progress
from soybean_mx.files import write_bytes, write_text
from soybean_mx.plan_command import ArgumentError

DEFAULT_FOLDER = "reproduction"


def add(commands) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "reproduce", help="make the figures and tables of a paper again", description=(
            "Make every figure and table of a paper that can be made, beside what the paper says, and write them as a "
            "Markdown page with PNG and SVG plots. Every figure is marked as estimated, counted, or measured here."))
    parser.add_argument("paper", choices=tuple(_REPORTS), metavar="PAPER", help=(
        "soybean (arXiv 1805.04170): speedups and shares of communication on p2.8xlarge, estimated; traffic, counted; "
        "Table 1, measured on this machine. pipedream (slides 2017, arXiv 1806.03377, SOSP 2019): its optimizer's "
        "table and the published speedups, estimated from its own profiles"))
    parser.add_argument("-o", "--output", default=DEFAULT_FOLDER, metavar="FOLDER",
                        help="where the page and its plots go; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help=(
        "for soybean: the smallest and the largest batch of each network, and a small Table 1"))
    parser.add_argument("--json", action="store_true", help="print all figures as one JSON object too")
    parser.set_defaults(function=run, prog=parser.prog)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; raises what :func:`soybean_mx.cli.main` tells."""
    if arguments.quick and arguments.paper != "soybean":
        raise ArgumentError(f"--quick was given for {arguments.paper}, of which all takes seconds: leave it out.")
    figures = _figures()
    _check_folder(arguments.output)
    report = _REPORTS[arguments.paper](arguments)
    written = _write(arguments, report, getattr(figures, arguments.paper)(report))
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        print("\n".join(f"written: {path}" for path in written))
    return 0


def _figures() -> Any:
    try:
        from soybean_mx.reproduction import figures
    except ImportError as error:
        raise ArgumentError(f"The plots need {error.name}, which is not installed: run `pip install "
                            "soybean_mx[reproduce]`.") from None
    return figures


def _check_folder(folder: str) -> None:
    """Make the folder, before minutes of work."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"The folder {folder!r} cannot be made ({error.strerror}): give another "
                            "--output.") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ArgumentError(f"The folder {folder!r} cannot be written to: give another --output.")


def _write(arguments: argparse.Namespace, report: Mapping[str, Any], images: Mapping[str, bytes]) -> List[str]:
    from soybean_mx.reproduction import pages

    quick = " --quick" if arguments.quick else ""
    command = f"soybean-mx reproduce {arguments.paper} --output {arguments.output}{quick}"
    page = os.path.join(arguments.output, f"{arguments.paper}.md")
    written = [os.path.join(arguments.output, name) for name in images]
    try:
        for path, content in zip(written, images.values()):
            write_bytes(path, content)
        write_text(page, getattr(pages, arguments.paper)(report, command))  # last: it shows the others
    except OSError as error:
        raise ArgumentError(f"The page cannot be written to {arguments.output!r} ({error.strerror}): give another "
                            "--output.") from None
    return [page, *written]


def _soybean(arguments: argparse.Namespace) -> Dict[str, Any]:
    from soybean_mx.reproduction import soybean  # imports MXNet

    chosen = [soybean.quick(network) if arguments.quick else network for network in soybean.NETWORKS]
    with progress.bar("estimated steps") as advance:
        report = soybean.estimated(chosen, advance)
    with progress.bar("measuring, processes") as advance:
        measured = soybean.measured(soybean.QUICK_TABLE1 if arguments.quick else soybean.Table1(), advance)
    return {**report, "partitioning": measured}


def _pipedream(_: argparse.Namespace) -> Dict[str, Any]:
    from soybean_mx.reproduction import pipedream

    with progress.bar("plans") as advance:
        return pipedream.estimated(advance)


_REPORTS: Dict[str, Callable[[argparse.Namespace], Dict[str, Any]]] = {"soybean": _soybean, "pipedream": _pipedream}
