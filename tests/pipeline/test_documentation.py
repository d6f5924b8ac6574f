"""What docs/pipeline.md and docs/pipeline_runtime.md say, beside the blocks that tests/documentation runs."""
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


COMMANDS = dict(re.findall(r"^python scripts/(\w+)\.py (.*)$", TEXT, re.MULTILINE))


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


@pytest.mark.parametrize("number, column", [(0, 2), (1, 3)])
def test_the_comparisons(capsys, number, column):
    """The table is what the commands print."""
    line = re.findall(r"```sh\n(.*?)```", PLANNER, re.DOTALL)[1].splitlines()[number]
    assert cli.main([*shlex.split(line)[1:], "--json"]) == 0
    found = {item["name"]: f"{item['step_ms']:.4g}" for item in json.loads(capsys.readouterr().out)["combinations"]}
    said = {row[0]: row[column - 1] for row in re.findall(
        r"^\| (data parallelism|tiling|pipeline[^|]*?) \| ([\d.]*) ?\| ([\d.]+) \|$", PLANNER, re.MULTILINE)}
    assert found == {name: value for name, value in said.items() if value}


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
