"""Stages that are tiled over several devices compute what stages of one device do, whatever the schedule."""
from __future__ import annotations

import re

import pytest

from tests.child import run_child


@pytest.mark.parametrize("name", ["schedules", "replicas", "options", "tied", "resumed", "refusals"])
def test_tiled_stages(name):
    printed = run_child("tests.pipeline.tiled_stages", [name], timeout=300)
    # Adam divides small numbers by small ones, and shows their rounding.
    assert float(re.search(r"^difference (\S+)$", printed, re.MULTILINE)[1]) < 1e-9
