"""The benchmarks' commands in the documentation are ones that the scripts take; their own tests run them, smaller."""
from __future__ import annotations

import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.child import ROOT
from tests.scripts.script_modules import SCRIPTS

COMMAND = re.compile(r"^ *(python scripts/bench_\w+\.py.*)$", re.MULTILINE)
COMMANDS = sorted({command for page in ("scripts.md", "performance.md")
                   for command in COMMAND.findall((ROOT / "docs" / page).read_text())})


def test_there_are_commands():
    assert len(COMMANDS) > 8


@pytest.mark.parametrize("command", COMMANDS)
def test_the_script_takes_it(command, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    monkeypatch.chdir(tmp_path)
    _, script, *arguments = shlex.split(command)
    name = Path(script).stem
    assert (ROOT / "tests" / "scripts" / f"test_{name}.py").exists()
    if name in ("bench_train", "bench_partitioning"):
        args = importlib.import_module(name).parse_arguments(arguments)
        if name == "bench_train":
            importlib.import_module("benchmark_tasks").task(args.model, args.sequence_length)
