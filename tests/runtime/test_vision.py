"""Networks of vision and detection operators train tiled as on one device."""
from __future__ import annotations

import itertools

import pytest

from tests.child import run_child

# Each in a process of its own: what MXNet does wrong with some of these operators ends it.
NETWORKS = ("deformable", "synchronised", "sized", "detector", "warped", "gathered")
RUNS = [(name, ("cpu:4", "cpu:8", "cpu:3")[i % 3], strategy)
        for i, (name, strategy) in enumerate(itertools.product(NETWORKS, ("data", "optimal")))]


@pytest.mark.parametrize("run", RUNS, ids="-".join)
def test_trains_as_on_one_device(run):
    run_child("tests.runtime.vision_networks", run, env={"OMP_NUM_THREADS": "1"})
