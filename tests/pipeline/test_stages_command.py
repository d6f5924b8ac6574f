"""The command `stages`, in this process."""
from __future__ import annotations

import json
import re

import pytest

from soybean_mx import cli
from soybean_mx.pipeline import profile as profiles
from soybean_mx.pipeline.stages_command import ArgumentError, device_levels, parse_rate
from tests.child import ROOT, run_child

FOLDER = ROOT / "soybean_mx" / "pipeline" / "profiles"
VGG, GNMT = str(FOLDER / "vgg16.graph.txt"), str(FOLDER / "gnmt.graph.txt")
FLAT = ["--devices", "16", "--bandwidth", "25Gb/s"]


def printed(capsys, *arguments):
    status = cli.main(["stages", *arguments])
    out, err = capsys.readouterr()
    assert status == 0 and err == "", err
    return out


def test_the_json_has_the_released_optimizer_s_results(capsys):
    found = json.loads(printed(capsys, VGG, *FLAT, "--cost-model", "released", "--json"))
    assert found["config"] == [15, 1] and found["config_text"] == "15-1"
    assert round(found["stage_ms"], 3) == 45.525 and round(found["speedup_over_one"], 3) == 14.773
    assert round(found["speedup_over_data_parallel"], 3) == 1.835
    assert 0.9 < found["speedup_over_overlapped_data_parallel"] < 1
    assert found["stages"][0][:2] == ["node1", "node2"] and found["stages"][1][-1] == "node41"
    assert len(found["memory_bytes_per_stage"]) == 2 and found["search_seconds"] > 0
    assert found["weight_versions"] == [2, 1] and found["devices"] == 16 and found["exact"] is True


def test_servers_are_given_from_the_innermost(capsys):
    arguments = [VGG, "--devices", "4x4", "--bandwidth", "10GB/s,1.25GB/s", "--cost-model", "released", "--json"]
    found = json.loads(printed(capsys, *arguments))
    assert found["config_text"] == "3(4)-1(1-1-1-1)" and found["config"] == [12, 1, 1, 1, 1]
    assert round(found["stage_ms"], 3) == 67.134
    resnet = str(FOLDER / "resnet50.graph.txt")
    found = json.loads(printed(capsys, resnet, "--devices", "8x2", "--bandwidth", "30GB/s,3.125GB/s",
                               "--cost-model", "released", "--json"))
    assert found["config_text"] == "2(5-1-1-1)" and found["config"] == [10, 2, 2, 2]


def test_every_layer_is_in_one_stage_no_later_than_its_readers(capsys):
    found = json.loads(printed(capsys, GNMT, "--topology", "2xp3.16xlarge", "--json"))
    profile = profiles.load(GNMT)
    stage_of = {name: number for number, names in enumerate(found["stages"]) for name in names}
    assert sorted(stage_of) == sorted(layer.name for layer in profile.layers)
    assert sum(map(len, found["stages"])) == len(profile.layers)
    assert all(stage_of[source] <= stage_of[reader] for source, reader in profile.edges)
    assert {*sum(found["stages"], [])} - {*sum(found["operators"], [])} == {"node1", "node2", "node3"}  # data
    assert found["topology"] == "2xp3.16xlarge@25Gb/s"


def test_data_counts_for_the_memory_of_its_stage(capsys):
    found = json.loads(printed(capsys, VGG, "--devices", "1", "--bandwidth", "1", "--optimizer", "adam", "--json"))
    layers = profiles.load(VGG).layers
    weights, made = sum(layer.parameter_bytes for layer in layers), sum(layer.activation_bytes for layer in layers)
    assert found["memory_bytes_per_stage"] == [pytest.approx(4 * weights + made)]
    assert found["memory_per_stage"][0]["optimizer"] == 2 * weights


