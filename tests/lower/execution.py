"""Runs a serial program on one device and its lowered form on many, with whole tensors going in and out of both."""
from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import zlib
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Sequence, Tuple

import mxnet as mx
import numpy as np

from soybean_mx import operators
from soybean_mx.clean_copies import cleaning
from soybean_mx.executor import copies_are_clean
from tests.lower.fan_out import limit_consumers
from tests.lower.random_graphs import Program, Variable


@dataclass
class Result:
    """What one step computed, as whole tensors."""

    outputs: List[np.ndarray]
    gradients: Dict[str, np.ndarray] = field(default_factory=dict)
    auxiliary: Dict[str, np.ndarray] = field(default_factory=dict)

    def tensors(self) -> Dict[str, np.ndarray]:
        """Return every tensor by a name that says what it is."""
        result = {f"output {i}": v for i, v in enumerate(self.outputs)}
        result.update({f"gradient of {n}": v for n, v in self.gradients.items()})
        result.update({f"auxiliary state {n}": v for n, v in self.auxiliary.items()})
        return result


class EngineError(RuntimeError):
    """An operator of a tiled executor failed while running; what MXNet runs after it in this process proves nothing."""


class LoweringError(AssertionError):
    """The lowered graph breaks the interface (docs/interface.md)."""


def graph_of(program: Program) -> Dict:
    """Return the JSON form of a serial program that the core reads (docs/interface.md, "graph")."""
    internals = program.symbol.get_internals()
    shapes = {n: v.value.shape for n, v in program.variables.items()}
    arguments = {n: s for n, s in shapes.items() if n in set(program.symbol.list_arguments())}
    all_shapes = internals.infer_shape(**arguments)[1]
    symbol = program.symbol.tojson()
    graph: Dict = {"symbol": symbol, "shapes": {}, "itemsizes": {}, "training": program.training}
    # One half of all programs with soybean_mx's own operators, the other without.
    graph["own_operators"] = zlib.crc32(symbol.encode()) % 2 == 0 and operators.are_usable([mx.cpu()])
    for entry, shape in zip(internals, all_shapes):
        graph["shapes"].setdefault(entry.name, []).append(list(shape))
        graph["itemsizes"].setdefault(entry.name, []).append(program.itemsize)
    graph["variables"] = {
        n: {"role": v.role, "requires_grad": v.requires_grad} for n, v in program.variables.items()
    }
    return graph


def output_shapes(program: Program) -> List[Tuple[int, ...]]:
    """Return the shapes of the outputs of a program."""
    arguments = {n: program.variables[n].value.shape for n in program.symbol.list_arguments()}
    return program.symbol.infer_shape(**arguments)[1]


def head_gradients(program: Program, seed: int) -> List[np.ndarray]:
    """Draw a gradient for every output of a program."""
    rs = np.random.RandomState(seed)
    return [rs.uniform(-1, 1, shape).astype(program.dtype) for shape in output_shapes(program)]


