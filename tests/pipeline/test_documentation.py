"""What docs/pipeline_runtime.md shows is run."""
from __future__ import annotations

import re
import shlex

from tests.child import ROOT, run_child

TEXT = (ROOT / "docs" / "pipeline_runtime.md").read_text()


def test_the_program(tmp_path):
    program, = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    program = program.replace("net.params", str(tmp_path / "net.params"))
    assert run_child(program) == "[2, 1] True\n"


COMMANDS = dict(re.findall(r"^    python scripts/(\w+)\.py (.*)$", TEXT, re.MULTILINE))


def run_smaller(name, *changes, more=()):
    """Run a command of the page with some of its words exchanged, and more words."""
    text = COMMANDS.pop(name)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return run_child(str(ROOT / "scripts" / f"{name}.py"), [*shlex.split(text), *map(str, more)])


def test_the_commands_smaller(tmp_path):
    trace = tmp_path / "trace.json"
    printed = run_smaller("bench_pipeline", ("vgg11", "mlp64"), ("--steps 10", "--steps 2"), more=["--trace", trace])
    assert "times the speed of one device" in printed and "bubble" in printed and trace.exists()
    run_smaller("train_vgg", more=["--width", 0.125, "--num-epochs", 1, "--batches-per-epoch", 3, "--save-dir",
                                   tmp_path / "logs"])
    assert (tmp_path / "logs" / "vgg11_bn-0001.params").exists()
    printed = run_smaller("pipeline_convergence", ("--seeds 3 --epochs 7", "--seeds 1 --epochs 1"),
                          more=["--evaluations", 1, "--width", 0.125, "--kinds", "flush", "1f1b"])
    assert "epochs to 97 %" in printed
    assert not COMMANDS
