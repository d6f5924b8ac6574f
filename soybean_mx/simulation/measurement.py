"""Times of the operators that the devices of a step run, measured here: each distinct one once, with plain MXNet.

An operator runs on all contexts at once, several times over, as contexts of a CPU share its cores. The times are those
at which MXNet's engine gets to it: operations that only write the time (:mod:`soybean_mx.engine_order`) go before it
and behind it, on the same worker, so that neither Python nor the waking of threads is part of it. What an executor
takes to copy the gradients that it is handed is measured the same way, and taken off.
"""
from __future__ import annotations

import contextlib
import json
import statistics
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from soybean_mx import core, operators
from soybean_mx.engine_order import Order
from soybean_mx.graph import InferenceError, describe
from soybean_mx.pipeline.layer_times import Operator, bind_alone, operators_of, refusal
from soybean_mx.simulation.operator_times import MeasuredTimes, OperatorSeconds, TimesError
from soybean_mx.simulation.steps import Step

_TYPES = {1: "int8", 2: "float16", 4: "float32", 8: "float64"}
_SUM_BYTES = 4 << 20


def operators_of_step(step: Step) -> Dict[str, Operator]:
    """The operators of the lowered graph by name, as they run on a device of their own.

    Raises
    ------
    TimesError
        When MXNet cannot tell the shapes or types of some.
    """
    try:
        return _operators_of_step(step)
    except (InferenceError, mx.MXNetError) as error:
        said = " ".join(str(error).split())
        raise TimesError(f"The operators of the step cannot be looked at one by one ({said[:200]}): use the times "
                         "roofline.") from None


def _operators_of_step(step: Step) -> Dict[str, Operator]:
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
    found: Dict[str, OperatorSeconds] = {}
    for done, (key, operator) in enumerate(wanted.items()):
        if progress is not None:
            progress(done, len(wanted))
        found[key] = _time(operator, repeats, contexts, counts)
    if progress is not None:
        progress(len(wanted), len(wanted))
    where = ",".join(str(context) for context in contexts)
    return MeasuredTimes(found, _sum_bandwidth(contexts, repeats, counts), f"measured on {where}")


class _Stopwatch:
    """The times between operations that write the time, which are queued around others on one context.

    Parameters
    ----------
    context : mxnet.Context
        The context, whose worker runs all of them one after the other.
    """

    def __init__(self, context: mx.Context):
        self._context = context
        self._token = mx.nd.zeros((1,), context)
        self._spans: List[Tuple[core.Stamp, core.Stamp]] = []

    @contextlib.contextmanager
    def around(self, touched: Sequence[NDArray]) -> Iterator[List[NDArray]]:
        """Queue one before what is queued inside, and one behind it: behind what writes the arrays of the list given.

        Parameters
        ----------
        touched : sequence of NDArray
            What is read and written inside, which then waits for the first; and the first for who touched it before.
        """
        first, second = core.Stamp(), core.Stamp()
        self._spans.append((first, second))
        written: List[NDArray] = []
        Order(self._context, [], list(touched), first.operation())()
        yield written
        Order(self._context, written, [self._token], second.operation())()

    def seconds(self) -> List[float]:
        """What has been queued took, each time but the first."""
        self._token.wait_to_read()
        return [(end.nanoseconds - begin.nanoseconds) * 1e-9 for begin, end in self._spans[1:]]


def _time(operator: Operator, repeats: int, contexts: Sequence[mx.Context],
          counts: Callable[[Sequence[float]], float]) -> OperatorSeconds:
    try:
        bound = [bind_alone(operator, any(operator.gradients), context) for context in contexts]
        forward, backward, handed = ([_Stopwatch(context) for context in contexts] for _ in range(3))
        for _ in range(repeats + 1):  # the first run allocates, and chooses oneDNN's layouts
            for (executor, _), watch in zip(bound, forward):
                with watch.around(executor.arg_arrays) as written:
                    written += executor.forward(is_train=True)
        passes = counts([seconds for watch in forward for seconds in watch.seconds()])
        if not any(heads for _, heads in bound):
            return OperatorSeconds(passes, 0.0)
        gradients = [[gradient for gradient in executor.grad_arrays if gradient is not None] for executor, _ in bound]
        for _ in range(repeats + 1):
            for (executor, heads), returned, watch in zip(bound, gradients, backward):
                with watch.around([*heads, *returned]) as written:
                    executor.backward(heads)
                    written += returned
        took = [seconds for watch in backward for seconds in watch.seconds()]
        buffers = [[head.copy() for head in heads] for _, heads in bound]
        for _ in range(repeats + 1):
            for (_, heads), copies, watch in zip(bound, buffers, handed):
                with watch.around([*heads, *copies]) as written:
                    written += [head.copyto(copy) for head, copy in zip(heads, copies)]
        copied = [seconds for watch in handed for seconds in watch.seconds()]
        return OperatorSeconds(passes, max(0.0, counts(took) - counts(copied)))
    except mx.MXNetError as error:
        raise refusal(operator, error) from None


def _sum_bandwidth(contexts: Sequence[mx.Context], repeats: int, counts: Callable[[Sequence[float]], float]) -> float:
    arrays = [[mx.nd.ones((_SUM_BYTES // 4,), context) for _ in range(3)] for context in contexts]
    watches = [_Stopwatch(context) for context in contexts]
    for _ in range(repeats + 1):
        for (one, other, out), watch in zip(arrays, watches):
            with watch.around([one, other, out]) as written:
                written.append(mx.nd.add_n(one, other, out=out))
    return 3 * _SUM_BYTES / counts([seconds for watch in watches for seconds in watch.seconds()])
