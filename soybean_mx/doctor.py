"""``soybean-mx doctor``: what is installed, which devices are there, whether the library works, and what to do.

Whatever imports MXNet or loads a library runs in a child process (:mod:`soybean_mx.doctor_probes`), so that a crash is
one line of the report.
"""
from __future__ import annotations

import argparse
import difflib
import json
import os
import platform
import shutil
import signal
import site
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from soybean_mx import pins
from soybean_mx.devices import VARIABLE, DeviceError, devices_from_environment
from soybean_mx.plan_command import BATCH_NORMS, STRATEGIES

OK, NOTE, WRONG = "ok", "note", "wrong"
MXNET = "1.9.1"
PYTHONS = ((3, 8), (3, 11))
# What mxnet-cu112 1.9.1 has code for: Maxwell to Ampere, as NVIDIA numbers them.
CAPABILITIES = (5.0, 8.6)
SETTINGS = ("SOYBEAN_MX", "SOYBEAN_MX_DEVICES", "SOYBEAN_MX_PARALLEL", "SOYBEAN_MX_MICROBATCHES",
            "SOYBEAN_MX_STRATEGY", "SOYBEAN_MX_PINS", "SOYBEAN_MX_BATCH_NORM", "SOYBEAN_MX_RECOMPUTE",
            "SOYBEAN_MX_CONVERSIONS", "SOYBEAN_MX_ORDER", "SOYBEAN_MX_TILES_PER_DEVICE")
# (distribution, what it is for, the extra that installs it)
OPTIONAL = (("gluoncv", "its models, for plan and stages", "zoo"), ("gluonnlp", "its models", "nlp"),
            ("scikit-learn", "the digits that scripts train on", "scripts"), ("Pillow", "image folders", "scripts"),
            ("matplotlib", "plots of benchmarks", "scripts"), ("tqdm", "progress of scripts", "scripts"))
_PROBE_SECONDS = 120.0
_INSTALL = "pip install 'soybean_mx[cpu]', or [cu112] for NVIDIA GPUs"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes
    ----------
    check : str
        What was looked at.
    status : str
        ``ok``; ``note``, which works but may not be meant so; ``wrong``.
    found : str
        What was found.
    remedy : str
        What to do; empty where nothing is to be done.
    """

    check: str
    status: str
    found: str
    remedy: str = ""


def add(commands) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "doctor", help="check the installation, and say what to do", description=(
            "Check what is installed, which devices are there, whether the library is built and works with this MXNet, "
            "and the environment. The exit status is 0 when nothing is wrong, else 1."))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(function=run, prog=parser.prog)


def run(arguments: argparse.Namespace) -> int:
    """Run the command: 0 when nothing is wrong, else 1."""
    findings = examine()
    if arguments.json:
        print(json.dumps({"well": _is_well(findings), "findings": [asdict(finding) for finding in findings]}, indent=1))
    else:
        _print(findings)
    return 0 if _is_well(findings) else 1


def examine() -> List[Finding]:
    """Make every check.

    Returns
    -------
    list of Finding
        In the order in which things depend on each other.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    checks: Sequence[Tuple[str, Callable[[], List[Finding]]]] = (
        ("Python", _python), ("MXNet", _mxnet), ("numpy", _numpy), ("library", _library), ("training", _training),
        ("devices", _devices), ("environment", lambda: environment(os.environ)), ("start-up hook", _hook),
        ("plan explorer", _explorer), ("optional", _optional))
    findings: List[Finding] = []
    console = Console(stderr=True)
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True,
                  disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        for name, check in checks:
            progress.update(task, description=f"checking: {name}")
            try:
                findings += check()
            except Exception as error:  # a check that fails is a line of the report, and the others go on
                findings.append(Finding(name, WRONG, f"cannot be checked: {type(error).__name__}: {error}",
                                        "Please report it."))
    return findings


def _is_well(findings: Sequence[Finding]) -> bool:
    return all(finding.status != WRONG for finding in findings)


