"""The network of the measurements: data parallelism gathers and reduces each weight once, at 32 positions."""
from __future__ import annotations

from soybean_mx import core, model_loading
from tests.scripts.script_modules import load


def test_data_parallelism_moves_each_weight_twice():
    script = load("unrolled_lstm")
    loaded = model_loading.of_block("lstm", script.unrolled_lstm(), [(64, script.POSITIONS, script.WIDTH)])
    plan = core.plan(loaded.graph, {"devices": 8, "strategy": "data"})
    weights = 2 * 4 * script.WIDTH * (script.WIDTH + 1) + script.CLASSES * (script.WIDTH + 1)
    assert plan["bytes"]["total"] == 2 * 7 * 4 * weights  # gathered and reduced, by 7 of 8 devices, 4 bytes each
