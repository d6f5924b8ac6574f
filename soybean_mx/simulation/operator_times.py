"""What the tasks of a step take: by a roofline of the device, or as measured."""
from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

from soybean_mx.simulation.steps import Step
from soybean_mx.topology import Device


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
        return [start + max(task.operations / self.device.flops, task.traffic / self.device.memory_bandwidth)
                if task.operations or task.traffic else 0.0 for task in step.tasks]
