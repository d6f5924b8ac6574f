"""What runs in the processes of a benchmark, and what their figures come to.

Every contender runs in a process of its own, started anew in every round; rounds go through all contenders in turn, so
that slow drifts of the machine meet all of them.

``serial``
    Plain MXNet on one context; on CPUs with one thread, which is what one of several contexts has.
``serial_all_cores``
    Plain MXNet on one context with all cores (CPU only).
``data_parallel``
    MXNet's own: ``split_and_load`` and ``Trainer(kvstore="device")``, hybridized with static_alloc and static_shape.
``soybean_mx``, ``soybean_mx:STRATEGY``
    The program of ``serial``, unmodified, tiled over the devices.

This module imports MXNet only inside :func:`machine`.
"""
from __future__ import annotations

import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from soybean_mx.devices import Device
from soybean_mx.plan_command import STRATEGIES

DEFAULT_CONTENDERS = ("serial", "serial_all_cores", "data_parallel", "soybean_mx")
BASE = "data_parallel"
# The program of one contender; its last argument is the configuration.
PROGRAM = (sys.executable, "-m", "soybean_mx.benchmark.contender")


@dataclass(frozen=True)
class Contender:
    """What runs in one process.

    Attributes
    ----------
    name : str
        As given to ``--contenders``.
    kind : str
        ``serial``, ``data_parallel`` or ``soybean_mx``.
    devices : tuple of (str, int)
        The contexts that it may use.
    threads : int
        OpenMP threads of each context.
    strategy : str
        Strategy of soybean_mx, else empty.
    tiles : int
        How many devices' work each context does; soybean_mx only.
    exchanges : bool
        Whether devices exchange anything; soybean_mx only.
    """

    name: str
    kind: str
    devices: Tuple[Device, ...]
    threads: int
    strategy: str = ""
    tiles: int = 1
    exchanges: bool = True

    def environment(self) -> Dict[str, str]:
        """The environment of the process; the same for all but for threads and soybean_mx's own variables."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SOYBEAN_MX")}
        environment.update(
            OMP_NUM_THREADS=str(self.threads),
            # Without these all CPU contexts wait for each other's temporary space and random numbers.
            MXNET_CPU_TEMP_COPY="64",
            SOYBEAN_MX="0",
        )
        if self.kind == "soybean_mx":
            kind = self.devices[0][0]
            indices = ",".join(str(index) for _, index in self.devices)
            # A lone number would be read as a count.
            indices = indices if "," in indices else f"{indices}-{indices}"
            environment.update(SOYBEAN_MX="1", SOYBEAN_MX_DEVICES=f"{kind}:{indices}",
                               SOYBEAN_MX_STRATEGY=self.strategy, SOYBEAN_MX_TILES_PER_DEVICE=str(self.tiles),
                               SOYBEAN_MX_CONVERSIONS="exchanged" if self.exchanges else "local")
        return environment

    def why_not(self) -> str:
        """Why there is nothing to measure; empty where there is."""
        if len(self.devices) * self.tiles == 1 and self.strategy not in ("", "optimal"):
            return f"one device has nothing to divide, whatever the strategy; see {self.kind}"
        return ""


def make_contender(name: str, devices: Tuple[Device, ...], cores: int) -> Contender:
    """The contender called `name`.

    Raises
    ------
    ValueError
        For an unknown name.
    """
    shared = max(1, cores // len(devices)) if devices[0][0] == "cpu" else cores
    if name == "serial":
        return Contender(name, "serial", devices[:1], 1 if devices[0][0] == "cpu" else cores)
    if name == "serial_all_cores":
        return Contender(name, "serial", devices[:1], cores)
    if name == "data_parallel":
        return Contender(name, name, devices, shared)
    base, _, strategy = name.partition(":")
    strategy = strategy or "optimal"
    if base == "soybean_mx" and strategy in STRATEGIES:
        return Contender(name, base, devices, shared, strategy)
    raise ValueError(f"The contender {name!r} is unknown; give {', '.join(DEFAULT_CONTENDERS)} or soybean_mx:STRATEGY "
                     f"with one of {', '.join(STRATEGIES)}.")


def run_contender(contender: Contender, workload: Mapping[str, Any], timeout: float,
                  program: Sequence[str] = PROGRAM) -> Dict:
    """Run `contender` once in a process of its own.

    Parameters
    ----------
    contender : Contender
        What to run.
    workload : mapping
        What the program takes beside ``kind`` and ``contexts``.
    timeout : float
        Seconds after which it is given up.
    program : sequence of str
        The program and its first arguments.

    Returns
    -------
    dict
        What ``training_step.run`` returns, or ``{"error": message}`` if the process failed.
    """
    config = {"kind": contender.kind, "contexts": contender.devices, **workload}
    try:
        process = subprocess.run([*program, json.dumps(config)], env=contender.environment(),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                                 timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"no result after {timeout:g} s"}
    if process.returncode < 0:
        return {"error": f"ended by {signal.Signals(-process.returncode).name}", "stderr": process.stderr[-4000:]}
    if process.returncode > 0:
        return {"error": _complaint(process), "stderr": process.stderr[-4000:]}
    return json.loads(process.stdout.strip().splitlines()[-1])


def _complaint(process: subprocess.CompletedProcess) -> str:
    """The line of a failed process's output that says what is wrong."""
    lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
    # An exception's message may go on for many lines, the first of which says most.
    exceptions = [line for line in lines if re.match(r"[\w.]+(Error|Exception):", line)]
    return (exceptions or lines)[-1]


