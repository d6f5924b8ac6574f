"""``soybean-mx simulate``, in this process."""
from __future__ import annotations

import json

import pytest

from soybean_mx import cli, core, topology
from soybean_mx.model_loading import load
from soybean_mx.simulate_command import SCHEDULES as OFFERED
from soybean_mx.simulation import simulate
from soybean_mx.simulation.pipelines import SCHEDULES

PERCEPTRON = "tests.simulation.test_operator_times:perceptron"
SMALL = [PERCEPTRON, "--input-shape", "8,4"]


def run(capsys, *arguments, status=0):
    """What the command prints."""
    assert cli.main(["simulate", *map(str, arguments)]) == status
    out, err = capsys.readouterr()
    assert bool(err) == (status != 0)
    return err if status else out


def test_it_prints_what_the_simulator_says(capsys):
    found = json.loads(run(capsys, "alexnet", "--topology", "p2.8xlarge", "--strategy", "data", "--json"))
    graph = load("alexnet").graph
    plan = core.plan(graph, {"devices": 8, "strategy": "data", "topology": topology.named("p2.8xlarge").to_json()})
    expected = simulate(graph, plan, topology.named("p2.8xlarge"))
    assert found["predicted_seconds"] == expected.seconds
    assert found["bytes_moved"] == plan["bytes"]["total"]
    assert {link["name"]: link["bytes"] for link in found["links"]} == expected.link_bytes
    assert [use["peak_bytes"] for use in found["device_use"]] == list(expected.peak_bytes)
    text = run(capsys, "alexnet", "--topology", "p2.8xlarge", "--strategy", "data")
    assert "predicted, times: roofline, without updates" in text and "pcie: device 7 out" in text


def test_strategies_side_by_side(capsys):
    arguments = [*SMALL, "--devices", 2, "--compare", "--optimizer", "adam"]
    found = json.loads(run(capsys, *arguments, "--json"))
    assert len(found["strategies"]) == 8 and found["optimizer_states"] == 2
    table = run(capsys, *arguments)
    assert "with updates" in table and all(item["strategy"] in table for item in found["strategies"])


def test_a_strategy_that_is_refused_is_named(capsys):
    out = run(capsys, *SMALL, "--devices", 2, "--compare", "--memory-limit", "300B")
    assert "memory" in out


