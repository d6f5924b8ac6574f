"""The commands `plan` and `topology`, in this process."""
from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from soybean_mx import cli, core
from soybean_mx.model_loading import load
from soybean_mx.plan_command import STRATEGIES, ArgumentError, parse_size
from soybean_mx.plan_report import counted, gibibytes, seconds, size
from tests.child import ROOT, run_child
from tests.fake_plan import FakePlanner

ALEXNET = ["plan", "alexnet", "--batch-size", "256"]


@pytest.fixture
def planner(monkeypatch):
    fake = FakePlanner()
    monkeypatch.setattr(core, "plan", fake)
    return fake


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SOYBEAN_MX")] + ["COLUMNS"]:
        monkeypatch.delenv(name, raising=False)


def printed(capsys, *arguments: str) -> str:
    """What a command prints that succeeds, and says nothing of errors."""
    status = cli.main(list(arguments))
    out, err = capsys.readouterr()
    assert status == 0 and err == "", err
    return out


def error_of(capsys, status: int, *arguments: str) -> str:
    """The one line of a command that fails."""
    assert cli.main(list(arguments)) == status
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith(f"soybean-mx {arguments[0]}: error: "), err
    return err


def test_the_core_s_own_plan_is_printed_as_json(capsys, tmp_path):
    path = tmp_path / "plan.json"
    found = json.loads(printed(capsys, *ALEXNET, "--devices", "8", "--json", "-o", str(path)))
    plan = core.plan(load("alexnet", 256).graph, {"devices": 8, "strategy": "optimal"})
    assert found["bytes_moved"] == plan["bytes"]["total"] and found["tilings"] == plan["tensors"]
    assert found["operators"] == plan["operators"] and found["whole_operators"] == []
    assert found["exact"] is True and found["predicted_seconds"] is None and found["topology"] is None
    assert found["model"] == "alexnet" and found["batch_size"] == 256 and found["devices"] == 8
    written = json.loads(path.read_text())
    assert written["tensors"] == plan["tensors"]
    assert core.lower(load("alexnet", 256).graph, written)["bytes"]["total"] == found["bytes_moved"]
    assert [item.name for item in tmp_path.iterdir()] == ["plan.json"]


def test_all_members_are_in_the_json(capsys, planner):
    found = json.loads(printed(capsys, *ALEXNET, "--topology", "p2.8xlarge", "--json"))
    moved = sum(item["bytes"] for item in found["conversions"])
    assert found["bytes_moved"] == moved and found["lower_bound_bytes"] == moved // 2 and found["gap"] == 1.0
    assert found["predicted_seconds"] == 0.51 and found["predicted_communication_seconds"] == 0.01
    assert found["search_seconds"] == 0.25 and found["nodes"] == 7 and found["width"] == 3
    assert found["peak_bytes_per_device"] == 13 * 2 ** 30 and found["memory"]["parameters"] == 1
    assert found["whole_operators"] == ["odd_op"] and found["topology"]["name"] == "p2.8xlarge"
    assert found["strategy"] == "optimal" and found["objective"] == "bytes" and found["exact"] is False


def test_the_table_of_a_plan(capsys, planner):
    out = printed(capsys, *ALEXNET, "--topology", "p2.8xlarge")
    assert re.search(r"model +alexnet, data 256x3x224x224", out) and re.search(r"devices +8, p2.8xlarge", out)
    assert re.search(r"lower bound .* gap 100 %", out) and "510 ms a step: 10 ms communication" in out
    assert "MORE than its" in out and "not proven to be the least" in out
    row = next(line for line in out.splitlines() if line.startswith("alexnet0_conv0_fwd"))
    assert row.split("  ")[0] == "alexnet0_conv0_fwd"
    assert re.search(r"Convolution +n x8 +split 0 x8 +split 0 x8 +1 KiB", row)
    assert "pool0" not in out  # has neither a weight nor a conversion
    assert "8 conversions, 8 move bytes:" in out and re.search(r"replicated x8 +8 KiB", out)
    assert "computed whole on one device, for want of a rule: odd_op" in out