def test_a_memory_limit_is_kept(capsys):
    found = json.loads(printed(capsys, VGG, *FLAT, "--memory-limit", "16GB", "--optimizer", "momentum", "--json"))
    assert max(found["memory_bytes_per_stage"]) <= 16e9
    assert cli.main(["stages", VGG, *FLAT, "--memory-limit", "1GB"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "fits into the memory limit of 1000000000 bytes" in err


def test_the_table_and_the_timeline(capsys):
    out = printed(capsys, VGG, *FLAT, "--cost-model", "released")
    assert re.search(r"replicas +15-1, the best of all pipelines", out)
    assert "14.773x over one device, 1.835x over data parallelism, 0.923x where that overlaps" in out
    assert re.search(r"\n +0 +26 +node1 +node26 +15 +45.52 ms", out)
    assert re.search(r"stage 1 device 15 +\|", out) and "1 x 38.13 MiB" in out
    out = printed(capsys, VGG, "--topology", "2xp2.8xlarge")
    assert "MORE than the 11.18 GiB of a device: plan with --memory-limit 12GB" in out


def test_the_profile_is_written_with_stages(capsys, tmp_path):
    found = json.loads(printed(capsys, VGG, *FLAT, "-o", str(tmp_path / "out.txt"), "--json"))
    written = profiles.load(str(tmp_path / "out.txt"))
    assert {layer.name: layer.stage for layer in written.layers} == {
        name: number for number, names in enumerate(found["stages"]) for name in names}
    assert [item.name for item in tmp_path.iterdir()] == ["out.txt"]


def test_it_is_a_program_that_prints_nothing_but_json():
    assert json.loads(run_child("soybean_mx", ["stages", VGG, *FLAT, "--json"]))["config"] == [16]


@pytest.mark.parametrize("text, rate", [("25Gb/s", 3.125e9), ("10GB/s", 1e10), ("800MiB/s", 800 * 2 ** 20),
                                        ("3.125e9", 3.125e9), ("7", 7.0), ("2 kB/s", 2000.0), ("1Gbps", 1.25e8),
                                        ("64 B/s", 64.0), ("1KiB/s", 1024.0)])
def test_rates(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "-1", "fast", "1 Gx/s", "1e999", "GB/s", "5G"])
def test_rates_that_are_refused(text):
    with pytest.raises(ArgumentError, match="no number of bytes per second above 0"):
        parse_rate(text)


def test_levels_go_outwards():
    assert device_levels("8x2", "30GB/s,25Gb/s", None) == [{"groups": 2, "bandwidth": 3.125e9},
                                                           {"groups": 8, "bandwidth": 3e10}]


@pytest.mark.parametrize("arguments, said", [
    ([VGG], "Devices and their links were not given"), ([VGG, "--devices", "4"], "were not given"),
    ([VGG, "--devices", "four", "--bandwidth", "1"], "'four' are no numbers"),
    ([VGG, "--devices", "0", "--bandwidth", "1"], "1 to 1024"),
    ([VGG, "--devices", "2000", "--bandwidth", "1"], "1 to 1024"),
    ([VGG, "--devices", "4x4", "--bandwidth", "1"], "2 levels and --bandwidth 1 has 1"),
    ([VGG, "--devices", "4", "--bandwidth", "-5"], "'-5' is no number"),
    ([VGG, "--topology", "p9"], "no topology 'p9'"),
    ([VGG, "--topology", "p2.8xlarge", "--bandwidth", "1"], "leave one of them out"),
    ([VGG, "--topology", "p2.8xlarge", "--devices", "4"], "has 8"),
    ([VGG, "--topology", "128xdgx-h100", "--devices", "9"], "has 1024"),
    ([VGG, *FLAT, "--memory-limit", "much"], "'much' is no number of bytes"),
    ([VGG, *FLAT, "--optimizer-states", "-1"], "optimizer states is -1"),
    (["none.txt", *FLAT], "cannot be read"), ([str(FOLDER / "README.md"), *FLAT], "line 1: "),
    ([VGG, *FLAT, "-o", "nowhere/x.txt"], "cannot be written"),
])
def test_arguments_that_cannot_be_used(capsys, arguments, said):
    try:
        status = cli.main(["stages", *arguments])
    except SystemExit as error:
        status = error.code
    out, err = capsys.readouterr()
    assert status == 2 and out == "" and said in err


def test_a_profile_of_nothing_but_data(capsys, tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("a -- Input -- forward_compute_time=1, backward_compute_time=0, activation_size=4, "
                    "parameter_size=0\n")
    assert cli.main(["stages", str(path), *FLAT]) == 2
    assert "nothing but data" in capsys.readouterr().err