def test_plans_times_and_traces_are_files(capsys, tmp_path):
    plan, times, trace, both = (tmp_path / name for name in ("plan.json", "times.json", "trace.json", "both.json"))
    assert cli.main(["plan", *SMALL, "--devices", "2", "-o", str(plan)]) == 0
    capsys.readouterr()
    measured = json.loads(run(capsys, *SMALL, "--devices", 2, "--plan", plan, "--times", "measured", "--write-times",
                              times, "--trace", trace, "--json"))
    again = json.loads(run(capsys, *SMALL, "--devices", 2, "--plan", plan, "--times", times, "--json"))
    assert again["predicted_seconds"] == measured["predicted_seconds"]
    run(capsys, *SMALL, "--devices", 2, "--plan", plan, "--trace", both, "--beside", trace)
    spans = [[event["pid"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
             for path in (trace, both)]
    assert spans[0] and spans[1].count(1) == spans[1].count(2) == len(spans[0])


def test_topologies_of_cpus_are_planned_with_operators_of_their_own(capsys, tmp_path):
    path = tmp_path / "cpus.json"
    path.write_text(json.dumps({"name": "cpus", "device": {"flops": 1e10, "memory": 1e9, "memory_bandwidth": 1e9,
                                                           "copy_engines": False},
                                "levels": [{"name": "link", "groups": 2, "bandwidth": 1e9, "latency": 1e-5}]}))
    found = json.loads(run(capsys, "resnet18_v1", "--batch-size", 2, "--topology", path, "--json"))
    for use in found["device_use"]:
        assert use["busy_seconds"] + use["sending_seconds"] <= found["predicted_seconds"] * (1 + 1e-9)


@pytest.mark.parametrize("more", [["--pipeline", 8], ["--pipeline", 8, "--schedule", "gpipe", "--microbatches", 2]])
def test_pipelines_of_models(capsys, tmp_path, more):
    trace = tmp_path / "trace.json"
    arguments = ["alexnet", "--batch-size", 16, "--topology", "2xp2.8xlarge", "--trace", trace, *more]
    found = json.loads(run(capsys, *arguments, "--json"))
    assert [stage["group"] for stage in found["stages"]] == [8, 8] and len(found["device_use"]) == 16
    assert found["predicted_seconds"] >= max(stage["forward_seconds"] + stage["backward_seconds"]
                                             for stage in found["stages"]) * found["microbatches"] * (1 - 1e-9)
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"}
    assert "stage 1, microbatch 0" in " ".join(names)
    assert "a batch" in run(capsys, *arguments)


def test_pipelines_of_profiles(capsys):
    profile = "soybean_mx/pipeline/profiles/vgg16.graph.txt"
    found = json.loads(run(capsys, profile, "--profile", "--topology", "2xp3.16xlarge", "--json"))
    assert sum(stage["replicas"] for stage in found["stages"]) == 16
    assert "replicas" in run(capsys, profile, "--profile", "--topology", "2xp3.16xlarge")


def test_the_schedules_are_those_that_can_be_simulated():
    assert sorted(OFFERED) == sorted(SCHEDULES)


@pytest.mark.parametrize("arguments, status, said", [
    ([*SMALL], 2, "number of devices was not given"),
    (["nothing", "--devices", 2], 2, "There is no model 'nothing'"),
    ([*SMALL, "--topology", "nowhere.json"], 2, "no topology file 'nowhere.json'"),
    ([*SMALL, "--devices", 2, "--memory-limit", "10B"], 1, "memory"),
    ([*SMALL, "--devices", 2, "--times", "nowhere.json"], 2, "times 'nowhere.json' cannot be read"),
    ([*SMALL, "--devices", 2, "--write-times", "t.json"], 2, "only measured times are written"),
    ([*SMALL, "--devices", 32, "--strategy", "model", "--times", "measured"], 2, "for 32 devices"),
    ([*SMALL, "--devices", 2, "--plan", "nowhere.json"], 2, "plan 'nowhere.json' cannot be read"),
    ([*SMALL, "--devices", 2, "--compare", "--trace", "t.json"], 2, "Both --compare and --trace"),
    ([*SMALL, "--devices", 2, "--beside", "t.json"], 2, "without --trace"),
    ([*SMALL, "--devices", 2, "--trace", "/nowhere/t.json"], 2, "'/nowhere/t.json' cannot be written"),
    ([*SMALL, "--devices", 2, "--schedule", "flush"], 2, "without a pipeline"),
    ([*SMALL, "--devices", 2, "--pipeline", 1], 2, "without a --topology"),
    ([*SMALL, "--topology", "p2.8xlarge", "--pipeline", 3], 2, "stages can have"),
    ([*SMALL, "--topology", "p2.8xlarge", "--pipeline", 1, "--strategy", "data"], 2, "--strategy was given for a pipe"),
    ([*SMALL, "--topology", "p2.8xlarge", "--pipeline", 1, "--microbatches", 2], 2, "give 1 or more, with --schedule"),
    (["alexnet", "--batch-size", 7, "--topology", "2xp2.8xlarge", "--pipeline", 8, "--schedule", "flush"], 2,
     "cannot be cut into 8 equal microbatches"),
    (["nowhere.txt", "--profile", "--topology", "p2.8xlarge"], 2, "nowhere.txt"),
    (["x", "--profile", "--topology", "p2.8xlarge", "--pipeline", 2], 2, "Both --profile and --pipeline 2"),
])
def test_arguments_that_are_refused(capsys, arguments, status, said):
    err = run(capsys, *arguments, status=status)
    assert said in err and err.startswith("soybean-mx simulate: error: ") and err.count("\n") == 1


def test_a_plan_for_other_devices_is_refused(capsys, tmp_path):
    plan = tmp_path / "plan.json"
    assert cli.main(["plan", *SMALL, "--devices", "2", "-o", str(plan)]) == 0
    capsys.readouterr()
    assert "is for 2 devices, but 4 were given" in run(capsys, *SMALL, "--devices", 4, "--plan", plan, status=2)
