"""Times of the operators that the devices of a step run, measured here: each distinct one once, with plain MXNet.

An operator runs on all contexts at once, as it does in a step, since contexts of a CPU share its cores. What an
operator of one element takes the same way is what Python and the engine take to start one and to wait for it: it is
taken off.
"""
from __future__ import annotations

import json
import statistics
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import mxnet as mx
import numpy as np

from soybean_mx import operators
from soybean_mx.graph import describe
from soybean_mx.pipeline.layer_times import Operator, operators_of, time_operator
from soybean_mx.simulation.operator_times import MeasuredTimes, OperatorSeconds
from soybean_mx.simulation.steps import Step

_TYPES = {1: "int8", 2: "float16", 4: "float32", 8: "float64"}
_SUM_BYTES = 4 << 20


def operators_of_step(step: Step) -> Dict[str, Operator]:
    """The operators of the lowered graph by name, as they run on a device of their own."""
    if step.graph.get("own_operators"):
        operators.are_usable([mx.cpu()])
    text = json.loads(step.lowered["symbol"])
    for node in text["nodes"]:
        node.pop("control_deps", None)
        if node["op"] != "null":  # where it runs, and marks of the lowering, do not change what it takes
            node["attrs"] = {name: value for name, value in node.get("attrs", {}).items() if not name.startswith("__")}
        else:
            node["attrs"] = {}
    symbol = mx.sym.load_json(json.dumps(text))
    arguments = set(symbol.list_inputs())
    inputs, parameters, trained = {}, {}, set()
    for item in (*step.lowered["variables"], *step.lowered.get("fills", ())):
        if item["name"] not in arguments:
            continue
        serial = step.graph["variables"].get(item.get("source"), {"role": "input", "requires_grad": True})
        size = item["itemsize"] if "itemsize" in item else step.graph["itemsizes"][item["source"]][0]
        shape = tuple(item["shape"]) if "shape" in item else tuple(
            end - begin for begin, end in zip(item["begin"], item["end"]))
        (inputs if serial["role"] == "input" else parameters)[item["name"]] = shape, np.dtype(_TYPES[size])
        if item.get("requires_grad", serial["requires_grad"]):
            trained.add(item["name"])
    graph = describe(symbol, inputs, parameters, trained, step.graph["training"])
    return operators_of(graph, {name: dtype for name, (_, dtype) in {**inputs, **parameters}.items()})


def measure_times(steps: Sequence[Step], contexts: Sequence[mx.Context], repeats: int = 5,
                  progress: Optional[Callable[[int, int], None]] = None,
                  counts: Callable[[Sequence[float]], float] = statistics.median) -> MeasuredTimes:
    """Time all operators of some steps.

    Parameters
    ----------
    steps : sequence of Step
        The steps; an operator that occurs in several is timed once.
    contexts : sequence of mxnet.Context
        The devices, which all run at once.
    repeats : int
        How often each pass is timed.
    progress : callable, optional
        Called with how many operators are done, and how many there are to measure.
    counts : callable
        Which of the times counts.

    Raises
    ------
    soybean_mx.pipeline.profile.ProfileError
        When an operator cannot be run on its own.
    """
    wanted: Dict[str, Operator] = {}
    for step in steps:
        for operator in operators_of_step(step).values():
            wanted.setdefault(operator.key(), operator)
    start = time_operator(_smallest(), 4 * repeats, contexts, counts)
    found: Dict[str, OperatorSeconds] = {}
    for done, (key, operator) in enumerate(wanted.items()):
        if progress is not None:
            progress(done, len(wanted))
        times = time_operator(operator, repeats, contexts, counts)
        found[key] = OperatorSeconds(max(0.0, times.forward - start.forward),
                                     max(0.0, times.backward - start.backward))
    if progress is not None:
        progress(len(wanted), len(wanted))
    where = ",".join(str(context) for context in contexts)
    return MeasuredTimes(found, _sum_bandwidth(contexts, repeats, counts), f"measured on {where}")


def _smallest() -> Operator:
    node: Dict[str, Any] = {"op": "negative", "name": "smallest", "attrs": {}, "inputs": []}
    return Operator(node, ((1,),), ("float32",), (True,), 1)


def _sum_bandwidth(contexts: Sequence[mx.Context], repeats: int, counts: Callable[[Sequence[float]], float]) -> float:
    arrays = [[mx.nd.ones((_SUM_BYTES // 4,), context) for _ in range(3)] for context in contexts]
    mx.nd.waitall()
    times: List[float] = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        for one, other, out in arrays:
            mx.nd.add_n(one, other, out=out)
        mx.nd.waitall()
        times.append(time.perf_counter() - start)
    return 3 * _SUM_BYTES / counts(times[1:])
