"""Schedules as data: dependencies, PipeDream's formulas, versions and bubbles."""
from __future__ import annotations

import itertools

import pytest

from soybean_mx.pipeline.schedule import (
    BACKWARD,
    FORWARD,
    PER_MINIBATCH,
    SCHEDULES,
    SYNCHRONOUS,
    UPDATE,
    Runner,
    ScheduleError,
    bubble,
    in_flight,
    operations,
    simulated_bubble,
    warm_up_forwards,
)

REPLICAS = [replicas for stages in (1, 2, 3, 4) for replicas in itertools.product((1, 2, 3), repeat=stages)]


def configurations(schedule):
    if schedule == "interleaved":
        return [((1,) * stages, devices) for devices, stages in ((2, 4), (3, 6), (2, 6), (4, 8))]
    return [(replicas, None) for replicas in REPLICAS
            if schedule != "1f1b-vertical-sync" or len(set(replicas)) == 1]


def sizes(schedule, replicas):
    """Batches of microbatches: three of them, or enough single ones for a steady state."""
    return [1] * 15 if schedule in PER_MINIBATCH else [12] * 3


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_nothing_is_done_before_what_it_needs(schedule):
    for replicas, devices in configurations(schedule):
        batches = sizes(schedule, replicas)
        runner, done, updates, total = Runner(schedule, replicas, devices), set(), [0] * len(replicas), 0
        for batch, count in enumerate([*batches, 0]):
            if count:
                added = runner.add(count)
                ready = list(runner.ready())
                # The loss of every microbatch that was given can be returned at once.
                assert {op.microbatch for op in ready if op[:2] == (FORWARD, len(replicas) - 1)}.issuperset(added)
            else:
                ready = list(runner.drain())
            for kind, stage, number, version in ready:
                key = (batch, number) if schedule in SYNCHRONOUS else number
                if kind == UPDATE:
                    updates[stage] += 1
                    assert version == updates[stage]
                    continue
                assert version <= updates[stage]
                if stage and kind == FORWARD:
                    assert (FORWARD, stage - 1, key) in done
                if kind == BACKWARD:
                    assert (FORWARD, stage, key) in done
                    # No gradient of a round of replicas before the update of the last one.
                    assert schedule not in PER_MINIBATCH or updates[stage] == number // replicas[stage]
                    assert stage == len(replicas) - 1 or (BACKWARD, stage + 1, key) in done
                assert (kind, stage, key) not in done
                done.add((kind, stage, key))
            total += count
        assert len(done) == 2 * total * len(replicas)
        for stage, count in enumerate(replicas):
            assert updates[stage] == (-(-total // count) if schedule in PER_MINIBATCH else len(batches))


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name != "interleaved"])
def test_forward_passes_ahead_are_the_formula(schedule):
    for replicas, _ in configurations(schedule):
        order = operations(schedule, replicas, [12] if schedule not in PER_MINIBATCH else [1] * 12)
        for stage, count in enumerate(replicas):
            for replica in range(count):
                held = most = 0
                for kind, at, number, _ in order:
                    if at == stage and number % count == replica and kind != UPDATE:
                        held += 1 if kind == FORWARD else -1
                        most = max(most, held)
                mine = len(range(replica, 12, count))
                assert most == min(mine, in_flight(schedule, replicas, stage, 12))


def test_warm_up_of_the_published_configurations():
    assert [warm_up_forwards((1, 1, 1, 1), stage) for stage in range(4)] == [3, 2, 1, 0]
    assert [warm_up_forwards((15, 1), stage) for stage in range(2)] == [1, 0]
    assert [warm_up_forwards((2, 1, 1), stage) for stage in range(3)] == [1, 1, 0]


def test_1f1b_uses_the_versions_of_the_formula():
    for kind, stage, number, version in operations("1f1b", (1, 1, 1), [1] * 9):
        if kind != UPDATE:
            assert version == max(0, number - (2 - stage))


@pytest.mark.parametrize("schedule", SYNCHRONOUS)
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_the_bubble_is_the_formula(schedule, devices):
    for rounds in (1, 2, 4):
        chunks = 2 if schedule == "interleaved" else 1
        order = operations(schedule, (1,) * (devices * chunks), [devices * rounds],
                           devices if schedule == "interleaved" else None)
        assert simulated_bubble(order, devices) == pytest.approx(bubble(schedule, devices, devices * rounds, chunks))


def test_bad_schedules_are_refused():
    with pytest.raises(ScheduleError, match="'zigzag' is unknown"):
        Runner("zigzag", (1, 1))
    with pytest.raises(ScheduleError, match="multiples of 2"):
        operations("interleaved", (1, 1, 1, 1), [3], devices=2)
    with pytest.raises(ScheduleError, match="at least 3"):
        operations("2bw", (1, 1, 1, 1), [2])
    with pytest.raises(ScheduleError, match="each stage as many"):
        Runner("1f1b-vertical-sync", (2, 1))
