"""The benchmark of the joint planner trains by each plan and prints its prediction beside what it measures."""
from __future__ import annotations

import json

from tests.child import ROOT, run_child


def test_plans_of_a_perceptron(tmp_path):
    output = tmp_path / "rows.json"
    printed = run_child(str(ROOT / "scripts" / "bench_combined.py"), [
        "--model", "mlp64", "--devices", "cpu:4", "--image-size", "8", "--steps", "1", "--rounds", "1", "--json",
        str(output)])
    rows = json.loads(output.read_text())["rows"]
    assert {row["name"] for row in rows} >= {"data parallelism", "tiling", "pipeline of 2, each tiled over 2"}
    assert all(row["seconds"] > 0 and row["predicted_seconds"] > 0 for row in rows)
    assert "predicted" in printed
