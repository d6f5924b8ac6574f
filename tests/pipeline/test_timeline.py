"""The timeline of a pipeline against its schedule."""
from __future__ import annotations

import pytest

from soybean_mx.pipeline.schedule import FORWARD, UPDATE, operations
from soybean_mx.pipeline.timeline import draw, simulate


@pytest.mark.parametrize("replicas", [[1, 1, 1], [3, 1], [2, 2, 1], [1, 4]])
def test_devices_do_what_the_schedule_says(replicas):
    passes = simulate(replicas, [1.0] * len(replicas), [2.0] * len(replicas), 12)
    order = operations("1f1b", replicas, [1] * 12)
    for stage, count in enumerate(replicas):
        for replica in range(count):
            mine = [(item.kind, item.minibatch) for item in passes if item.device == (stage, replica)]
            assert mine == [(kind, number) for kind, at, number, _ in order
                            if at == stage and number % count == replica and kind != UPDATE]
    ends = {(item.kind, item.device[0], item.minibatch): item.end for item in passes}
    for item in passes:
        stage = item.device[0]
        if item.kind == FORWARD:
            assert stage == 0 or item.begin >= ends[FORWARD, stage - 1, item.minibatch]
        else:
            before = (item.kind, stage + 1) if stage + 1 < len(replicas) else (FORWARD, stage)
            assert item.begin >= ends[(*before, item.minibatch)]
    for device in {item.device for item in passes}:
        mine = [item for item in passes if item.device == device]
        assert all(later.begin >= earlier.end for earlier, later in zip(mine, mine[1:]))


def test_a_balanced_pipeline_has_no_gaps():
    lines = list(draw([1, 1], [10.0, 10.0], [20.0, 20.0], 48))
    assert len(lines) == 3 and lines[0].startswith("  stage 0 device 0    |") and "120 ms from left" in lines[2]
    for line in lines[:2]:
        row = line.split("|")[1]
        assert len(row) == 48 and " " not in row
        assert row.count("-") + row.count("=") < 48


def test_the_slowest_stage_alone_is_always_busy():
    slow, fast = (line.split("|")[1] for line in list(draw([2, 1], [20.0, 5.0], [40.0, 5.0]))[1:3])
    assert " " not in slow and " " in fast


def test_many_devices_and_no_time():
    lines = list(draw([30, 2], [1.0, 1.0], [1.0, 1.0]))
    assert len(lines) == 12 + 2 + 2 and lines[-2] == "and 18 more devices"
    assert list(draw([1], [0.0], [0.0])) == []
