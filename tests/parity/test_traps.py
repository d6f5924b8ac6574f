"""Operators that mean something else on a part than on the whole train tiled as on one device (tests/parity/traps.py).

Traps share child processes; where one crashes its process, those after it go on in another. By default every plan runs
in one element type, in turn; SOYBEAN_MX_TEST_FULL=1 runs all in all.
"""
from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List

import numpy as np
import pytest

from tests.child import run_each
from tests.parity.traps import FULL, TOLERANCE, TRAPS, errors, runs

CHILDREN = 2
SECONDS_PER_TRAP = 120 if FULL else 40
# Sums in half precision are made in single, as MXNet recommends.
ENVIRONMENT = {"MXNET_SAFE_ACCUMULATION": "1"}


def check_all(folder: Path, names: List[str]) -> Dict[str, str]:
    """Check traps and return, by name, why one did not end."""
    return run_each("tests.parity.traps", folder, names, ".json", SECONDS_PER_TRAP, ENVIRONMENT)


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """The folder of what disagreed, and the failures by name."""
    folder = tmp_path_factory.mktemp("traps")
    names = list(TRAPS)
    with ThreadPoolExecutor(CHILDREN) as pool:
        parts = pool.map(lambda k: check_all(folder, names[k::CHILDREN]), range(CHILDREN))
        return folder, {name: text for part in parts for name, text in part.items()}


@pytest.mark.parametrize("name", TRAPS)
def test_trap(checked, name):
    folder, failures = checked
    if name in failures:
        pytest.fail(failures[name], pytrace=False)
    problems = json.loads((folder / f"{name}.json").read_text())
    if problems:
        pytest.fail("\n".join(problems[:8]), pytrace=False)


def test_every_plan_meets_every_number_of_devices():
    for name, trap in TRAPS.items():
        chosen = runs(trap, everything=False)
        plans = {str(run.options.get("pins")) for run in chosen}
        assert {(run.devices, str(run.options.get("pins"))) for run in chosen} == {
            (devices, plan) for devices in (2, 3, 4, 8) for plan in plans}, name
        assert len(plans) == 1 + len(trap.forced)
        assert {run.dtype for run in chosen} == set(trap.dtypes)


def test_a_wrong_tensor_is_found():
    """The comparison itself: what is off by twice the tolerance, lost or of another shape is beyond it."""
    expected = {"output 0": np.arange(1.0, 5.0), "gradient of w": np.ones(3)}
    for dtype, tolerance in TOLERANCE.items():
        assert all(error <= tolerance for error in errors(expected, dict(expected)).values())
        for name, value in expected.items():
            wrong = {**expected, name: value * (1 + 2 * tolerance)}
            assert errors(expected, wrong)[name] > tolerance, dtype
    assert np.isnan(errors(expected, {"output 0": np.arange(1.0, 4.0)})["output 0"])
    assert np.isnan(errors(expected, {})["gradient of w"])
