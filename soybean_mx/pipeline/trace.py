"""What the devices of a pipeline did, and when: measured where MXNet's engine runs it, without anybody waiting.

Around each pass and each update of a device goes an operation that writes the time. The one before it is ready when
all that the pass needs has come and the device's last pass has ended, and the pass needs what it "writes"; the one
behind it reads what the pass has written. Both run on the device's own worker and take less than a microsecond.
(MXNet's own profiler does not know stages, and crashes where there are more CPU contexts than cores.)
"""
from __future__ import annotations

import json
from typing import Dict, List, NamedTuple, Sequence, Tuple

import mxnet as mx
from mxnet.ndarray import NDArray

from soybean_mx import core
from soybean_mx.engine_order import Order
from soybean_mx.files import write_text
from soybean_mx.pipeline.schedule import (
    SYNCHRONOUS,
    UPDATE,
    Operation,
    operations,
    simulated_bubble,
)

Span = Tuple[float, float]


class TraceError(RuntimeError):
    """A trace that holds too little for what was asked; the message says what to do."""


class Event(NamedTuple):
    """A pass or an update; ``begin`` and ``end`` are in seconds since the trace's first event.

    ``batch`` counts the steps of the trace from 0, ``microbatch`` is the schedule's.
    """

    kind: str
    stage: int
    microbatch: int
    batch: int
    device: int
    begin: float
    end: float


class Mark:
    """The two operations around one pass or update."""

    def __init__(self, context: mx.Context, needed: Sequence[NDArray], token: NDArray, stamps: Sequence[core.Stamp]):
        self._context, self._needed, self._token, self._stamps = context, list(needed), token, stamps

    def begin(self, after: Sequence[NDArray], before: Sequence[NDArray]) -> None:
        """Queue the one before: behind what writes ``after`` and what is needed, before who touches ``before``."""
        Order(self._context, [*after, *self._needed], before, self._stamps[0].operation())()

    def end(self, written: Sequence[NDArray]) -> None:
        """Queue the one behind, when ``written`` has been written."""
        Order(self._context, written, [self._token], self._stamps[1].operation())()


