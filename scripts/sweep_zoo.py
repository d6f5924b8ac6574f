"""Every model of the zoos, tiled, against one device.

Each model is trained for three steps in a process of its own: on one device with plain MXNet, and tiled over each of
``--devices`` from the same parameters and data. Outputs, losses, the gradient of every parameter and all parameters and
moving statistics after the third step are compared: a row's ``worst_error`` is the largest difference of a tensor
relative to its size, by Euclidean norms. A row also has what the plan came to: operators cut, computed alike by all
devices (replicated) and by one alone (whole), and the bytes that a step moves, beside those of data parallelism.

In float64, the default, rounding leaves errors of 1e-15 to 1e-6, so that a wrong result cannot hide. In float32 deep
networks amplify rounding beyond any fixed bound on one device too; a row then also has ``noise_ratio``: by how much
any tensor differs more than that of plain MXNet with the parameters' last bits changed. What a network's
code computes in single precision only is always trained in it.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence

HERE = Path(__file__).resolve().parent
DEVICES = ("cpu:4", "cpu:8")
SUITES = ("mxnet", "gluoncv", "sequence")
# In float64: far above what rounding comes to, and far below what any mistake does.
TOLERANCE = 1e-6
# In float32: rounding happens in every operator and not in the parameters alone.
NOISE_RATIO = 10.0
# Where rounding alone changes a tensor by more, a run tells nothing.
MOST_NOISE = 0.1

Row = Dict[str, Any]


def passes(row: Row) -> bool:
    """Whether a row says that the model trains as on one device, or that one device cannot train it."""
    if "error" in row or "untrainable" in row:
        return "untrainable" in row
    return row["worst_error"] <= TOLERANCE or (
        row["worst_error"] <= MOST_NOISE and row.get("noise_ratio", float("inf")) <= NOISE_RATIO)


def run_model(model: str, devices: Sequence[str], dtype: str, timeout: float) -> List[Row]:
    """The rows of a model, one for each of `devices`; those that its process does not come to have an ``error``."""
    config = json.dumps({"model": model, "devices": list(devices), "dtype": dtype})
    environment = {**os.environ, "SOYBEAN_MX": "0", "MXNET_CPU_TEMP_COPY": "64",
                   "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}
    environment.setdefault("OMP_NUM_THREADS", "1")
    try:
        process = subprocess.run([sys.executable, "-X", "faulthandler", str(HERE / "sweep_contender.py"), config],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                                 env=environment, timeout=timeout)
        output, failure = process.stdout, _failure(process)
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout.decode() if isinstance(expired.stdout, bytes) else expired.stdout or ""
        failure = f"not done within {timeout:g} s"
    rows = [json.loads(line[4:]) for line in output.splitlines() if line.startswith("row:")]
    done = {row["devices"] for row in rows}
    return rows + [{"model": model, "devices": d, "dtype": dtype, "worst_error": None, "error": failure}
                   for d in devices if d not in done]


def _failure(process: "subprocess.CompletedProcess[str]") -> str:
    if process.returncode < 0:
        frames = [line.strip() for line in process.stderr.splitlines() if "File " in line]
        return f"ended by signal {-process.returncode}{': ' + frames[0] if frames else ''}"
    said = [line for line in process.stderr.splitlines() if line and not line.startswith((" ", "[", "Stack trace"))]
    return (said[-1] if said else f"status {process.returncode}")[:300]


def read_rows(path: str) -> List[Row]:
    """The rows of a file with one JSON object per line; none where there is no file."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def names_of(suites: Iterable[str]) -> List[str]:
    """The names of all models of some suites."""
    import sequence_models
    import zoo_models

    by_suite = {"mxnet": zoo_models.zoo_names, "gluoncv": zoo_models.gluoncv_names,
                "sequence": lambda: list(sequence_models.MODELS)}
    return [name for suite in suites for name in by_suite[suite]()]


HEADINGS = ("model", "devices", "nodes", "cut", "replicated", "whole", "worst error", "s/step", "s/step, 1 device",
            "MB moved", "MB, data par.")


