"""Plays a step, event by event, as MXNet's engine runs it.

A device runs one operator at a time: those that share its temporary space in the order in which they were handed over,
the others in the order in which what they need is there. A copy is run by the worker of the device that sends, among
its operators (CPU contexts), or beside them, where it takes the sending side of one device and the receiving side of
the other, in the order in which copies are ready (GPUs). Transfers over a shared link share its bandwidth
(:mod:`soybean_mx.simulation.links`). Without shared links, and with the core's durations, this is the core's own model
(csrc/lower/schedule.h), to the last bit.
"""
from __future__ import annotations

import heapq
from typing import Dict, List, NamedTuple, Sequence, Set, Tuple

from soybean_mx.simulation.links import Network, Path, fair_rates
from soybean_mx.simulation.steps import COPY, Task


class Played(NamedTuple):
    """When each task began and ended, in seconds, by its number."""

    begins: List[float]
    ends: List[float]

    @property
    def seconds(self) -> float:
        """When the last task ended."""
        return max(self.ends, default=0.0)


def play(tasks: Sequence[Task], durations: Sequence[float], network: Network, devices: int, copy_engines: bool,
         free_transfers: bool = False) -> Played:
    """Play a step.

    Parameters
    ----------
    tasks : sequence of Task
        The step.
    durations : sequence of float
        Seconds of each task; of copies it is not looked at.
    network : Network
        The links.
    devices : int
        How many there are.
    copy_engines : bool
        Whether devices copy while they compute.
    free_transfers : bool
        Whether copies take no time: what the devices would take without communication.
    """
    return _Player(tasks, durations, network, devices, copy_engines, free_transfers).play()


class _Player:
    def __init__(self, tasks, durations, network, devices, copy_engines, free_transfers):
        self._tasks, self._durations, self._network = tasks, durations, network
        self._engines, self._free = copy_engines, free_transfers
        count = len(tasks)
        self._users: List[List[int]] = [[] for _ in range(count)]
        self._open = [len(task.inputs) for task in tasks]
        for number, task in enumerate(tasks):
            for source, _ in task.inputs:
                self._users[source].append(number)
        self._next_in_turn: Dict[int, int] = {}
        last: Dict[int, int] = {}
        for number in sorted(range(count), key=lambda t: (tasks[t].position, t)):
            task = tasks[number]
            if task.in_turn:
                if task.device in last:
                    self._next_in_turn[last[task.device]] = number
                    self._open[number] += 1
                last[task.device] = number
        self._waiting: List[List[Tuple[float, int, int]]] = [[] for _ in range(devices)]
        self._busy = [False] * devices
        self._touched: Set[int] = set()
        # Copies beside operators: the last one on each side of a device's links, and who waits behind it.
        self._last_sent: Dict[int, int] = {}
        self._last_received: Dict[int, int] = {}
        self._behind: List[List[int]] = [[] for _ in range(count)]
        self._before: Dict[int, int] = {}
        self._done = [False] * count
        self._events: List[Tuple[float, int, int]] = []  # when, task, version; version -1: a flow begins
        self._flows: Dict[int, Path] = {}
        self._left: Dict[int, float] = {}
        self._rates: Dict[int, float] = {}
        self._version = [0] * count
        self._changed = 0.0  # when the rates were last set
        self._begins, self._ends = [0.0] * count, [0.0] * count

    def play(self) -> Played:
        for number, count in enumerate(self._open):
            if count == 0:
                self._arrive(number, 0.0)
        self._start_all(0.0)
        while self._events:
            now = self._events[0][0]
            moved = False
            # All that ends now, before anything new starts: what comes first is decided by order.
            while self._events and self._events[0][0] == now:
                _, number, version = heapq.heappop(self._events)
                if version == -1:
                    self._advance(now)
                    self._flows[number] = self._path(number)
                    self._left[number] = float(self._tasks[number].sent)
                    moved = True
                elif version == self._version[number]:
                    if number in self._flows:
                        self._advance(now)
                        del self._flows[number], self._left[number]
                        moved = True
                    self._end(number, now)
            self._start_all(now)
            if moved:
                self._set_rates(now)
        stuck = len(self._done) - sum(self._done)
        if stuck:
            raise ValueError(f"{stuck} tasks of the step wait for one another: its inputs are no order.")
        return Played(self._begins, self._ends)

    def _path(self, number: int) -> Path:
        task = self._tasks[number]
        return self._network.path(task.device, task.to)

    def _on_device(self, task: Task) -> bool:
        return task.kind != COPY or not self._engines

    def _arrive(self, number: int, now: float) -> None:
        task = self._tasks[number]
        if self._on_device(task):
            heapq.heappush(self._waiting[task.device], (now, task.position, number))
            self._touched.add(task.device)
            return
        before = {side[device] for side, device in ((self._last_sent, task.device), (self._last_received, task.to))
                  if device in side and not self._done[side[device]]}
        self._last_sent[task.device] = self._last_received[task.to] = number
        self._before[number] = len(before)
        for other in before:
            self._behind[other].append(number)
        if not before:
            self._begin(number, now)

    def _begin(self, number: int, now: float) -> None:
        self._begins[number] = now
        task = self._tasks[number]
        if task.kind != COPY:
            heapq.heappush(self._events, (now + self._durations[number], number, 0))
            return
        path = self._path(number)
        if self._free:
            heapq.heappush(self._events, (now, number, 0))
        elif path.shared and task.sent:
            heapq.heappush(self._events, (now + path.latency, number, -1))
        else:
            heapq.heappush(self._events, (now + (path.latency + task.sent / path.bandwidth), number, 0))

    def _end(self, number: int, now: float) -> None:
        task = self._tasks[number]
        self._ends[number], self._done[number] = now, True
        if self._on_device(task):
            self._busy[task.device] = False
            self._touched.add(task.device)
        for user in self._users[number]:
            self._release(user, now)
        if number in self._next_in_turn:
            self._release(self._next_in_turn[number], now)
        for other in self._behind[number]:
            self._before[other] -= 1
            if self._before[other] == 0:
                self._begin(other, now)

    def _release(self, number: int, now: float) -> None:
        self._open[number] -= 1
        if self._open[number] == 0:
            self._arrive(number, now)

    def _start_all(self, now: float) -> None:
        for device in sorted(self._touched):
            if not self._busy[device] and self._waiting[device]:
                _, _, number = heapq.heappop(self._waiting[device])
                self._busy[device] = True
                self._begin(number, now)
        self._touched.clear()

    def _advance(self, now: float) -> None:
        """What the transfers under way have sent since their rates were set."""
        for number in self._flows:
            self._left[number] = max(0.0, self._left[number] - self._rates.get(number, 0.0) * (now - self._changed))
        self._changed = now

    def _set_rates(self, now: float) -> None:
        self._advance(now)
        before, self._rates = self._rates, fair_rates(self._flows, self._network.capacity)
        for number, rate in self._rates.items():
            if before.get(number) == rate:
                continue
            self._version[number] += 1
            heapq.heappush(self._events, (now + self._left[number] / rate, number, self._version[number]))
