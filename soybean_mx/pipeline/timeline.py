"""What the devices of a pipeline do over time, as text: the steady state of one forward, one backward (1F1B).

A device of a stage starts with PipeDream's number of forward passes and alternates then; a pass begins when its device
is free and the neighbouring stage has done its own of the same minibatch. Transfers and exchanges take no time here.
"""
from __future__ import annotations

from collections import deque
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from soybean_mx.pipeline.schedule import FORWARD, Cursor, warm_up_forwards

Device = Tuple[int, int]  # a stage, and which of its devices


class Pass(NamedTuple):
    """One pass of one device; times from the start of the run."""

    device: Device
    kind: str
    minibatch: int
    begin: float
    end: float


def simulate(replicas: Sequence[int], forward: Sequence[float], backward: Sequence[float],
             minibatches: int) -> List[Pass]:
    """The passes of a run with 1F1B.

    Parameters
    ----------
    replicas : sequence of int
        The number of devices of each stage; minibatch i is given to device i mod that number.
    forward, backward : sequence of float
        The time of each stage's passes of a minibatch.
    minibatches : int
        How many there are.

    Returns
    -------
    list of Pass
        Those of each device in the order of time.
    """
    devices = [(stage, replica) for stage, count in enumerate(replicas) for replica in range(count)]
    cursors = {device: Cursor(warm_up_forwards(replicas, device[0])) for device in devices}
    free, ends = dict.fromkeys(devices, 0.0), {}
    result = []
    waiting = deque(devices)
    while waiting:
        stage, replica = device = waiting.popleft()
        mine = range(replica, minibatches, replicas[stage])
        found = cursors[device].next(len(mine), True)
        if found is None:
            continue
        kind, minibatch = found[0], mine[found[1]]
        if kind == FORWARD:
            needed = (kind, stage - 1, minibatch) if stage > 0 else None
        else:
            needed = (kind, stage + 1, minibatch) if stage + 1 < len(replicas) else (FORWARD, stage, minibatch)
        if needed is not None and needed not in ends:
            continue  # woken by the device that does it
        begin = max(free[device], ends.get(needed, 0.0))
        end = begin + (forward if kind == FORWARD else backward)[stage]
        ends[kind, stage, minibatch] = free[device] = end
        cursors[device].done(kind)
        result.append(Pass(device, kind, minibatch, begin, end))
        neighbour = stage + 1 if kind == FORWARD else stage - 1
        if 0 <= neighbour < len(replicas):
            waiting.append((neighbour, minibatch % replicas[neighbour]))
        waiting.append(device)
    return result


def draw(replicas: Sequence[int], forward: Sequence[float], backward: Sequence[float], width: int = 96,
         most_rows: int = 24) -> Iterator[str]:
    """Lines that show the steady state: a pass is its minibatch's number, then ``-`` (forward) or ``=`` (backward).

    Parameters
    ----------
    replicas : sequence of int
        As of :func:`simulate`.
    forward, backward : sequence of float
        As of :func:`simulate`, in ms.
    width : int
        Of the time axis, in characters.
    most_rows : int
        How many devices are shown at most; of larger stages the first ones.
    """
    devices = sum(replicas)
    period = max((f + b) / m for f, b, m in zip(forward, backward, replicas))
    if not period > 0:
        return
    # Twice as many minibatches as are under way fill the pipeline; then each device has a pass of each kind or more.
    shown = max(max(replicas), 4)
    passes = simulate(replicas, forward, backward, 4 * devices + 2 * shown)
    start = min(item.begin for item in passes
                if item.device == (0, 0) and item.kind == FORWARD and item.minibatch >= 2 * devices)
    scale = width / (shown * period)
    rows: Dict[Device, List[str]] = {device: [" "] * width for device in _shown_devices(replicas, most_rows)}
    for item in passes:
        if item.device in rows:
            _put(rows[item.device], item, round((item.begin - start) * scale), round((item.end - start) * scale))
    last = -1
    for (stage, replica), row in rows.items():
        name = f"stage {stage}" if stage != last else ""
        last = stage
        yield f"{name:>9} device {sum(replicas[:stage]) + replica:<4} |{''.join(row)}|"
    hidden = devices - len(rows)
    if hidden:
        yield f"and {hidden} more devices"
    yield (f"{shown * period:.4g} ms from left to right; numbers are minibatches, - their forward and = their "
           "backward passes; transfers and exchanges are left out")


def _shown_devices(replicas: Sequence[int], most_rows: int) -> Iterator[Device]:
    share = max(1, most_rows // len(replicas))
    for stage, count in enumerate(replicas):
        for replica in range(min(count, share)):
            yield stage, replica


def _put(row: List[str], item: Pass, begin: int, end: int) -> None:
    fill = "-" if item.kind == FORWARD else "="
    text = str(item.minibatch)
    for at in range(begin, max(end, begin)):
        if 0 <= at < len(row):
            row[at] = text[at - begin] if at - begin < len(text) else fill
