"""Networks of linear algebra, NumPy's operators and random numbers train tiled as on one device."""
from __future__ import annotations

import pytest

from tests.child import run_child

# Each in a process of its own: NumPy's semantics are the process's.
RUNS = [("matrices", "cpu:4", "optimal"), ("matrices", "cpu:3", "data"), ("numpy", "cpu:4", "optimal"),
        ("random", "cpu:4", "data"), ("numpy_random", "cpu:3", "optimal"), ("noise", "cpu:4", "optimal")]


@pytest.mark.parametrize("run", RUNS, ids="-".join)
def test_trains_as_on_one_device(run):
    run_child("tests.runtime.numeric_networks", run, env={"OMP_NUM_THREADS": "1"})
