"""What docs/pipeline.md and docs/pipeline_runtime.md show is run."""
from __future__ import annotations

import json
import re
import shlex

import pytest

from soybean_mx import cli
from soybean_mx.pipeline import profile as profiles
from soybean_mx.pipeline.stages_command import device_levels, plan
from tests.child import ROOT, run_child

TEXT = (ROOT / "docs" / "pipeline_runtime.md").read_text()


def test_the_program(tmp_path):
    program, tiled = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    program = program.replace("net.params", str(tmp_path / "net.params"))
    assert run_child(program) == "[2, 1] True\n"
    steps = program[program.index("for _ in"):]
    assert run_child(program + tiled + steps) == "[2, 1] True\n[2, 1] True\n"


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


PLANNER = (ROOT / "docs" / "pipeline.md").read_text()


def test_the_commands_of_the_planner(capsys, monkeypatch, tmp_path):
    block, *_ = re.findall(r"```sh\n(.*?)```", PLANNER, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "soybean_mx").symlink_to(ROOT / "soybean_mx")
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "soybean-mx"
        if arguments[0] == "profile":  # smaller
            at = arguments.index("--batch-size")
            arguments[at:at + 2] = ["--input-shape", "1,3,32,32", "--repeats", "1"]
        assert cli.main(arguments) == 0, line
        out, err = capsys.readouterr()
        assert out and not err
    assert profiles.load("staged.txt").layers[0].stage == 0


def test_the_benchmarks_smaller():
    """tests/scripts/test_bench_combined.py runs it."""
    _, _, block = re.findall(r"```sh\n(.*?)```", PLANNER, re.DOTALL)
    known = run_child(str(ROOT / "scripts" / "bench_combined.py"), ["--help"])
    for line in block.splitlines():
        program, script, *arguments = shlex.split(line)
        assert (program, script) == ("python", "scripts/bench_combined.py")
        assert all(option in known for option in arguments if option.startswith("--"))


@pytest.mark.parametrize("number, column", [(0, 2), (1, 3)])
def test_the_comparisons(capsys, number, column):
    """The table is what the commands print."""
    line = re.findall(r"```sh\n(.*?)```", PLANNER, re.DOTALL)[1].splitlines()[number]
    assert cli.main([*shlex.split(line)[1:], "--json"]) == 0
    found = {item["name"]: f"{item['step_ms']:.4g}" for item in json.loads(capsys.readouterr().out)["combinations"]}
    said = {row[0]: row[column - 1] for row in re.findall(
        r"^\| (data parallelism|tiling|pipeline[^|]*?) \| ([\d.]*) ?\| ([\d.]+) \|$", PLANNER, re.MULTILINE)}
    assert found == {name: value for name, value in said.items() if value}


def test_the_program_of_the_planner(tmp_path):
    program, = re.findall(r"```python\n(.*?)```", PLANNER, re.DOTALL)
    assert run_child(program.replace("resnet18.txt", str(tmp_path / "resnet18.txt"))).splitlines()[-1] == "2 (4,)"


def test_the_table_of_the_planner():
    found = re.findall(r"^\| (\w+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", PLANNER, re.MULTILINE)
    assert [row[0] for row in found] == ["alexnet", "gnmt", "inception_v3", "resnet50", "squeezenet1_0", "vgg16"]
    for row in found:
        assert row == table_row(row[0])


def table_row(name):
    """What the cost models choose for a profile."""
    profile = profiles.load(str(ROOT / "soybean_mx" / "pipeline" / "profiles" / f"{name}.graph.txt"))
    levels = device_levels("4x4", "10GB/s,10Gb/s", None)
    plans = {model: plan(profile, {"levels": levels, "cost_model": model})
             for model in ("released", "v1", "sosp", "overlap")}
    last = plans["overlap"]
    return (name, *(found["config_text"] for found in plans.values()), f"{last['stage_ms']:.3f}",
            f"{last['speedup_over_overlapped_data_parallel']:.2f}")
