"""Task graphs written by hand, and drawn."""
from __future__ import annotations

from typing import List, Sequence, Tuple

from hypothesis import strategies as st

from soybean_mx.simulation.steps import COPY, FORWARD, Task
from soybean_mx.topology import Device, Level, Topology

HOSTS = Topology("hosts", Device(1e9, 1e9, 1e9), (
    Level("network", 2, 50.0, 0.5, shared=True), Level("bus", 2, 80.0, 0.0)))
"""Two hosts of two devices: a host's network carries 100 bytes/s in each direction, a device's bus 80."""

PAIR = Topology("pair", Device(1e9, 1e9, 1e9), (Level("link", 2, 100.0, 1.0),))
"""Two devices with a link of 100 bytes/s and a second of latency."""


def operator(device: int, position: int, inputs: Sequence[int] = (), in_turn: bool = False,
             made: Sequence[int] = (0,)) -> Task:
    """Something that a device computes."""
    return Task(FORWARD, f"op{position}", device, device, position, in_turn, 1.0, 0.0, 0,
                tuple((source, 0) for source in inputs), (), tuple(made))


def copy(sender: int, receiver: int, sent: int, position: int, inputs: Sequence[int] = ()) -> Task:
    """Something that a device sends."""
    return Task(COPY, f"copy{position}", sender, receiver, position, False, 0.0, 0.0, sent,
                tuple((source, 0) for source in inputs), (), (sent,))


@st.composite
def drawn(draw, devices: int) -> Tuple[List[Task], List[float]]:
    """Tasks in an order, and what each takes. What a task takes from another device comes by a copy."""
    tasks: List[Task] = []
    durations: List[float] = []
    for _ in range(draw(st.integers(1, 12))):
        device = draw(st.integers(0, devices - 1))
        inputs = []
        for source in draw(st.sets(st.integers(0, max(0, len(tasks) - 1)), max_size=3)) if tasks else ():
            held = tasks[source].to
            if held != device:
                tasks.append(copy(held, device, draw(st.integers(0, 500)), len(tasks), [source]))
                durations.append(0.0)
                source = len(tasks) - 1
            inputs.append(source)
        tasks.append(operator(device, len(tasks), inputs, draw(st.booleans())))
        durations.append(draw(st.sampled_from((0.0, 0.5, 1.0, 2.25))))
    return tasks, durations
