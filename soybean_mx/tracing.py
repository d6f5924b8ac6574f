"""Traces of real steps, for Perfetto or chrome://tracing, in the form of those of simulated ones.

    with soybean_mx.tracing.recording("real.json", net):
        step()

writes what MXNet's engine ran meanwhile on each device of a tiled block. ``soybean-mx simulate --trace FILE --beside
real.json`` puts a simulated step and it into one file (docs/simulation.md).
"""
from __future__ import annotations

import contextlib
import json
import os
import tempfile
from typing import Any, Iterator, Optional, Sequence

# MXNet 1.9.1's profiler has a table of as many CPU contexts as there are cores, and writes beyond its end: with more
# than two contexts above that, processes end (docs/mxnet_bugs.md).
PROFILED_CPUS = 4


class RecordingError(RuntimeError):
    """A trace that cannot be recorded; the message is one sentence for the user."""


@contextlib.contextmanager
def recording(path: str, block: Optional[Any] = None, devices: Optional[Sequence[str]] = None,
              name: str = "run") -> Iterator[None]:
    """Record what devices run inside of the ``with`` statement, and write it when it ends.

    Parameters
    ----------
    path : str
        The file.
    block : mxnet.gluon.HybridBlock, optional
        A tiled block that has been called: events then tell the nodes of its lowered graph, which is right where the
        block trains for one step.
    devices : sequence of str, optional
        The contexts, such as ``cpu:0``, in the order of the plan; the block's unless given.
    name : str
        What the trace is called.

    Raises
    ------
    RecordingError
        When the block is not tiled, MXNet cannot profile the devices, or the file cannot be written.
    """
    import mxnet as mx

    from soybean_mx.simulation import chrome_trace

    graph = _tiled_graph(block) if block is not None else None
    if devices is None:
        if graph is None:
            raise RecordingError("A trace was asked for without a block and without devices: give one of them.")
        devices = [f"{context.device_type}:{context.device_id}" for context in graph.settings.contexts]
    check_devices(devices)
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(folder, os.W_OK | os.X_OK):  # before the work
        raise RecordingError(f"The trace cannot be written to {path!r}: give another file.")
    step = _step(graph) if graph is not None else None
    with tempfile.TemporaryDirectory(prefix="soybean_mx_") as folder:
        profile = os.path.join(folder, "profile.json")
        mx.nd.waitall()
        mx.profiler.set_config(profile_all=True, filename=profile, aggregate_stats=False)
        mx.profiler.set_state("run")
        try:
            yield
        finally:
            mx.nd.waitall()
            mx.profiler.set_state("stop")
            mx.profiler.dump()
            with open(profile, encoding="utf-8") as file:
                ran = chrome_trace.read_profile(json.load(file))
            try:
                chrome_trace.write(path, chrome_trace.of_run(ran, devices, name, step))
            except OSError as error:
                raise RecordingError(f"The trace cannot be written to {path!r} ({error.strerror}): give another "
                                     "file.") from None


def check_devices(devices: Sequence[str]) -> None:
    """Refuse devices that MXNet's profiler crashes on.

    Raises
    ------
    RecordingError
        When there are any.
    """
    beyond = [device for device in devices if device.startswith("cpu:") and int(device[4:]) >= PROFILED_CPUS]
    if beyond:
        raise RecordingError(f"The device {beyond[0]} was to be traced, but MXNet's profiler ends the process on CPU "
                             f"contexts above cpu:{PROFILED_CPUS - 1}: trace on cpu:{PROFILED_CPUS} or fewer.")


def _tiled_graph(block: Any) -> Any:
    from soybean_mx.gluon_front import TiledGraph

    graph = getattr(block, "_cached_op", None)
    if not isinstance(graph, TiledGraph) or graph.latest_plan is None:
        raise RecordingError(f"{getattr(block, 'name', block)} is not tiled: hybridize it with soybean_mx switched on, "
                             "and call it once.")
    return graph


def _step(graph: Any) -> Any:
    from soybean_mx.simulation.steps import step_of

    return step_of(graph.latest_graph, graph.latest_plan, graph.settings.lower_options())


__all__ = ["RecordingError", "check_devices", "recording"]
