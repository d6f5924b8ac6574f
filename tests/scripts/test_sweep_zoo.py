"""The zoos against one device: all of MXNet's, and some of the others in turn, from day to day.

The whole sweep is ``python scripts/sweep_zoo.py``; docs/zoo.md has its table.
"""
from __future__ import annotations

import datetime
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, List, Tuple

import numpy as np
import pytest

from tests.child import ROOT, ChildFailure, run_child
from tests.scripts.script_modules import SCRIPTS, load, load_with_siblings

SWEEP = str(SCRIPTS / "sweep_zoo.py")
sweep_zoo = load("sweep_zoo")
zoo_models = load_with_siblings("zoo_models")
sequence_models = load_with_siblings("sequence_models")
contender = load_with_siblings("sweep_contender")

CHILDREN = 2
SECONDS = 600
TODAY = datetime.date.today().toordinal()


def in_turn(names: List[str], count: int) -> List[str]:
    """That many of the names, others every day, all of them in the end."""
    begin = TODAY * count % len(names)
    return (names * 2)[begin:begin + count]


def selected_runs() -> List[Tuple[str, str]]:
    """Models with devices: each of MXNet's on 4 one day and on 8 the next, and some others."""
    names = zoo_models.zoo_names()
    names += in_turn(zoo_models.gluoncv_names(), 2) + in_turn(list(sequence_models.MODELS), 6)
    return [(name, sweep_zoo.DEVICES[(TODAY + index) % 2]) for index, name in enumerate(names)]


RUNS = selected_runs()


@pytest.fixture(scope="module")
def rows() -> Dict[str, Dict]:
    """The row of every selected model."""
    with ThreadPoolExecutor(CHILDREN) as pool:
        found = pool.map(lambda run: sweep_zoo.run_model(run[0], [run[1]], "float64", SECONDS), RUNS)
        return {row["model"]: row for rows_of_model in found for row in rows_of_model}


@pytest.mark.parametrize("model, devices", RUNS)
def test_a_model_trains_as_on_one_device(rows, model, devices):
    row = rows[model]
    assert sweep_zoo.passes(row) and row["devices"] == devices, row


def test_the_command_and_its_rows():
    models = "mobilenet0.25,resnet18_v1"
    printed = run_child(SWEEP, ["--models", models, "--devices", "cpu:4", "--json"], timeout=SECONDS)
    rows = json.loads(printed)
    assert [row["model"] for row in rows] == ["mobilenet0.25", "resnet18_v1"]
    for row in rows:
        assert row["worst_error"] < 1e-9 and row["seconds"] > 0
        assert 0 < row["bytes_moved"] < row["bytes_data_parallel"]
        assert row["cut"] + row["replicated"] + row["whole"] <= row["nodes"]


def test_float32_is_held_against_its_own_noise():
    row, = sweep_zoo.run_model("resnet18_v1", ["cpu:4"], "float32", SECONDS)
    assert row["worst_error"] > 1e-9 and row["noise_ratio"] < sweep_zoo.NOISE_RATIO and sweep_zoo.passes(row)


def run_of(**values: float) -> "contender.Run":
    """A run whose tensors are vectors of such numbers."""
    return contender.Run({name.replace("_", " ", 2): np.full(4, value) for name, value in values.items()}, [], 0.1)


def test_an_error_is_measured_on_the_tensor_and_rounding_on_its_neighbours():
    serial = run_of(gradient_of_weight=2.0, gradient_of_bias=1e-9, parameter_weight=1.0, parameter_bias=1e-10)
    found = dict(serial.values, **{"gradient of weight": np.full(4, 2.002), "gradient of bias": np.full(4, 3e-9)})
    errors = contender.errors(serial, found)
    assert errors["gradient of weight"] == pytest.approx(1e-3)
    assert errors["gradient of bias"] == pytest.approx(1e-8)
    assert errors["parameter weight"] == errors["parameter bias"] == 0
    assert contender.errors(serial, {**found, "parameter weight": np.full(3, 1.0)})["parameter weight"] == float("inf")
    del found["gradient of bias"]
    assert contender.errors(serial, found)["gradient of bias"] == float("inf")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_must_be_so_on_one_device_too(value):
    serial = run_of(gradient_of_weight=1.0, parameter_weight=1.0)
    broken = dict(serial.values, **{"parameter weight": np.array([1, 1, value, 1])})
    assert contender.errors(serial, broken)["parameter weight"] == float("inf")