def _print(findings: Sequence[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    from soybean_mx.plan_report import console

    out = console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    styles = {OK: "green", NOTE: "yellow", WRONG: "bold red"}
    for finding in findings:
        table.add_row(Text(finding.status, styles[finding.status]), Text(finding.check), Text(finding.found))
        if finding.remedy:
            table.add_row("", "", Text(f"-> {finding.remedy}"))
    out.print(table)
    wrong = sum(finding.status == WRONG for finding in findings)
    out.print("All is well." if not wrong else f"{wrong} of {len(findings)} checks found something wrong.")


# -- probes in a child process -------------------------------------------------------------------------------------


class _ProbeError(RuntimeError):
    """A probe crashed or failed; the text says how."""


def _probe(name: str) -> Dict[str, Any]:
    """What a probe of :mod:`soybean_mx.doctor_probes` found."""
    # The probes choose their devices themselves, and a hook would act on the user's.
    changed = {key: value for key, value in os.environ.items() if not key.startswith("SOYBEAN_MX")}
    changed["MXNET_SUBGRAPH_VERBOSE"] = "0"
    parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    changed["PYTHONPATH"] = os.pathsep.join(filter(None, [parent, changed.get("PYTHONPATH")]))
    try:
        result = subprocess.run([sys.executable, "-m", "soybean_mx.doctor_probes", name], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, universal_newlines=True, timeout=_PROBE_SECONDS, env=changed)
    except subprocess.TimeoutExpired:
        raise _ProbeError(f"is not done after {_PROBE_SECONDS:g} s") from None
    if result.returncode < 0:
        raise _ProbeError(f"ends by {signal.Signals(-result.returncode).name}")
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no message"]
        raise _ProbeError(f"fails: {lines[-1]}")
    return json.loads(result.stdout.strip().splitlines()[-1])


# -- the checks ----------------------------------------------------------------------------------------------------


def _version(distribution: str) -> Optional[str]:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _python() -> List[Finding]:
    found = f"{platform.python_version()} on {platform.system()} ({platform.machine()})"
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return [Finding("Python", WRONG, found, "MXNet 1.9.1 runs on Python 3.8 to 3.11: use one of these.")]
    if platform.system() != "Linux":
        return [Finding("Python", WRONG, found, "soybean_mx is built and tested on Linux only: use it there.")]
    return [Finding("Python", OK, found)]


def _mxnet() -> List[Finding]:
    installed = {name: version for name in ("mxnet", "mxnet-cu112") for version in [_version(name)] if version}
    found = ", ".join(f"{name} {version}" for name, version in installed.items()) or "not installed"
    if not installed:
        return [Finding("MXNet", WRONG, found, f"Install it: {_INSTALL}.")]
    if len(installed) > 1:
        return [Finding("MXNet", WRONG, found, "Both put their files into one folder: uninstall both, install one.")]
    if set(installed.values()) != {MXNET}:
        return [Finding("MXNet", WRONG, found, f"soybean_mx is for MXNet {MXNET}: {_INSTALL}.")]
    try:
        features = _probe("mxnet")["features"]
    except _ProbeError as error:
        remedy = "Look at numpy, below; on GPUs, at the CUDA libraries: pip install 'soybean_mx[cu112]'."
        return [Finding("MXNet", WRONG, f"{found}; importing it {error}", remedy)]
    return [Finding("MXNet", OK, f"{found}, with {', '.join(features)}")]


def _numpy() -> List[Finding]:
    version = _version("numpy")
    if version is None:
        return [Finding("numpy", WRONG, "not installed", "Install it: pip install numpy==1.23.5.")]
    if tuple(int(part) for part in version.split(".")[:2]) >= (1, 24):
        return [Finding("numpy", WRONG, version, "MXNet 1.9.1 cannot be imported with 1.24 and later: pip install "
                                                 "numpy==1.23.5.")]
    return [Finding("numpy", OK, version)]


def _library() -> List[Finding]:
    rebuild = "Build it: `make build` in a checkout, or `pip install .` again."
    copies = "copies between CPU contexts"
    findings = []
    for check, probe in (("planner", "core"), ("graph pass", "graph_pass")):
        try:
            findings.append(Finding(check, OK, _probe(probe)["found"]))
        except _ProbeError as error:
            findings.append(Finding(check, WRONG, f"the library {error}", rebuild))
    try:
        repaired = _probe("copies")["repaired"]
    except _ProbeError as error:
        return [*findings, Finding(copies, WRONG, f"the check {error}", rebuild)]
    if not repaired:
        return [*findings, Finding(copies, NOTE, "not repaired, which takes more memory", rebuild)]
    return [*findings, Finding(copies, OK, "repaired")]


def _training() -> List[Finding]:
    check = "a training step on 2 CPU contexts"
    try:
        error = _probe("training")["error"]
    except _ProbeError as failure:
        return [Finding(check, WRONG, f"it {failure}", "Look at what is wrong above; else please report it.")]
    if not error < 1e-4:
        return [Finding(check, WRONG, f"differs from one device's by {error:.2g}", "Please report it.")]
    return [Finding(check, OK, f"agrees with one device's to {error:.1g}")]


def _devices() -> List[Finding]:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30
    findings = [Finding("CPUs", OK, f"{cores} cores, {memory:.1f} GiB of memory")]
    return findings + gpu_findings(_nvidia_smi(), _version("mxnet-cu112") is not None)


def _nvidia_smi() -> Optional[str]:
    """What NVIDIA's tool says of each GPU; None where there is none or it fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    result = subprocess.run([tool, "--query-gpu=index,name,memory.total,compute_cap", "--format=csv,noheader"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True, timeout=60)
    return result.stdout if result.returncode == 0 else None


def gpu_findings(listed: Optional[str], cuda_build: bool) -> List[Finding]:
    """What is to be said of the GPUs.

    Parameters
    ----------
    listed : str or None
        A line ``index, name, memory, compute capability`` for each; None where there is no driver.
    cuda_build : bool
        Whether MXNet's CUDA build is installed.
    """
    lines = [line.split(", ") for line in (listed or "").strip().splitlines()]
    if not lines:
        if cuda_build:
            return [Finding("GPUs", WRONG, "none, or no driver, but MXNet's CUDA build is installed",
                            "Look at what nvidia-smi says, or install MXNet for CPUs: pip install 'soybean_mx[cpu]'.")]
        return [Finding("GPUs", OK, "none; CPU contexts stand for them: cpu:8")]
    findings = []
    for index, name, memory, capability in lines:
        found = f"{name}, {memory}, compute capability {capability}"
        if not cuda_build:
            findings.append(Finding(f"gpu({index})", NOTE, f"{found}; MXNet is the build for CPUs",
                                    "To use it: pip uninstall mxnet, and pip install 'soybean_mx[cu112]'."))
        elif not CAPABILITIES[0] <= float(capability) <= CAPABILITIES[1]:
            findings.append(Finding(f"gpu({index})", WRONG, found, (
                f"MXNet 1.9.1's CUDA build has code for {CAPABILITIES[0]} to {CAPABILITIES[1]} (Maxwell to Ampere): "
                "use such a GPU, or CPU contexts.")))
        else:
            findings.append(Finding(f"gpu({index})", OK, found))
    return findings


def environment(variables: Mapping[str, str]) -> List[Finding]:
    """What is to be said of environment variables.

    Parameters
    ----------
    variables : mapping of str to str
        The environment.
    """
    findings = []
    for name in sorted(variables):
        if name.startswith("SOYBEAN_MX") and name not in SETTINGS:
            close = difflib.get_close_matches(name, SETTINGS, 1)
            remedy = f"Did you mean {close[0]}?" if close else "Unset it."
            findings.append(Finding(name, WRONG, "is no setting", remedy))
    for name, value in variables.items():
        if name in SETTINGS:
            findings.append(_setting(name, value))
    return [*findings, *_engine_settings(variables)] or [Finding("environment", OK, "nothing is set")]


def _setting(name: str, value: str) -> Finding:
    allowed = {"SOYBEAN_MX_PARALLEL": ("tiling", "pipeline"), "SOYBEAN_MX_BATCH_NORM": BATCH_NORMS,
               "SOYBEAN_MX_RECOMPUTE": ("0", "1"), "SOYBEAN_MX_STRATEGY": STRATEGIES,
               "SOYBEAN_MX_CONVERSIONS": ("exchanged", "local"), "SOYBEAN_MX_ORDER": ("scheduled", "serial")}
    if value and name in allowed and value not in allowed[name] and not value.startswith("random:"):
        return Finding(name, WRONG, value, f"Possible are {', '.join(allowed[name])}.")
    if name in ("SOYBEAN_MX_MICROBATCHES", "SOYBEAN_MX_TILES_PER_DEVICE") and not (value.isdigit() and int(value)):
        return Finding(name, WRONG, value, "Give a whole number of 1 or more.")
    try:
        if name == VARIABLE:
            devices_from_environment(value)
        if name == pins.VARIABLE and value:
            pins.read(value, name)
    except (DeviceError, pins.PinError) as error:
        return Finding(name, WRONG, value, str(error))
    return Finding(name, NOTE if name == "SOYBEAN_MX_CONVERSIONS" and value == "local" else OK, value or "(empty)",
                   "With it nothing is exchanged, and the results mean nothing: it is for measuring."
                   if name == "SOYBEAN_MX_CONVERSIONS" and value == "local" else "")


def _engine_settings(variables: Mapping[str, str]) -> List[Finding]:
    """What conflicts among the settings of MXNet and OpenMP."""
    findings = []
    if variables.get("MXNET_ENGINE_TYPE") == "NaiveEngine":
        findings.append(Finding("MXNET_ENGINE_TYPE", NOTE, "NaiveEngine", "Devices wait for each other: unset it."))
    cap = variables.get("MXNET_EXEC_INPLACE_GRAD_SUM_CAP", "8")
    if cap.isdigit() and int(cap) < 8:
        findings.append(Finding("MXNET_EXEC_INPLACE_GRAD_SUM_CAP", WRONG, cap, (
            "MXNet then sums gradients in a chain that is wrong across devices, which soybean_mx refuses: unset it.")))
    try:
        devices = devices_from_environment(variables.get(VARIABLE))
    except DeviceError:
        devices = None
    if not devices or devices[0][0] != "cpu":
        return findings
    copies, threads = variables.get("MXNET_CPU_TEMP_COPY", ""), variables.get("OMP_NUM_THREADS", "")
    if copies.isdigit() and int(copies) < len(devices):
        findings.append(Finding("MXNET_CPU_TEMP_COPY", NOTE, copies, (
            f"{len(devices)} contexts share {copies} pieces of temporary space and wait for each other: unset it.")))
    cores = len(os.sched_getaffinity(0))
    if threads.isdigit() and int(threads) > 1 and int(threads) * len(devices) > cores:
        findings.append(Finding("OMP_NUM_THREADS", NOTE, threads, (
            f"{len(devices)} contexts of {threads} threads have {cores} cores: unset it.")))
    return findings


def _hook() -> List[Finding]:
    name = "soybean_mx.pth"
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    found = [folder for folder in folders if os.path.exists(os.path.join(folder, name))]
    program = "import sys; print('soybean_mx' in sys.modules)"
    seen = subprocess.run([sys.executable, "-c", program], env={**os.environ, "SOYBEAN_MX": "1"},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=60).stdout
    if seen.strip() == "True":
        return [Finding("start-up hook", OK, f"every program sees SOYBEAN_MX=1 ({found[0]})" if found else "on")]
    return [Finding("start-up hook", WRONG, f"{name} is in none of Python's folders" if not found else "does not run",
                    "SOYBEAN_MX=1 alone does nothing: install the package again (pip install .), or start programs "
                    "through `soybean-mx run`.")]


def _explorer() -> List[Finding]:
    from soybean_mx.explorer.page import PageError, check_libraries

    try:
        check_libraries()
    except PageError as error:
        return [Finding("plan explorer", WRONG, "its libraries are missing, so `plan --html` cannot work", str(error))]
    return [Finding("plan explorer", OK, "`plan --html` has its libraries")]


def _optional() -> List[Finding]:
    findings = []
    for distribution, purpose, extra in OPTIONAL:
        version = _version(distribution)
        findings.append(Finding(distribution, OK, version or f"not installed ({purpose}): "
                                                             f"pip install 'soybean_mx[{extra}]'"))
    return findings
