"""What the devices hold in a simulated step: the blocks of MXNet's memory planner, and what is alive at a time.

MXNet decides before a run which tensors share a block of memory, from the order in which operators are handed over
(NNVM's ``plan_memory``). An executor holds all blocks all the time, more than is ever in use at a time.
"""
from __future__ import annotations

import bisect
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from soybean_mx.simulation.engine import Played
from soybean_mx.simulation.steps import COPY, Made, Step, Task

# A tensor takes a free block of up to 16 times its size, or grows one of down to a 16th (NNVM_EXEC_MATCH_RANGE).
_MATCH_RANGE = 16


class Change(NamedTuple):
    """How many bytes a device's tensors take from a time on."""

    seconds: float
    size: int


def tile_bytes(step: Step, optimizer_states: int = 0) -> List[int]:
    """Bytes of each device's tiles of parameters, states and inputs, with their gradients and the optimizer's states.

    Parameters
    ----------
    step : Step
        The step.
    optimizer_states : int
        Tensors that the optimizer keeps for each parameter.
    """
    held = [0] * step.devices
    for tile in step.tiles:
        copies = 1 + int(tile.has_gradient)
        if tile.role == "parameter" and tile.has_gradient:
            copies += optimizer_states
        held[tile.device] += copies * tile.size
    return held


def block_bytes(step: Step) -> List[int]:
    """Bytes of the blocks that MXNet's memory planner makes on each device for the tensors of a step."""
    pools = [_Pool() for _ in range(step.devices)]
    uses = _uses(step)
    blocks: Dict[Made, int] = {}
    tasks = step.tasks
    for number in sorted(range(len(tasks)), key=lambda t: (tasks[t].position, t)):
        task = tasks[number]
        pool = pools[_place(task)]
        place_taken = False
        for output, size in enumerate(task.made):
            made = number, output
            if size == 0:
                continue
            over = _replaced(tasks, task, size)
            block = blocks.get(over) if over is not None else None
            if block is not None and (task.same or (not place_taken and pool.users[block] == 1)):
                place_taken = True
                pool.users[block] += 1
            else:
                block = pool.take(size)
            blocks[made] = block
            pool.users[block] += uses.get(made, 0) - 1  # of who makes it, the use ends here
            if pool.users[block] == 0:
                pool.release(block)
        for made in _read(task):
            block = blocks.get(made)
            if block is None:
                continue
            owner = pools[_place(tasks[made[0]])]
            owner.users[block] -= 1
            if owner.users[block] == 0:
                owner.release(block)
    return [sum(pool.sizes) for pool in pools]


def alive(step: Step, played: Played) -> List[List[Change]]:
    """How many bytes of tensors each device needs, over time: from when a task begins until who reads it has ended.

    Parameters
    ----------
    step : Step
        The step.
    played : Played
        When its tasks run.
    """
    tasks, uses = step.tasks, _uses(step)
    root: Dict[Made, Made] = {}
    sizes: Dict[Made, int] = {}
    ends: Dict[Made, float] = {}
    for number in sorted(range(len(tasks)), key=lambda t: (tasks[t].position, t)):
        task = tasks[number]
        place_taken = False
        for output, size in enumerate(task.made):
            made = number, output
            over = _replaced(tasks, task, size) if size else None
            if over is not None and over in root and (task.same or (not place_taken and uses.get(over, 0) == 1)):
                place_taken = True
                root[made] = root[over]
            elif size:
                root[made] = made
                sizes[made] = size
            if made in root:
                ends[root[made]] = max(ends.get(root[made], 0.0), played.ends[number])
    for number, task in enumerate(tasks):
        for made in _read(task):
            if made in root:
                ends[root[made]] = max(ends[root[made]], played.ends[number])
    for made in step.heads:
        if made in root:
            ends[root[made]] = played.seconds
    changes: List[Dict[float, int]] = [{} for _ in range(step.devices)]
    for made, size in sizes.items():
        at = changes[_place(tasks[made[0]])]
        begin = played.begins[made[0]]
        at[begin] = at.get(begin, 0) + size
        at[ends[made]] = at.get(ends[made], 0) - size
    result = []
    for at in changes:
        held, curve = 0, [Change(0.0, 0)]
        for seconds in sorted(at):
            held += at[seconds]
            curve.append(Change(seconds, held))
        result.append(curve)
    return result


def _place(task: Task) -> int:
    """The device on which a task's outputs lie."""
    return task.to if task.kind == COPY else task.device


def _read(task: Task) -> List[Made]:
    return [made for made in (*task.inputs, *task.kept) if made[1] >= 0]


def _uses(step: Step) -> Dict[Made, int]:
    uses: Dict[Made, int] = {}
    for made in (*(made for task in step.tasks for made in _read(task)), *step.heads):
        uses[made] = uses.get(made, 0) + 1
    return uses


def _replaced(tasks: Sequence[Task], task: Task, size: int) -> Optional[Made]:
    """What an output of a size may be written over."""
    over = task.over
    if over is None or over[1] < 0 or tasks[over[0]].made[over[1]] != size or _place(tasks[over[0]]) != _place(task):
        return None
    return over


class _Pool:
    """The blocks of one device."""

    def __init__(self) -> None:
        self.sizes: List[int] = []
        self.users: List[int] = []
        self._free: List[Tuple[int, int]] = []  # size, block

    def take(self, size: int) -> int:
        place = bisect.bisect_left(self._free, (size, -1))
        if place == len(self._free) or self._free[place][0] > size * _MATCH_RANGE:
            if place == 0 or self._free[place - 1][0] < size // _MATCH_RANGE:
                self.sizes.append(size)
                self.users.append(1)
                return len(self.sizes) - 1
            place -= 1
        block = self._free.pop(place)[1]
        self.sizes[block] = max(self.sizes[block], size)
        self.users[block] = 1
        return block

    def release(self, block: int) -> None:
        bisect.insort(self._free, (self.sizes[block], block))