def test_what_passes():
    good = {"worst_error": 1e-10}
    assert sweep_zoo.passes(good) and not sweep_zoo.passes({**good, "error": "ended by signal 11"})
    assert not sweep_zoo.passes({"worst_error": 1e-3}) and not sweep_zoo.passes({"worst_error": float("nan")})
    assert sweep_zoo.passes({"worst_error": 1e-3, "noise_ratio": 2.0})
    assert not sweep_zoo.passes({"worst_error": 0.5, "noise_ratio": 1.0})  # such rounding hides anything
    assert not sweep_zoo.passes({"worst_error": 1e-3, "noise_ratio": 20.0})


def test_a_model_of_single_precision_alone_has_onednn_in_a_sweep_in_double():
    row, = sweep_zoo.run_model("batch_norm_relu", ["cpu:4"], "float64", SECONDS)
    assert sweep_zoo.passes(row) and row["dtype"] == "float32", row  # without oneDNN: not implemented for CPU


def test_what_one_device_cannot_train_is_a_row():
    row, = sweep_zoo.run_model("center_net_resnet18_v1b_dcnv2_voc", ["cpu:4"], "float64", SECONDS)
    assert "on GPUs only" in row["untrainable"] and row["worst_error"] is None
    assert sweep_zoo.passes(row) and "one device cannot train it" in sweep_zoo.markdown([row])


def test_a_crash_is_a_row(monkeypatch):
    monkeypatch.setattr(sweep_zoo, "HERE", ROOT / "tests" / "scripts" / "crashing")
    row, = sweep_zoo.run_model("any", ["cpu:4"], "float64", SECONDS)
    assert row["model"] == "any" and row["worst_error"] is None and "signal" in row["error"]
    assert not sweep_zoo.passes(row) and "FAILED" in sweep_zoo.markdown([row])


def test_rows_are_kept_and_not_run_again(tmp_path, monkeypatch):
    kept = {"model": "resnet18_v1", "devices": "cpu:4", "dtype": "float64", "worst_error": None, "error": "kept"}
    (tmp_path / "rows").write_text(json.dumps(kept) + "\n")
    monkeypatch.setattr(sweep_zoo, "run_model", lambda *_: pytest.fail("it runs again"))
    args = sweep_zoo.parse_arguments(["--devices", "cpu:4", "--results", str(tmp_path / "rows")])
    assert sweep_zoo.sweep(["resnet18_v1"], args) == [kept]


@pytest.mark.parametrize("flags, said", [(["--models", "lenet"], "no model 'lenet'"), (["--models", ","], "no model"),
                                         (["--sample", "5/4"], "I must be"), (["--sample", "a"], "two whole numbers"),
                                         (["--devices", "tpu:1"], "tpu"), (["--jobs", "0"], "at least 1")])
def test_messages(flags, said):
    with pytest.raises(ChildFailure, match=said):
        run_child(SWEEP, flags)


def documented_commands() -> List[str]:
    """The command lines of docs/zoo.md."""
    lines = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("python scripts/sweep_zoo.py")]


def test_the_documented_commands_are_ones_that_the_script_takes():
    commands = documented_commands()
    assert len(commands) == 2
    for command in commands:
        args = sweep_zoo.parse_arguments(command.split()[2:])
        for name in (args.models or "").split(","):
            assert not name or contender.find(name)


def test_every_name_of_the_zoos_is_there():
    names = run_child(SWEEP, ["--list"]).split()
    assert len(names) == len(set(names)) and len(zoo_models.zoo_names()) == 34
    assert {"resnet152_v2", "gluoncv:resnet152_v2", "nasnet_6_4032", "yolo3_darknet53_voc"} <= set(names)