@contextlib.contextmanager
def safe_bind(with_gradients: bool) -> Iterator[None]:
    """Set, while binding, what keeps MXNet's CPU executors over several contexts right."""
    # Match range 0: no reuse of memory that may hold a stale oneDNN layout, unless the copies are repaired. No subgraph
    # backend: it stops shape inference of executors without gradients.
    changes = {} if copies_are_clean() else {"NNVM_EXEC_MATCH_RANGE": "0"}
    if not with_gradients:
        changes["MXNET_SUBGRAPH_BACKEND"] = "NONE"
    before = {n: os.environ.get(n) for n in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def _array(value: np.ndarray, device: int) -> mx.nd.NDArray:
    return mx.nd.array(value, ctx=mx.cpu(device), dtype=value.dtype)


def run_serial(program: Program, head_grads: Sequence[np.ndarray]) -> Result:
    """Run one step of the program on cpu(0)."""
    symbol, variables = mx.sym.load_json(limit_consumers(program.symbol.tojson())), program.variables
    arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    wanted = [n for n in arguments if variables[n].requires_grad]
    arrays = {n: _array(v.value, 0) for n, v in variables.items()}
    gradients = {n: mx.nd.zeros_like(arrays[n]) for n in wanted}
    with safe_bind(bool(wanted)):
        executor = symbol.bind(
            mx.cpu(0),
            args=[arrays[n] for n in arguments],
            args_grad=[gradients.get(n) for n in arguments],
            grad_req=["write" if n in gradients else "null" for n in arguments],
            aux_states=[arrays[n] for n in states],
        )
    outputs = executor.forward(is_train=program.training)
    result = Result([o.asnumpy() for o in outputs])
    if wanted:
        executor.backward([_array(g, 0) for g in head_grads])
        result.gradients = {n: g.asnumpy() for n, g in gradients.items()}
        result.auxiliary = {n: arrays[n].asnumpy() for n in states}
    return result


Region = Tuple[slice, ...]


def region_of(item: Dict) -> Region:
    """Return the region of a `variables`, `outputs` or `statistics` item as slices."""
    return tuple(slice(b, e) for b, e in zip(item["begin"], item["end"]))


def check_regions(what: str, items: Sequence[Dict], shape: Sequence[int], disjoint: bool) -> None:
    """Raise LoweringError unless the regions cover the shape, once per element if `disjoint`."""
    times = np.zeros(shape, int)
    for item in items:
        if len(item["begin"]) != len(shape) or len(item["end"]) != len(shape):
            raise LoweringError(f"{what}: a region {item} has not the dims of {tuple(shape)}")
        if any(not 0 <= b < e <= n for b, e, n in zip(item["begin"], item["end"], shape)):
            raise LoweringError(f"{what}: the region {item} is empty or lies outside of {tuple(shape)}")
        times[region_of(item)] += 1
    if times.min(initial=1) == 0:
        raise LoweringError(f"{what}: the regions do not cover it: {items}")
    if disjoint and times.max(initial=1) > 1:
        raise LoweringError(f"{what}: the regions overlap: {items}")


def check_interface(program: Program, lowered: Dict, devices: int) -> None:
    """Raise LoweringError where variables, outputs or statistics of the lowered graph break the interface."""
    symbol = mx.sym.load_json(lowered["symbol"])
    names = [v["name"] for v in lowered["variables"]]
    expected = symbol.list_arguments() + symbol.list_auxiliary_states()
    if len(set(names)) < len(names) or not set(expected) <= set(names):
        raise LoweringError(f"the variables {sorted(names)} are not all of the symbol's {sorted(expected)}")
    for name, variable in program.variables.items():
        items = [v for v in lowered["variables"] if v["source"] == name]
        if not items and variable.role == "auxiliary":
            # The statistics of an exact BatchNorm stand in for it; the graph itself does not read it in training.
            items = [s for s in lowered.get("statistics", []) if s["source"] == name]
        once = variable.role == "parameter" or variable.requires_grad
        check_regions(f"variable {name}", items, variable.value.shape, disjoint=once)
    for index, shape in enumerate(output_shapes(program)):
        items = [o for o in lowered["outputs"] if o["index"] == index]
        check_regions(f"output {index}", items, shape, disjoint=True)
    heads = len(lowered["outputs"]) + len(lowered.get("statistics", []))
    if heads != len(symbol.list_outputs()):
        raise LoweringError(f"{len(symbol.list_outputs())} heads, but {heads} outputs and statistics")
    for number, item in enumerate(lowered.get("statistics", [])):
        if item["head"] != len(lowered["outputs"]) + number:
            raise LoweringError(f"statistics do not follow the outputs in order: {item}")
    everything = itertools.chain(lowered["variables"], lowered["outputs"], lowered.get("statistics", []))
    if any(not 0 <= item["device"] < devices for item in everything):
        raise LoweringError(f"a device outside of 0..{devices - 1}")


class TiledExecutor:
    """A lowered graph, bound on CPU contexts.

    Raises
    ------
    LoweringError
        When an output is not on the device that the lowered graph says, or MXNet would sum gradients wrongly.
    """

    def __init__(self, program: Program, lowered: Dict, devices: int) -> None:
        self.program, self.lowered = program, lowered
        symbol = mx.sym.load_json(lowered["symbol"])
        self.items = {v["name"]: v for v in lowered["variables"]}
        self.arrays = {n: self._tile(v) for n, v in self.items.items()}
        arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
        # A tile that no output depends on is no argument: its gradient stays zero.
        wanted = [n for n in self.items if self._source(n).requires_grad]
        self.gradients = {n: mx.nd.zeros_like(self.arrays[n]) for n in wanted}
        with safe_bind(bool(set(wanted) & set(arguments))):
            self.executor = symbol.bind(
                mx.cpu(0),
                args=[self.arrays[n] for n in arguments],
                args_grad=[self.gradients.get(n) for n in arguments],
                grad_req=["write" if n in self.gradients else "null" for n in arguments],
                aux_states=[self.arrays[n] for n in states],
                group2ctx={f"d{i}": mx.cpu(i) for i in range(devices)},
            )
        if wanted and "_grad_add" in self.executor.debug_str():
            raise LoweringError("the executor sums gradients with _grad_add: a tensor has 8 or more consumers")

    def _source(self, name: str) -> Variable:
        return self.program.variables[self.items[name]["source"]]

    def _tile(self, item: Dict) -> mx.nd.NDArray:
        value = self.program.variables[item["source"]].value[region_of(item)]
        return _array(np.ascontiguousarray(value), item["device"])

    def copies_forward(self) -> int:
        """Return how many tensors of the lowered graph MXNet copies to another device, by the executor's own account.

        The copies of gradients are not all counted by the core: MXNet also sends zeros around that it makes itself for
        outputs that nothing needs.
        """
        names = {n["name"] for n in json.loads(self.lowered["symbol"])["nodes"]}
        copied = r"Op:_CrossDeviceCopy, Name=.*\nInputs:\n\targ\[0\]=(.*)\(\d+\)"
        sources = re.findall(copied, self.executor.debug_str())
        return sum(source in names for source in sources)

    def run(self, head_grads: Sequence[np.ndarray]) -> Result:
        """Run one step and gather what it computed.

        Raises
        ------
        EngineError
            When an operator fails while it runs.
        """
        try:
            return self._run(head_grads)
        except mx.MXNetError as error:
            raise EngineError(str(error).strip()) from error

    def _run(self, head_grads: Sequence[np.ndarray]) -> Result:
        with cleaning():
            heads = self.executor.forward(is_train=self.program.training)
        outputs = [np.full(g.shape, np.nan, g.dtype) for g in head_grads]
        for head, item in zip(heads, self.lowered["outputs"]):
            if head.context != mx.cpu(item["device"]):
                raise LoweringError(f"a head is on {head.context}, not on device {item['device']}: {item}")
            outputs[item["index"]][region_of(item)] = head.asnumpy()
        result = Result(outputs)
        if self.gradients:
            with cleaning():
                self.executor.backward(self._head_grads(heads, head_grads))
            result.gradients = self._gather(self.gradients)
            result.auxiliary = self._auxiliary(heads)
        return result

    def _head_grads(self, heads: Sequence[mx.nd.NDArray], head_grads: Sequence[np.ndarray]) -> List[mx.nd.NDArray]:
        tiles = [_array(head_grads[o["index"]][region_of(o)], o["device"]) for o in self.lowered["outputs"]]
        return tiles + [mx.nd.zeros_like(h) for h in heads[len(tiles) :]]

    def _gather(self, arrays: Dict[str, mx.nd.NDArray]) -> Dict[str, np.ndarray]:
        result: Dict[str, np.ndarray] = {}
        for name, array in arrays.items():
            item = self.items[name]
            whole = self.program.variables[item["source"]].value
            result.setdefault(item["source"], np.full(whole.shape, np.nan, whole.dtype))
            result[item["source"]][region_of(item)] = array.asnumpy()
        return result

    def _auxiliary(self, heads: Sequence[mx.nd.NDArray]) -> Dict[str, np.ndarray]:
        """Return the auxiliary states after the step, moved towards the statistics where the graph gives some."""
        states = {n for n, v in self.items.items() if self._source(n).role == "auxiliary"}
        result = self._gather({n: self.arrays[n] for n in states})
        for item in self.lowered.get("statistics", []):
            old = self.program.variables[item["source"]].value
            moved = item["momentum"] * old[region_of(item)] + (1 - item["momentum"]) * heads[item["head"]].asnumpy()
            result.setdefault(item["source"], old.copy())[region_of(item)] = moved
        return result


def run_lowered(program: Program, lowered: Dict, devices: int, head_grads: Sequence[np.ndarray]) -> Result:
    """Check a lowered graph against the interface, bind it and run one step."""
    check_interface(program, lowered, devices)
    executor = TiledExecutor(program, lowered, devices)
    if executor.copies_forward() != lowered.get("messages", executor.copies_forward()):
        raise LoweringError(f"MXNet copies {executor.copies_forward()} tensors forward, not {lowered['messages']}")
    return executor.run(head_grads)
