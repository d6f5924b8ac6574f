"""The benchmark of the planner of stages runs and prints what it measures."""
from __future__ import annotations

import json

from tests.scripts.script_modules import load


def test_a_profile(capsys, tmp_path):
    bench, output = load("bench_stages"), tmp_path / "times.json"
    slowest = bench.main([str(bench.profiles.SHIPPED / "alexnet.graph.txt"), "--repeats", "1", "--json", str(output)])
    printed = capsys.readouterr().out
    assert "8x2" in printed and "The slowest search takes" in printed and set(slowest) == {"alexnet"}
    rows = json.loads(output.read_text())
    assert [row["devices"] for row in rows] == ["4", "16", "4x4", "8x2"]
    assert all(len(row["seconds"]) == 4 for row in rows)
