"""The benchmark of the planner: what it reports is what the planner says, and its arithmetic."""
from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace

import pytest

from soybean_mx import core, model_loading
from tests.child import run_child
from tests.scripts.script_modules import SCRIPTS, load_with_siblings

BENCH = str(SCRIPTS / "bench_planner.py")


@pytest.fixture(scope="module")
def bench_planner():
    return load_with_siblings("bench_planner")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planner")
    printed = run_child(BENCH, ["--models", "alexnet,no_such_net", "--devices", "4,8", "--repeat", "2", "--baselines",
                                "data,recursive", "--json", str(folder / "a.json"), "--markdown", str(folder / "a.md")])
    return SimpleNamespace(json=json.loads((folder / "a.json").read_text()), markdown=(folder / "a.md").read_text(),
                           printed=printed, files=sorted(path.name for path in folder.iterdir()))


def test_figures_are_the_planner_s(report):
    assert report.json["devices"] == [4, 8] and report.files == ["a.json", "a.md"]
    alexnet, missing = report.json["models"]
    assert [(plan["devices"], plan["batch_size"]) for plan in alexnet["plans"]] == [(4, 128), (8, 256)]
    for plan in alexnet["plans"]:
        graph = model_loading.load("alexnet", plan["batch_size"]).graph
        own = core.plan(graph, {"devices": plan["devices"]})
        assert plan["bytes"] == own["bytes"]["total"] >= plan["lower_bound_bytes"]
        assert {name: plan[name] for name in ("nodes", "width", "exact", "gap")} == {
            name: own[name] for name in ("nodes", "width", "exact", "gap")}
        assert 0 < plan["seconds"] <= plan["call_seconds"] and plan["repeats"] == 2
        assert 50e6 < plan["base_bytes"] <= plan["peak_bytes"] < 1e9
        data = core.plan(graph, {"devices": plan["devices"], "strategy": "data"})
        assert {"devices": plan["devices"], "strategy": "data", "bytes": data["bytes"]["total"]}.items() <= next(
            item for item in alexnet["baselines"] if (item["devices"], item["strategy"]) == (plan["devices"], "data")
        ).items()
    assert missing["plans"] == [] and "no_such_net" in missing["skipped"]


def test_tables(report):
    alexnet = report.json["models"][0]
    ratio = alexnet["baselines"][0]["bytes"] / alexnet["plans"][0]["bytes"]
    row = next(line for line in report.markdown.splitlines() if line.startswith("| alexnet |"))
    assert f"| {ratio:.3g} |" in row
    assert "python scripts/bench_planner.py --models alexnet,no_such_net" in report.markdown
    for text in (report.markdown, report.printed):
        assert "no_such_net" in text and "8 devices" in text and "not measured" in text


def test_models_of_the_zoos(bench_planner):
    assert len(bench_planner.mxnet_names()) == 34
    models, skipped = bench_planner.zoo_models()
    names = [model.name for model in models]
    assert names[:34] == bench_planner.mxnet_names() and len(set(names)) == len(names)
    if "GluonCV's models" in skipped:
        pytest.skip("GluonCV is not installed")
    assert {"resnest50", "cifar_resnet20_v1", "hrnet_w18_c", "darknet53", "senet_154", "nasnet_4_1056"} <= set(names)
    assert set(skipped) == {"mobilenet1.0_int8", "resnet50_v1_int8"}
    other_tasks = ("ssd", "yolo", "faster", "simple_pose", "resnet50_v1b_kinetics400", "hrnet_w48_s")
    assert not [name for name in names if name.startswith(other_tasks)]


def test_depth(bench_planner):
    assert bench_planner.exponent([10, 100, 1000], [2, 20, 200]) == pytest.approx(1)
    assert bench_planner.exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
    assert math.isnan(bench_planner.exponent([5], [1]))
    points = [{"model": f"resnet_{n}", "plans": [{"devices": 8, "nodes": n * 10, "seconds": n ** 1.5}]} for n in (1, 3)]
    (curve,) = bench_planner.fit_depth(points)
    assert (curve["network"], curve["devices"], curve["exponent"]) == ("resnet", 8, pytest.approx(1.5))
    assert [point["depth"] for point in curve["points"]] == [1, 3]


def test_depth_networks(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    graph = model_loading.load("depth_networks:perceptron_7", input_shapes=[(8, 1024)]).graph
    assert core.plan(graph, {"devices": 2})["nodes"] == 14  # products and ReLUs
    with pytest.raises(model_loading.ModelError, match="perceptron_0"):
        model_loading.load("depth_networks:perceptron_0", input_shapes=[(8, 1024)])


def test_requirements(bench_planner):
    def result(name, devices, seconds, peak=200e6):
        return {"model": name, "plans": [{"devices": devices, "seconds": seconds, "peak_bytes": peak}]}

    found = bench_planner.check([result("vgg16", 8, 0.019), result("vgg16_bn", 8, 9), result("vgg16", 1024, 2.5),
                                 result("alexnet", 1024, 1, 600e6)])
    assert [item["met"] for item in found] == [True, None, False, False]
    assert [(item["worst_model"], item["missed"], item["measured"]) for item in found] == [
        ("vgg16", 0, 1), (None, 0, 0), ("vgg16", 1, 2), ("alexnet", 1, 4)]


def test_a_plan_that_was_not_waited_for_meets_no_requirement(bench_planner):
    plan = {"devices": 8, "seconds": 0.01, "peak_bytes": 200e6}
    slow = {"model": "vgg16", "devices": [8, 1024], "plans": [plan], "failed": "not done after 1 s"}
    vgg, _, thousand, memory = bench_planner.check([slow])
    assert vgg["met"] is True and vgg["unfinished"] == []
    assert thousand["met"] is False and thousand["unfinished"] == ["vgg16"] and thousand["worst"] is None
    assert memory["met"] is False and memory["unfinished"] == ["vgg16"]


def test_a_process_that_is_too_slow_keeps_what_it_has(bench_planner, monkeypatch, tmp_path):
    (tmp_path / "plan_measurement.py").write_text(
        "import time\nprint('{\"devices\": 8, \"strategy\": \"optimal\"}', flush=True)\ntime.sleep(60)\n")
    monkeypatch.setattr(bench_planner, "__file__", str(tmp_path / "bench_planner.py"))
    request = bench_planner.Request("alexnet", None, (8,), (), 1, None)
    found = bench_planner.measure(bench_planner.Model("alexnet", "alexnet"), request, timeout=1)
    assert len(found["plans"]) == 1 and found["failed"] == "not done after 1 s"


def test_an_interrupt_keeps_what_was_measured(bench_planner, monkeypatch):
    def measure(model, request, timeout):
        if model.name == "vgg16":
            raise KeyboardInterrupt
        return {"model": model.name, "plans": [1], "baselines": []}

    monkeypatch.setattr(bench_planner, "measure", measure)
    models = bench_planner.named(["alexnet", "vgg16", "vgg19"])
    found = bench_planner.measure_all(models, [8], [], bench_planner.parse_arguments([]))
    assert [(result["model"], result["plans"]) for result in found] == [("alexnet", [1]), ("vgg16", []), ("vgg19", [])]
    assert all("interrupted" in result["failed"] for result in found[1:])


@pytest.mark.parametrize("flags, said", [
    (["--repeat", "0"], "at least 1"), (["--baselines", "datta"], "recursive"), (["--devices", "0"], "1 to ")])
def test_messages(bench_planner, capsys, flags, said):
    with pytest.raises(SystemExit):
        bench_planner.parse_arguments(flags)
    assert said in capsys.readouterr().err
