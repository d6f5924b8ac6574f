"""Blocks of memory and what is alive, by hand."""
from __future__ import annotations

import pytest

from soybean_mx.simulation.engine import play
from soybean_mx.simulation.links import Network
from soybean_mx.simulation.memory_use import alive, block_bytes, tile_bytes
from soybean_mx.simulation.steps import Step, Tile
from tests.simulation.task_graphs import PAIR, copy, operator


def step_of_tasks(tasks, heads=(), tiles=()):
    return Step(2, tuple(tasks), {}, tuple(heads), tuple(tiles), 0.0, {}, {})


def curve_of(step, durations):
    return alive(step, play(step.tasks, durations, Network(PAIR), 2, True))


CHAIN = [operator(0, 0, made=[1000]), operator(0, 1, [0], made=[1000]), operator(0, 2, [1], made=[1000])]


def test_a_chain_needs_two_blocks_in_turn():
    step = step_of_tasks(CHAIN)
    assert block_bytes(step) == [2000, 0]
    zero, one = curve_of(step, [1, 1, 1])
    assert [(change.seconds, change.size) for change in zero] == [(0, 0), (0, 1000), (1, 2000), (2, 2000), (3, 0)]
    assert [change.size for change in one] == [0]


def test_what_may_be_written_over_takes_no_more():
    tasks = [CHAIN[0], *(task._replace(over=(number, 0)) for number, task in enumerate(CHAIN[1:]))]
    step = step_of_tasks(tasks)
    assert block_bytes(step) == [1000, 0]
    assert max(change.size for change in curve_of(step, [1, 1, 1])[0]) == 1000


def test_what_others_read_is_not_written_over_unless_it_is_the_same():
    reader = operator(0, 3, [0])
    last = CHAIN[1]._replace(over=(0, 0))
    assert block_bytes(step_of_tasks([CHAIN[0], last, CHAIN[2]])) == [2000, 0]
    assert block_bytes(step_of_tasks([CHAIN[0], last, CHAIN[2], reader])) == [3000, 0]
    assert block_bytes(step_of_tasks([CHAIN[0], last._replace(same=True)])) == [1000, 0]


def test_heads_and_what_the_backward_pass_reads_stay():
    kept = CHAIN[2]._replace(kept=((0, 0),))
    assert block_bytes(step_of_tasks([*CHAIN[:2], kept])) == [3000, 0]
    step = step_of_tasks(CHAIN, heads=[(0, 0)])
    assert block_bytes(step) == [3000, 0]
    assert curve_of(step, [1, 1, 1])[0][-1].size == 0


def test_free_blocks_serve_what_is_up_to_sixteen_times_smaller_or_larger():
    def blocks(first, later):
        return block_bytes(step_of_tasks([operator(0, 0, made=[first]), operator(0, 1, made=[later])]))[0]

    assert blocks(1600, 100) == 1600 and blocks(1601, 100) == 1701
    assert blocks(100, 1600) == 1600 and blocks(100, 1716) == 1816


def test_a_copy_lies_with_who_receives_it():
    step = step_of_tasks([operator(0, 0, made=[100]), copy(0, 1, 100, 1, [0]), operator(1, 2, [1], made=[8])])
    assert block_bytes(step) == [100, 108]


@pytest.mark.parametrize("states, expected", [(0, 250), (2, 350)])
def test_tiles_have_gradients_and_states(states, expected):
    tiles = [Tile("w", 0, "parameter", 50, True), Tile("mean", 0, "auxiliary", 50, False),
             Tile("x", 0, "input", 100, False), Tile("y", 1, "input", 4, True)]
    assert tile_bytes(step_of_tasks([], tiles=tiles), states) == [expected, 8]