def cells(row: Row) -> List[str]:
    """A row of the table."""
    if "error" in row:
        return [row["model"], row["devices"], "", "", "", "", "FAILED: " + row["error"].replace("|", "/")]
    if "untrainable" in row:
        return [row["model"], row["devices"], "", "", "", "", "one device cannot train it: " + row["untrainable"]]
    error = f"{row['worst_error']:.0e}" if "noise_ratio" not in row else (
        f"{row['worst_error']:.0e} ({row['noise_ratio']:.1f}x noise)")
    return [row["model"], row["devices"], *(str(row[k]) for k in ("nodes", "cut", "replicated", "whole")),
            error if passes(row) else "WRONG: " + error, f"{row['seconds']:.2f}", f"{row['seconds_serial']:.2f}",
            f"{row['bytes_moved'] / 1e6:.1f}", f"{row['bytes_data_parallel'] / 1e6:.1f}"]


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown."""
    lines = [HEADINGS, ["---"] * 2 + ["--:"] * (len(HEADINGS) - 2), *map(cells, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def parse_arguments(argv: Optional[List[str]] = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--models", default=None, metavar="A,B,...", help="names, instead of whole suites")
    parser.add_argument("--suite", nargs="+", choices=SUITES, default=list(SUITES), help="whose models")
    parser.add_argument("--sample", default="1/1", metavar="I/N", help="only every N-th model, from the I-th on")
    parser.add_argument("--devices", nargs="+", default=list(DEVICES), help="each a list of devices, such as cpu:8")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64", help="of parameters and data")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds after which a model is given up")
    parser.add_argument("--results", default=None, metavar="FILE",
                        help="append each row to FILE at once, and skip the models that are in it")
    parser.add_argument("--json", nargs="?", const="-", default=None, metavar="FILE",
                        help="write the rows to FILE as a JSON list; without FILE to the output, instead of the table")
    parser.add_argument("--markdown", default=None, metavar="FILE", help="write the table to FILE")
    parser.add_argument("--list", action="store_true", help="print the names of the models, and run none")
    args = parser.parse_args(argv)
    try:
        args.first, args.every = (int(number) for number in args.sample.split("/"))
    except ValueError:
        parser.error(f"--sample {args.sample} was given, but two whole numbers I/N are needed, such as 1/20.")
    if not 1 <= args.first <= args.every:
        parser.error(f"--sample {args.sample} was given, but I must be 1 to N.")
    if args.jobs < 1:
        parser.error(f"--jobs {args.jobs} was given, but at least 1 is needed.")
    from soybean_mx.devices import DeviceError, parse_devices

    for devices in args.devices:
        try:
            parse_devices(devices)
        except DeviceError as error:
            parser.error(f"--devices: {error}")
    return args


def selected(args: argparse.Namespace) -> List[str]:
    """The names of the models that are asked for.

    Raises
    ------
    SystemExit
        With a message, for a name that no suite has.
    """
    if args.models is None:
        return names_of(args.suite)[args.first - 1::args.every]
    known = set(names_of(SUITES))
    names = [name for name in args.models.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        sys.exit(f"sweep_zoo.py: --models: there is no model {', '.join(unknown) or args.models!r}: --list prints all "
                 "names.")
    return names[args.first - 1::args.every]


def sweep(models: Sequence[str], args: argparse.Namespace) -> List[Row]:
    """Run the models, and show how far it is on the error output."""
    done = [row for row in read_rows(args.results or "") if row["devices"] in args.devices]
    had = {row["model"] for row in done}
    rows = [row for row in done if row["model"] in models]
    waiting = [model for model in models if model not in had]

    def run(model: str) -> List[Row]:
        return run_model(model, args.devices, args.dtype, args.timeout)

    with ThreadPoolExecutor(args.jobs) as pool:
        for count, found in enumerate(pool.map(run, waiting), 1):
            for row in found:
                print(f"[{count}/{len(waiting)}] " + "  ".join(cells(row)), file=sys.stderr, flush=True)
            if args.results:
                with open(args.results, "a", encoding="utf-8") as lines:
                    lines.writelines(json.dumps(row) + "\n" for row in found)
            rows += found
    order = {model: index for index, model in enumerate(models)}
    return sorted(rows, key=lambda row: (order[row["model"]], args.devices.index(row["devices"])))


def main(argv: Optional[List[str]] = None) -> None:
    """Sweep, print, and end with status 1 when a model fails."""
    args = parse_arguments(argv)
    models = selected(args)
    if args.list:
        print("\n".join(models))
        return
    from soybean_mx.files import write_text

    rows = sweep(models, args)
    if args.json == "-":
        print(json.dumps(rows, indent=1))
    else:
        print(markdown(rows), end="")
        if args.json:
            write_text(args.json, json.dumps(rows, indent=1) + "\n")
    if args.markdown:
        write_text(args.markdown, markdown(rows))
    failed = [row for row in rows if not passes(row)]
    if failed:
        sys.exit(f"sweep_zoo.py: {len(failed)} of {len(rows)} rows fail: "
                 + ", ".join(f"{row['model']} on {row['devices']}" for row in failed))


if __name__ == "__main__":
    main()
