"""What the tasks of a step take: by a roofline of the device, or by times of operators that were measured.

A file of measured times (docs/simulation.md) holds each distinct operator once: its attributes, the shapes and types of
what it reads, which gradients it computes, and the seconds of its two passes.
"""
from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from soybean_mx.files import write_json
from soybean_mx.input_errors import InputError
from soybean_mx.simulation.steps import BACKWARD, COPY, FORWARD, Step, Task
from soybean_mx.topology import Device

_VERSION = 1


class TimesError(InputError):
    """Times of operators that cannot be read or used; the message is one sentence for the user."""


@dataclass(frozen=True)
class Roofline:
    """Estimates: the longer of a task's operations and its memory traffic, each at the device's peak, and its start.

    Parameters
    ----------
    device : Device
        What it can do.
    start_seconds : float, optional
        What the engine takes to start an operator; by default the core's figure.
    """

    device: Device
    start_seconds: Optional[float] = None

    def durations(self, step: Step) -> List[float]:
        """Seconds of each task; 0 for copies, and for what has nothing to run."""
        start = step.start_seconds if self.start_seconds is None else self.start_seconds
        return [start + self._work_seconds(task) if task.operations or task.traffic else 0.0 for task in step.tasks]

    def _work_seconds(self, task: Task) -> float:
        return max(task.operations / self.device.flops, task.traffic / self.device.memory_bandwidth)


class OperatorSeconds(NamedTuple):
    """The seconds of an operator's two passes."""

    forward: float
    backward: float


@dataclass(frozen=True)
class MeasuredTimes:
    """Times of operators.

    Parameters
    ----------
    operators : mapping of str to OperatorSeconds
        By :meth:`soybean_mx.pipeline.layer_times.Operator.key`, with what the engine takes to start one.
    memory_bandwidth : float
        Bytes per second of one device's memory as it adds up gradients.
    source : str
        Where they were measured.
    """

    operators: Mapping[str, OperatorSeconds]
    memory_bandwidth: float
    source: str

    def durations(self, step: Step) -> List[float]:
        """Seconds of each task; 0 for copies, and for what has nothing to run.

        Raises
        ------
        TimesError
            When an operator of the step was not measured.
        """
        from soybean_mx.simulation.measurement import operators_of_step  # imports MXNet

        operators = operators_of_step(step)
        keys = {name: operator.key() for name, operator in operators.items()}
        missing = {key: name for name, key in keys.items() if key not in self.operators}
        if missing:
            raise TimesError(f"The times of {self.source} leave out {len(missing)} operators of the step, such as "
                             f"{min(missing.values())}: measure them with --times measured --write-times.")
        return [self._seconds(task, keys, step.start_seconds) for task in step.tasks]

    def _seconds(self, task: Task, keys: Mapping[str, str], start: float) -> float:
        if task.kind == COPY or not (task.operations or task.traffic):
            return 0.0
        if task.kind == FORWARD:
            return self.operators[keys[task.node]].forward
        if task.kind == BACKWARD:
            return self.operators[keys[task.node]].backward
        return start + task.traffic / self.memory_bandwidth

    def write(self, path: str) -> None:
        """Write a file that :func:`read_times` reads.

        Raises
        ------
        OSError
            When it cannot be written.
        """
        write_json(path, {"version": _VERSION, "source": self.source, "memory_bandwidth": self.memory_bandwidth,
                          "operators": [{"operator": json.loads(key), "forward_seconds": seconds.forward,
                                         "backward_seconds": seconds.backward}
                                        for key, seconds in sorted(self.operators.items())]})


def read_times(path: str) -> MeasuredTimes:
    """Read a file of measured times.

    Raises
    ------
    TimesError
        When it cannot be read, or is of another form.
    """
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError) as error:
        raise TimesError(f"The times {path!r} cannot be read ({error}): give a file that --write-times wrote, or "
                         "roofline or measured.") from None
    if not isinstance(value, dict) or value.get("version") != _VERSION or not isinstance(value.get("operators"), list):
        raise TimesError(f"The times {path!r} are of another form: give a file that --write-times wrote.")
    operators: Dict[str, OperatorSeconds] = {}
    for position, item in enumerate(value["operators"]):
        what = f"{path}: operator {position}"
        if not isinstance(item, dict) or "operator" not in item:
            raise TimesError(f"{what} is {item!r}, but must have operator, forward_seconds and backward_seconds.")
        operators[json.dumps(item["operator"], sort_keys=True)] = OperatorSeconds(
            _seconds_of(item, "forward_seconds", what), _seconds_of(item, "backward_seconds", what))
    return MeasuredTimes(operators, _seconds_of(value, "memory_bandwidth", path, least=1.0), path)


def _seconds_of(item: Mapping[str, Any], name: str, what: str, least: float = 0.0) -> float:
    value = item.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < least:
        raise TimesError(f"{what}: {name} is {value!r}, but must be a number of {least:g} or more.")
    return float(value)


__all__ = ["MeasuredTimes", "OperatorSeconds", "Roofline", "TimesError", "read_times"]