def run_rounds(contenders: Sequence[Contender], workload: Mapping[str, Any], rounds: int, timeout: float,
               program: Sequence[str] = PROGRAM,
               starting: Optional[Callable[[int, Contender], None]] = None) -> Dict[str, List[Dict]]:
    """Run every contender once in each round, in turn: the results by its name.

    Parameters
    ----------
    contenders, workload, timeout, program
        As of :func:`run_contender`.
    rounds : int
        How many.
    starting : callable, optional
        Told of each process that starts: the number of the round, from 0, and the contender.
    """
    results: Dict[str, List[Dict]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        for contender in contenders:
            if starting is not None:
                starting(number, contender)
            load = os.getloadavg()[0]
            results[contender.name].append(
                dict(run_contender(contender, workload, timeout, program), load_before=load))
    return results


def summarise(rounds: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """One object for all rounds of a contender.

    ``seconds``, ``issue_seconds``, ``issue_wall_seconds`` and ``processor_seconds`` are the medians of all steps,
    ``peak_bytes`` is the largest.
    """
    good = [result for result in rounds if "error" not in result]
    if not good:
        return dict(rounds[-1])
    summary = dict(good[0], peak_bytes=max(result["peak_bytes"] for result in good), rounds=len(good),
                   failed_rounds=len(rounds) - len(good), load_before=rounds[0].get("load_before"))
    for name in ("seconds", "issue_seconds", "issue_wall_seconds", "processor_seconds"):
        every = [value for result in good for value in result[f"{name}_all"]]
        summary.update({name: statistics.median(every), f"{name}_all": every})
    summary.update(seconds_min=min(summary["seconds_all"]), seconds_max=max(summary["seconds_all"]))
    failed = [result["error"] for result in rounds if "error" in result]
    return dict(summary, errors=failed) if failed else summary


def ratios(rounds: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]],
           figure: str = "seconds_all") -> List[float]:
    """Of the median step of a contender to that of another, in each round in which neither failed."""
    return [statistics.median(own[figure]) / statistics.median(other[figure])
            for own, other in zip(rounds, base) if "error" not in own and "error" not in other]


def without_exchanges(contender: Contender) -> Contender:
    """The same work on every device, with nothing exchanged."""
    return replace(contender, name=f"{contender.name} without communication", exchanges=False)


def add_communication(result: Dict, local: Dict) -> None:
    """Add to a contender's result what the devices' own work takes, and the share of the time that is left."""
    if "seconds" in result and "seconds" in local:
        result["seconds_without_communication"] = local["seconds"]
        result["communication_share"] = 1 - local["seconds"] / result["seconds"]
    elif "error" in local:
        result["communication_error"] = local["error"]


def add_ratios(results: Dict[str, Dict]) -> None:
    """Add each contender's time and memory relative to data parallelism: ``speedup`` is above 1 if it is faster."""
    base = results.get("data_parallel", {})
    for result in results.values():
        if "seconds" in base and "seconds" in result:
            result["speedup"] = base["seconds"] / result["seconds"]
            result["memory_ratio"] = result["peak_bytes"] / max(1, base["peak_bytes"])


def machine() -> Dict:
    """What the figures depend on besides the code."""
    import mxnet

    model = ""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return {"cores": cores(), "processor": model or platform.processor(), "load": os.getloadavg()[0],
            "mxnet": mxnet.__version__, "python": platform.python_version(), "system": platform.platform()}


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