def test_the_table_of_the_core_s_own_plan(capsys):
    out = printed(capsys, "plan", "resnet18_v1", "--devices", "4", "--batch-size", "32")
    assert re.search(r"resnetv10_conv0_fwd +Convolution +n x4", out) and "batchnorm0_fwd_mean " not in out


def test_operators_that_were_written_out_count_for_the_one_that_they_were(capsys, monkeypatch):
    def plan(graph, options):
        result = FakePlanner()(graph, options)
        result["operators"].pop("resnetv10_batchnorm0_fwd")
        result["operators"]["resnetv10_batchnorm0_fwd_mean_value"] = ["c", "c"]
        result["conversions"] = [{"tensor": "resnetv10_conv0_fwd", "user": "resnetv10_batchnorm0_fwd_mean_value",
                                  "from": ["split 0"] * 2, "to": ["split 1"] * 2, "bytes": 2048},
                                 {"tensor": "resnetv10_pool0_fwd", "user": None, "from": ["split 0"] * 2,
                                  "to": ["split 1"] * 2, "bytes": 5120}]
        return result

    monkeypatch.setattr(core, "plan", plan)
    out = printed(capsys, "plan", "resnet18_v1", "--devices", "4")
    assert re.search(r"resnetv10_batchnorm0_fwd +BatchNorm +c x4 +- +split 0 x4 +2 KiB", out)
    assert re.search(r"resnetv10_pool0_fwd +Pooling +n x4 +- +split 0 x4 +5 KiB", out)


def test_strategies_side_by_side(capsys, planner):
    found = json.loads(printed(capsys, *ALEXNET, "--devices", "8", "--compare", "--json"))
    by_name = {item["strategy"]: item for item in found["strategies"]}
    assert tuple(by_name) == STRATEGIES and sorted(planner.asked) == sorted(STRATEGIES)
    assert by_name["data"]["ratio_to_optimal"] == 1.0 and by_name["data"]["error"] is None
    assert by_name["zero"]["error"] == "zero needs an optimizer" and by_name["zero"]["bytes_moved"] is None
    out = printed(capsys, *ALEXNET, "--devices", "8", "--compare")
    assert re.search(r"megatron +\S+ GiB +1.00 +- +13 GiB", out) and "refused: zero needs an optimizer" in out


def test_ratios_of_the_core_s_own_plans(capsys):
    found = json.loads(printed(capsys, *ALEXNET, "--devices", "8", "--compare", "--json"))
    by_name = {item["strategy"]: item for item in found["strategies"]}
    assert by_name["optimal"]["ratio_to_optimal"] == 1.0 and by_name["data"]["ratio_to_optimal"] > 2


@pytest.mark.parametrize("arguments, expected", [
    (["--devices", "8"], {"devices": 8, "strategy": "optimal", "batch_norm": "exact"}),
    (["--topology", "2xpcie-tree@10Gb/s", "--objective", "time"], {"devices": 16, "objective": "time"}),
    (["--devices", "4", "--memory-limit", "12GB", "--optimizer", "adam"],
     {"memory_limit": 12 * 10 ** 9, "optimizer_states": 2}),
    (["--devices", "4", "--optimizer-states", "3", "--spatial", "yes"], {"optimizer_states": 3, "spatial": "yes"}),
    (["--devices", "2", "--batch-norm", "local", "--strategy", "random:7"],
     {"batch_norm": "local", "strategy": "random:7"}),
    (["--devices", "8", "--pin", "alexnet0_d*_weight=split 0", "--pin", "alexnet0_dense0_fwd=n,n,m"],
     {"pins": {"alexnet0_d*_weight": "split 0", "alexnet0_dense0_fwd": ["n", "n", "m"]}})])
def test_options_reach_the_planner(capsys, planner, arguments, expected):
    printed(capsys, *ALEXNET, *arguments)
    assert {name: planner.options[name] for name in expected} == expected
    given = {"devices", "strategy", "batch_norm", *expected, *(["topology"] if "--topology" in arguments else [])}
    assert set(planner.options) == given


