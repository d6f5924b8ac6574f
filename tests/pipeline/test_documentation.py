"""What docs/pipeline_runtime.md shows is run."""
from __future__ import annotations

import re
import shlex

from tests.child import ROOT, run_child

TEXT = (ROOT / "docs" / "pipeline_runtime.md").read_text()


def test_the_program(tmp_path):
    program, tiled = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    program = program.replace("net.params", str(tmp_path / "net.params"))
    assert run_child(program) == "[2, 1] True\n"
    steps = program[program.index("for _ in"):]
    assert run_child(program + tiled + steps) == "[2, 1] True\n[2, 1] True\n"


def test_the_command_smaller(tmp_path):
    command, = re.findall(r"^    python (\S+) (.*)$", TEXT, re.MULTILINE)
    arguments = shlex.split(command[1].replace("vgg11", "mlp64").replace("--steps 10", "--steps 2"))
    trace = tmp_path / "trace.json"
    printed = run_child(str(ROOT / command[0]), [*arguments, "--trace", str(trace)])
    assert "times the speed of one device" in printed and "bubble" in printed and trace.exists()
