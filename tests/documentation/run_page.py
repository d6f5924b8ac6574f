"""Runs the blocks of one page in order, in the current folder.

    python -m tests.documentation.run_page docs/planner.md

Blocks of Python share their names. A command of soybean-mx runs in this process; every other one, and what has
environment variables before it, in a shell.
"""
from __future__ import annotations

import contextlib
import doctest
import io
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

from tests.child import ROOT
from tests.documentation.pages import Block, blocks

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(page: Path) -> None:
    """Run a page's blocks.

    Raises
    ------
    AssertionError
        When one fails, or prints what the page does not show.
    """
    names: Dict[str, Any] = {"__name__": "__main__"}
    printed = None
    for block in blocks(page):
        start = time.time()
        if block.not_run:
            printed = None
            continue
        if block.language == "text" and printed is not None:
            if not doctest.OutputChecker().check_output(block.text, printed, _FLAGS):
                raise AssertionError(f"{block.place} shows\n{block.text}\nbut this is printed:\n{printed}")
        elif block.language == "python":
            printed = run_python(block, names)
        elif block.language == "sh":
            exec(compile(block.setup, f"the setup of {block.place}", "exec"), names)
            printed = "".join(run_command(block, command) for command in block.commands(block.run_text()))
        if time.time() - start > 1:
            print(f"{block.place}: {time.time() - start:.1f} s", file=sys.stderr)


def write_files(page: str) -> None:
    """Write the files that another page shows, for one that says so in a setup."""
    for block in blocks(ROOT / page):
        if block.is_file:
            Path(block.is_file).write_text(block.text)


def run_python(block: Block, names: Dict[str, Any]) -> str:
    """Run a block of Python, or write it where it is a file; what it printed."""
    if block.is_file:
        Path(block.is_file).write_text(block.text)
        return ""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for code in (block.setup, block.run_text()):
            # Line numbers as in the page, and the page's name, in what a failure prints.
            line = int(block.place.rpartition(":")[2])
            exec(compile("\n" * (line if code is not block.setup else 0) + code, block.place, "exec"), names)
    return out.getvalue()


def run_command(block: Block, command: str) -> str:
    """Run a command; what it printed."""
    from soybean_mx import cli

    words = shlex.split(command, comments=True)
    if words[0] in ("apt-get", "pip", "make"):  # install or build: parsed by test_pages.py, and never run
        return ""
    if words[:3] == ["python", "-m", "soybean_mx"]:
        words[:3] = ["soybean-mx"]
    if words[0] == "soybean-mx" and words[1] != "run":
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                status = cli.main(words[1:])
            except SystemExit as end:
                status = end.code
        if status not in (0, None):
            raise AssertionError(f"{block.place}: {command} ends with status {status}:\n{said.getvalue()[-2000:]}")
        return out.getvalue()
    environment = dict(os.environ, PATH=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))
    if "SOYBEAN_MX" in command:  # the start-up hook, where the package is on PYTHONPATH and not installed
        Path("hook").mkdir(exist_ok=True)
        Path("hook", "sitecustomize.py").write_text((ROOT / "soybean_mx.pth").read_text())
        environment["PYTHONPATH"] = os.pathsep.join(["hook", environment.get("PYTHONPATH", "")])
    done = subprocess.run(["bash", "-ec", command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)
    if done.returncode:
        raise AssertionError(f"{block.place}: {command} ends with status {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def main(arguments: List[str]) -> None:
    """Run the page that the command line names."""
    run(ROOT / arguments[0])
    if "mxnet" in sys.modules:
        # A program that ends while MXNet has work left may be aborted at its very end, about once in 25 times.
        sys.modules["mxnet"].nd.waitall()


if __name__ == "__main__":
    main(sys.argv[1:])