def test_unequal_topologies_and_pins_of_files_reach_the_planner(capsys, planner, tmp_path):
    topology = {"name": "two hosts", "device": {"flops": 1e12, "memory": 1e9, "memory_bandwidth": 1e11},
                "levels": [{"name": "network", "groups": [3, 5], "bandwidth": 1e9, "latency": 1e-5},
                           {"name": "pcie", "bandwidth": 1e10, "latency": 1e-5}]}
    (tmp_path / "t.json").write_text(json.dumps(topology))
    (tmp_path / "p.json").write_text('{"alexnet0_conv?_weight": "owner"}')
    printed(capsys, *ALEXNET, "--topology", str(tmp_path / "t.json"), "--pins", str(tmp_path / "p.json"))
    assert planner.options["topology"] == topology and planner.options["devices"] == 8
    assert planner.options["pins"] == {"alexnet0_conv?_weight": "owner"}


def test_settings_of_the_environment_are_the_defaults(capsys, planner, monkeypatch):
    monkeypatch.setenv("SOYBEAN_MX_STRATEGY", "data")
    monkeypatch.setenv("SOYBEAN_MX_BATCH_NORM", "local")
    monkeypatch.setenv("SOYBEAN_MX_PINS", '{"*conv0_weight": "owner", "other*": "split 0"}')
    printed(capsys, *ALEXNET, "--devices", "2")
    assert planner.options == {"devices": 2, "strategy": "data", "batch_norm": "local",
                               "pins": {"*conv0_weight": "owner"}}
    printed(capsys, *ALEXNET, "--devices", "2", "--strategy", "model", "--pin", "*conv1_weight=owner")
    assert planner.options["strategy"] == "model" and planner.options["pins"] == {"*conv1_weight": "owner"}


@pytest.mark.parametrize("arguments, said", [
    (["--devices", "0"], "devices is 0"), (["--devices", "2000"], "devices is 2000"), ([], "--devices N"),
    (["--devices", "4", "--topology", "p2.8xlarge"], "4 devices were given, but the topology 'p2.8xlarge' has 8"),
    (["--topology", "p9"], "no topology 'p9'"), (["--devices", "2", "--objective", "time"], "--topology"),
    (["--devices", "2", "--strategy", "best"], "'best'"), (["--devices", "2", "--memory-limit", "big"], "'big'"),
    (["--devices", "2", "--optimizer-states", "-1"], "states is -1"), (["--devices", "2", "--pin", "x"], "no '='"),
    (["--devices", "2", "--pin", "x*=split 0"], "'x*' matches no tensor and no operator"),
    (["--devices", "2", "--pin", "a=n", "--pin", "a=m"], "pin it once"),
    (["--devices", "2", "--pins", "nowhere.json"], "nowhere.json"),
    (["--devices", "2", "--compare", "-o", "x"], "-o x"), (["--devices", "2", "--classes", "0"], "is 0"),
    (["--devices", "2", "-o", "nowhere/plan.json"], "cannot be written"),
    (["--devices", "2", "--dtype", "int8"], "'int8'")])
def test_arguments_that_are_refused(capsys, planner, arguments, said):
    assert said in error_of(capsys, 2, *ALEXNET, *arguments)


@pytest.mark.parametrize("arguments, said", [
    (["resnet19"], "no model 'resnet19'"), (["alexnet", "--input-shape", "1x2"], "'1x2'"),
    (["alexnet", "--input-shape", "a=1,2", "--input-shape", "3,4"], "name each once, or none"),
    (["alexnet", "--input-shape", "2,3,7,7"], "do not fit")])
def test_models_that_are_refused(capsys, planner, arguments, said):
    assert said in error_of(capsys, 2, "plan", *arguments, "--devices", "2")


