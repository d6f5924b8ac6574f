"""Runs a test body in a child process, so that a crash of MXNet is a failure and not the end of the run."""
from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, Optional, Sequence

ROOT = Path(__file__).resolve().parent.parent
TAIL_LINES = 40


class ChildFailure(AssertionError):
    """A child process crashed, failed or ran out of time; the message holds the end of what it printed."""


def run_child(
    target: str,
    args: Sequence[str] = (),
    timeout: float = 120.0,
    env: Optional[Dict[str, Optional[str]]] = None,
) -> str:
    """Run Python in a child process and return what it printed.

    Parameters
    ----------
    target : str
        A dotted module name (run as ``python -m``), the path of a script (ends in ``.py``), or Python source text.
    args : sequence of str
        Arguments of the module, script or source.
    timeout : float
        Seconds after which the child and everything that it started is killed.
    env : dict, optional
        Environment variables added to this process's own; None removes one.

    Returns
    -------
    str
        The standard output.

    Raises
    ------
    ChildFailure
        When the child ended by a signal, with a non-zero status, or not in time.
    """
    command = [sys.executable, "-X", "faulthandler", *_python_arguments(target), *map(str, args)]
    process = subprocess.Popen(
        command,
        cwd=str(ROOT),
        env=_environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        start_new_session=True,  # a group of its own, so that a timeout ends grandchildren too
    )
    label = " ".join([target if "\n" not in target else "python -c ...", *map(str, args)])
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise ChildFailure(f"{label}: not done after {timeout:g} s\n{_tail(out, err)}") from None
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        raise ChildFailure(f"{label}: crashed with {name}\n{_tail(out, err)}")
    if process.returncode > 0:
        raise ChildFailure(f"{label}: exit status {process.returncode}\n{_tail(out, err)}")
    return out


def run_each(target: str, folder: Path, names: Sequence[str], suffix: str, seconds: float,
             env: Optional[Dict[str, Optional[str]]] = None) -> Dict[str, str]:
    """Run a module on many names in one child; where that crashes, those after the one that it was at in another.

    Parameters
    ----------
    target : str
        As of :func:`run_child`. Its arguments are the folder and the names; it works through them in order.
    folder : Path
        Where it leaves a file for each name that is done.
    names : sequence of str
        The names.
    suffix : str
        What the files' names have behind it.
    seconds : float
        For each name, of which a child may take all that those before have left.
    env : dict, optional
        As of :func:`run_child`.

    Returns
    -------
    dict of str to str
        Why a name was not done, by name.
    """
    failures: Dict[str, str] = {}
    waiting = list(names)
    while waiting:
        try:
            run_child(target, [str(folder), *waiting], timeout=seconds * len(waiting), env=env)
            break
        except ChildFailure as failure:
            rest = [name for name in waiting if not (folder / f"{name}{suffix}").exists()]
            failures[(rest or waiting[-1:])[0]] = str(failure)
            waiting = rest[1:]
    return failures


def _python_arguments(target: str) -> Sequence[str]:
    if "\n" not in target and target.endswith(".py"):
        return [target]
    if re.fullmatch(r"\w+(\.\w+)*", target):
        return ["-m", target]
    return ["-c", target]


def _environment(changes: Optional[Dict[str, Optional[str]]]) -> Dict[str, str]:
    result = dict(os.environ)
    # One thread per context: many contexts with many threads each would only fight over the cores.
    result["OMP_NUM_THREADS"] = "1"
    result["MXNET_SUBGRAPH_VERBOSE"] = "0"  # else every bind prints lines that push the useful ones out of the tail
    result["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    for name, value in (changes or {}).items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def _tail(out: str, err: str) -> str:
    parts = []
    for name, text in (("stdout", out), ("stderr", err)):
        lines = text.rstrip().splitlines()[-TAIL_LINES:]
        if lines:
            parts.append("\n".join([f"--- end of {name} ---", *lines]))
    return "\n".join(parts) or "(it printed nothing)"