class Trace:
    """The passes and updates that were queued while it was on.

    Parameters
    ----------
    schedule : str
        The schedule.
    replicas : sequence of int
        The number of devices of each stage.
    contexts : sequence of mxnet.Context
        The devices.
    """

    def __init__(self, schedule: str, replicas: Sequence[int], contexts: Sequence[mx.Context]):
        self.schedule, self.replicas, self.contexts = schedule, tuple(replicas), list(contexts)
        self.batches = 0
        self._held: List[Tuple[Operation, int, int, Tuple[core.Stamp, core.Stamp]]] = []
        # Written by each mark behind something, of passes and of updates: to wait for them.
        self._tokens = {(device, is_update): mx.nd.zeros((1,), ctx=context)
                        for device, context in enumerate(self.contexts) for is_update in (False, True)}

    def mark(self, operation: Operation, device: int, needed: Sequence[NDArray] = ()) -> Mark:
        """The marks of an operation that is about to be queued on a device, and that reads ``needed``."""
        stamps = (core.Stamp(), core.Stamp())
        self._held.append((operation, self.batches, device, stamps))
        return Mark(self.contexts[device], needed, self._tokens[device, operation.kind == UPDATE], stamps)

    def wait(self) -> None:
        """Wait until all that has been queued is done.

        Raises
        ------
        mxnet.MXNetError
            What a stage has raised.
        """
        for token in self._tokens.values():
            token.wait_to_read()

    def events(self) -> List[Event]:
        """All that is done, by their begin."""
        times = [(*held, begin.nanoseconds, end.nanoseconds) for *held, (begin, end) in self._held]
        done = [(*held, begin, end) for *held, begin, end in times if begin and end]
        first = min((begin for *_, begin, _ in done), default=0)
        return sorted((Event(operation.kind, operation.stage, operation.microbatch, batch, device,
                             (begin - first) * 1e-9, (end - first) * 1e-9)
                       for operation, batch, device, begin, end in done), key=lambda event: event.begin)

    def span(self) -> Span:
        """The time that is looked at: the whole trace where batches are flushed, else while no device has yet to
        begin, or has ended: the steady state.

        Raises
        ------
        TraceError
            When the devices were never busy together.
        """
        events = self.events()
        by_device: Dict[int, List[Event]] = {}
        for event in events:
            by_device.setdefault(event.device, []).append(event)
        flushed = self.schedule in SYNCHRONOUS
        begin = (min if flushed else max)([own[0].begin for own in by_device.values()], default=0.0)
        end = (max if flushed else min)([max(event.end for event in own) for own in by_device.values()], default=0.0)
        if end <= begin:
            raise TraceError(f"The trace has {len(events)} passes and updates, in which the devices are never busy "
                             "together: trace more steps.")
        return begin, end

    def utilisation(self) -> List[float]:
        """For each stage, the share of the time in which its devices work on its passes and updates.

        Raises
        ------
        TraceError
            As :meth:`span`.
        """
        begin, end = self.span()
        busy = [0.0] * len(self.replicas)
        for (stage, _), spans in self._spans(self.events()).items():
            busy[stage] += _length(spans, begin, end)
        return [time / (count * (end - begin)) for time, count in zip(busy, self.replicas)]

    def bubble(self) -> float:
        """The part of the devices' time in which they are idle, to be compared with
        :func:`soybean_mx.pipeline.schedule.bubble`.

        Where batches are flushed, between the first and the last pass of each batch, as the formula has it; otherwise
        in the steady state, of passes and updates.

        Raises
        ------
        TraceError
            As :meth:`span`.
        """
        if self.schedule not in SYNCHRONOUS:
            begin, end = self.span()
            busy = sum(_length(spans, begin, end) for spans in self._spans(self.events()).values())
            return 1 - busy / (len(self.contexts) * (end - begin))
        batches: Dict[int, List[Event]] = {}
        for event in self.events():
            if event.kind != UPDATE:
                batches.setdefault(event.batch, []).append(event)
        self.span()
        busy = total = 0.0
        for events in batches.values():
            begin, end = events[0].begin, max(event.end for event in events)
            busy += sum(_length(spans, begin, end) for spans in self._spans(events).values())
            total += len(self.contexts) * (end - begin)
        return 1 - busy / total

    def expected_bubble(self) -> float:
        """What the schedule makes of the mean times of each stage's passes, as they were measured: unequal stages
        idle more than the formula says.

        Without flush, the slowest stage never idles. Replicas of a stage share its work.

        Raises
        ------
        TraceError
            As :meth:`span`; also where a schedule that flushes has replicas, for which there is no formula.
        """
        self.span()
        times: Dict[Tuple[str, int], List[float]] = {}
        batches: Dict[int, int] = {}
        for event in self.events():
            times.setdefault((event.kind, event.stage), []).append(event.end - event.begin)
            batches[event.batch] = max(batches.get(event.batch, 0), event.microbatch + 1)
        means = {key: sum(values) / len(values) for key, values in times.items()}
        if self.schedule in SYNCHRONOUS:
            if max(self.replicas) > 1:
                raise TraceError(f"The schedule {self.schedule!r} with the replicas {list(self.replicas)} has no "
                                 "formula for its bubble: use bubble(), which is measured.")
            devices = len(self.contexts)
            order = operations(self.schedule, self.replicas, [max(batches.values())],
                               devices if self.schedule == "interleaved" else None)
            return simulated_bubble(order, devices, costs=means)
        work = [0.0] * len(self.replicas)
        for (_, stage), mean in means.items():
            work[stage] += mean
        slowest = max(time / count for time, count in zip(work, self.replicas))
        return 1 - sum(work) / (sum(self.replicas) * slowest)

    def write(self, path: str) -> None:
        """Write it for ``chrome://tracing`` or Perfetto: for each device a row of passes, and one of updates.

        Parameters
        ----------
        path : str
            Where to; an existing file is replaced.

        Raises
        ------
        OSError
            When the folder is not there or cannot be written to.
        """
        rows = [{"name": "thread_name", "ph": "M", "pid": 0, "tid": 2 * device + kind,
                 "args": {"name": f"{context} {('passes', 'updates')[kind]}"}}
                for device, context in enumerate(self.contexts) for kind in (0, 1)]
        rows += [{"name": f"{event.kind} {event.microbatch} of stage {event.stage}", "cat": event.kind, "ph": "X",
                  "pid": 0, "tid": 2 * event.device + (event.kind == UPDATE), "ts": round(1e6 * event.begin, 3),
                  "dur": round(1e6 * (event.end - event.begin), 3),
                  "args": {"stage": event.stage, "microbatch": event.microbatch, "batch": event.batch}}
                 for event in self.events()]
        write_text(path, json.dumps({"traceEvents": rows, "displayTimeUnit": "ms"}) + "\n")

    @staticmethod
    def _spans(events: Sequence[Event]) -> Dict[Tuple[int, int], List[Span]]:
        """By stage and device, times that do not overlap: an update may run beside the next pass."""
        found: Dict[Tuple[int, int], List[Span]] = {}
        for event in sorted(events, key=lambda event: event.begin):
            spans = found.setdefault((event.stage, event.device), [])
            if spans and event.begin <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(spans[-1][1], event.end))
            else:
                spans.append((event.begin, event.end))
        return found


def _length(spans: Sequence[Span], begin: float, end: float) -> float:
    """How much of some spans lies between two times."""
    return sum(max(0.0, min(last, end) - max(first, begin)) for first, last in spans)