def test_a_refused_plan_has_another_status(capsys, planner):
    assert "zero needs an optimizer" in error_of(capsys, 1, *ALEXNET, "--devices", "2", "--strategy", "zero")


def test_a_wrong_setting_is_refused(capsys, planner, monkeypatch):
    monkeypatch.setenv("SOYBEAN_MX_BATCH_NORM", "roughly")
    assert "SOYBEAN_MX_BATCH_NORM is 'roughly'" in error_of(capsys, 2, *ALEXNET, "--devices", "2")


def test_no_command_prints_the_help(capsys):
    assert cli.main([]) == 2
    assert "plan" in capsys.readouterr().out


def test_topologies_are_listed_and_shown(capsys, tmp_path):
    assert {"p2.8xlarge", "dgx-h200"} <= set(printed(capsys, "topology", "--list").split())
    assert "pcie-tree" in json.loads(printed(capsys, "topology", "--list", "--json"))
    out = printed(capsys, "topology", "4xp3.16xlarge@25Gb/s")
    assert "32 devices, each 15.7 TFLOP/s" in out and re.search(r"network +4 +0.3906 GB/s +50 us", out)
    path = str(tmp_path / "t.json")
    shown = json.loads(printed(capsys, "topology", "dgx-h100", "--json", "-o", path))
    assert json.loads(Path(path).read_text()) == shown == json.loads(printed(capsys, "topology", path, "--json"))


def test_contexts_are_measured_for_plans(capsys, tmp_path):
    path = str(tmp_path / "here.json")
    out = printed(capsys, "topology", "--measure", "--devices", "cpu:2", "-o", path)
    assert "measured on cpu:0,1: 2 devices" in out
    assert json.loads(printed(capsys, *ALEXNET, "--topology", path, "--json"))["devices"] == 2


@pytest.mark.parametrize("arguments, said", [
    ([], "give one of them"), (["p2.8xlarge", "--list"], "give one of them"), (["p9"], "no topology 'p9'"),
    (["--measure", "--devices", "cpu:1"], "one device"), (["--measure", "--devices", "tpu:2"], "'tpu'"),
    (["p2.8xlarge", "--devices", "cpu:2"], "without --measure"), (["--list", "-o", "x"], "name the preset"),
    (["p2.8xlarge", "-o", "nowhere/x.json"], "cannot be written")])
def test_topologies_that_are_refused(capsys, arguments, said):
    assert said in error_of(capsys, 2, "topology", *arguments)


@pytest.mark.parametrize("text, expected", [
    ("12GB", 12 * 10 ** 9), ("11GiB", 11 * 2 ** 30), ("1.5 gb", 1500000000), ("4096", 4096), ("1KiB", 1024)])
def test_sizes(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["0", "-1GB", "GB", "1 parsec", ""])
def test_sizes_that_are_refused(text):
    with pytest.raises(ArgumentError, match="number of bytes above 0"):
        parse_size(text)


def test_figures_in_words():
    assert counted([2, 2, 2], ["n", "m", "n"]) == "n x4, m x2" and counted([2, 3], ["owner", "owner"]) == "owner x6"
    assert [size(value) for value in (None, 0, 1023, 1536, 3 << 40)] == ["-", "0 B", "1023 B", "1.5 KiB", "3072 GiB"]
    assert gibibytes(2 ** 29) == "0.5 GiB" and seconds(0.0123) == "12.3 ms" and seconds(2.0) == "2 s"


def test_the_topology_of_the_documentation(capsys, tmp_path):
    text = (ROOT / "docs" / "planner.md").read_text()
    (tmp_path / "unequal.json").write_text(re.search(r"```json\n(.*?)```", text, re.DOTALL).group(1))
    assert "20 devices" in printed(capsys, "topology", str(tmp_path / "unequal.json"))


def test_planning_is_a_program_that_prints_nothing_but_json():
    out = run_child("soybean_mx", ["plan", "squeezenet1.0", "--devices", "2", "--batch-size", "8", "--json"])
    assert json.loads(out)["model"] == "squeezenet1.0"
