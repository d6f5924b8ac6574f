"""Binding and running one lowered graph with MXNet's executor.

A :class:`Program` is what the planner and the lowering made of one call signature of a block. A :class:`BoundGraph`
is one executor of it, with its own input tiles, bound to the parameters' tiles. Running it queues work in MXNet's
engine; nothing waits on the host.
"""
from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import json
import os
import weakref
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import mxnet as mx
from mxnet import autograd
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray import NDArray

from soybean_mx import control_flow, sgd
from soybean_mx import regions as tiles_of
from soybean_mx.clean_copies import cleaned, cleaning
from soybean_mx.engine_order import Order, finish
from soybean_mx.graph import is_random
from soybean_mx.parameters import Cut, Layout, TiledParameter
from soybean_mx.recomputation import with_recomputation
from soybean_mx.regions import Region, Shape, empty
from soybean_mx.shared_memory import reads_freed_memory

# What is bound, to be let go of before MXNet ends.
_BOUND: "weakref.WeakSet[BoundGraph]" = weakref.WeakSet()

# At most this many arrays in one multi_sgd_update (the operator's own limit is 60).
_MAX_FUSED = 40


class InternalError(RuntimeError):
    """Something that soybean_mx itself should have ruled out; please report it."""


class Slot(NamedTuple):
    """A variable of the parallel graph."""

    name: str
    source: str
    device: int
    region: Region


class Fill(NamedTuple):
    """A variable that stands for what another device holds, in a graph without communication."""

    name: str
    device: int
    shape: Shape
    itemsize: int
    requires_grad: bool
    head: int


class Program:
    """A lowered graph, read once.

    Parameters
    ----------
    lowered : dict
        ``lowered`` of docs/interface.md.
    contexts : sequence of mxnet.Context
        Device index i of ``lowered`` is context i.
    training : bool
        Whether the graph runs in training mode.
    gradients : set of str
        The serial variables whose gradient is wanted. Empty for inference.
    recompute : bool
        Whether the backward pass computes activations again instead of keeping them.
    """

    def __init__(self, lowered: Dict[str, Any], contexts: Sequence[mx.Context], training: bool, gradients: Set[str],
                 recompute: bool = False):
        self.contexts = list(contexts)
        self.training = training
        self.gradients = set(gradients)
        text = lowered["symbol"]
        self.random = is_random(text, training)
        # Behind branches and loops MXNet makes new arrays in every run.
        graph = json.loads(text) if control_flow.may_have_bodies(text) else {"nodes": []}
        self.has_new_outputs = control_flow.hides_shapes(graph)
        self.has_bodies = control_flow.has_bodies(graph)
        self.used_once = control_flow.is_used_once(graph)
        self.recompute = recompute and training and bool(gradients)
        self.symbol = mx.sym.load_json(with_recomputation(text) if self.recompute else text)
        self.slots = [Slot(item["name"], item["source"], item["device"], Region.of(item))
                      for item in lowered["variables"]]
        self.outputs = [(item["index"], item["device"], Region.of(item)) for item in lowered["outputs"]]
        self.statistics = lowered.get("statistics") or []
        self.fills = [Fill(item["name"], item["device"], tuple(item["shape"]), item["itemsize"],
                           item["requires_grad"], item["head"]) for item in lowered.get("fills") or ()]
        self.slots_of: Dict[str, List[Slot]] = {}
        for slot in self.slots:
            self.slots_of.setdefault(slot.source, []).append(slot)

    def layout(self, source: str, shape: Shape) -> Layout:
        """Where the tiles of a parameter lie in this graph."""
        return Layout(shape, self.contexts, [(slot.device, slot.region) for slot in self.slots_of[source]])


class Tiles(NamedTuple):
    """The tiles of a parameter that a graph is bound to: of a tiled parameter, or of a cut yet to come into force."""

    layout: Layout
    data: List[NDArray]
    gradients: Optional[List[NDArray]]
    grad_req: str

    @classmethod
    def of(cls, parameter, cut: Optional[Cut] = None) -> "Tiles":
        """The tiles of a parameter, or those that it will have when the cut comes into force."""
        source = cut or parameter
        return cls(source.layout, source.tiles(), source.gradient_tiles(), parameter.grad_req)


@atexit.register
def _let_go() -> None:
    """Let MXNet free all executors while its engine still runs: freed behind it, they abort the process."""
    finish()
    for bound in list(_BOUND):
        bound.free()
    gc.collect()
    finish()


class BoundGraph:
    """One executor of a program.

    Parameters
    ----------
    program : Program
        What to run.
    inputs : mapping of str to (tuple of int, type)
        Shape and type of each serial input.
    tiles : mapping of str to Tiles
        The parameters' and auxiliary states' tiles.

    Raises
    ------
    InternalError
        When a variable has no tile, or MXNet would sum gradients wrongly.
    mxnet.MXNetError
        When MXNet cannot bind the graph, for instance for lack of memory.
    """

    def __init__(self, program: Program, inputs: Mapping[str, Tuple[Shape, Any]], tiles: Mapping[str, Tiles]):
        self.program = program
        self._input_tiles: Dict[str, List[Tuple[Region, NDArray]]] = {}
        self._input_gradients: Dict[str, List[Tuple[Region, NDArray]]] = {}
        self._zero_heads: Dict[int, NDArray] = {}
        arrays: Dict[str, NDArray] = {}
        gradients: Dict[str, NDArray] = {}
        requests: Dict[str, str] = {}
        for slot in program.slots:
            if slot.source in inputs:
                arrays[slot.name], gradient = self._input_tile(slot, inputs[slot.source][1])
                request = "write"
            else:
                arrays[slot.name], gradient, request = _parameter_tile(slot, tiles)
            if gradient is None and slot.source in program.gradients:  # computed for that of others, and left
                tile = arrays[slot.name]
                gradient, request = empty(tile.shape, tile.context, tile.dtype), "write"
            if gradient is not None and slot.source in program.gradients:
                gradients[slot.name], requests[slot.name] = gradient, request
        _add_fills(program, arrays, gradients, requests)
        self._executor = _bind(program, arrays, gradients, requests)
        # Around the states that operators change while they run backward.
        self._fence = _Fence(self._executor.aux_arrays if program.training and gradients else [])
        self.outputs: List[NDArray] = self._executor.outputs
        self._statistics: Optional[List[Tuple[_Movement, float]]] = None
        _BOUND.add(self)

    def _input_tile(self, slot: Slot, dtype) -> Tuple[NDArray, Optional[NDArray]]:
        context = self.program.contexts[slot.device]
        tile = empty(slot.region.shape, context, dtype)
        self._input_tiles.setdefault(slot.source, []).append((slot.region, tile))
        if slot.source not in self.program.gradients:
            return tile, None
        gradient = empty(slot.region.shape, context, dtype)
        self._input_gradients.setdefault(slot.source, []).append((slot.region, gradient))
        return tile, gradient

    def free(self) -> None:
        """Let go of the executor and its arrays; it cannot run again."""
        self._executor = self._fence = self._statistics = None
        self.outputs = []

    def feed(self, inputs: Mapping[str, NDArray]) -> None:
        """Queue copies of the caller's arrays (legacy, whole, each on one device) into the input tiles."""
        for name, tiles in self._input_tiles.items():
            whole = inputs[name]
            for region, tile in tiles:
                tiles_of.copy_in(whole, region, tile)

    def forward(self) -> None:
        """Queue the forward pass."""
        with cleaning(), self._mode(self.program.training):
            if self.program.has_new_outputs:
                self.outputs, self._statistics = self._executor.forward(self.program.training), None
            else:
                check_call(_LIB.MXExecutorForward(self._executor.handle, ctypes.c_int(int(self.program.training))))

    def gather_outputs(self, shapes: Sequence[Shape], context: mx.Context) -> List[NDArray]:
        """Queue copies of the outputs into new whole arrays.

        Parameters
        ----------
        shapes : sequence of tuple of int
            The shape of each serial output.
        context : mxnet.Context
            Where the arrays are to be.

        Returns
        -------
        list of NDArray
            Legacy arrays, that later runs do not touch.
        """
        wholes: List[Optional[NDArray]] = [None] * len(shapes)
        for (index, _, region), tile in zip(self.program.outputs, self.outputs):
            if wholes[index] is None:
                wholes[index] = empty(shapes[index], context, tile.dtype)
            tiles_of.copy_out(tile, region, wholes[index])
        return wholes

    def backward(self, gradients: Sequence[Optional[NDArray]], train_mode: bool) -> None:
        """Queue the backward pass.

        Parameters
        ----------
        gradients : sequence of NDArray or None
            The whole gradient of each serial output, on one device; None stands for zeros.
        train_mode : bool
            As of ``autograd.backward``.
        """
        heads = []
        for position, (index, _, region) in enumerate(self.program.outputs):
            gradient = gradients[index]
            # The executor copies head gradients to where it needs them.
            heads.append(self._zero_head(position) if gradient is None else tiles_of.view(gradient, region))
        heads.extend(self._zero_head(position) for position in range(len(heads), len(self.outputs)))
        self._fence()
        with cleaning(), self._mode(train_mode):
            self._executor.backward(heads, is_train=train_mode)
        self._fence()

    def _mode(self, training: bool):
        """The mode that the bodies of loops and branches ask this thread for, rather than the executor."""
        if not self.program.has_bodies:
            return nullcontext()
        return autograd.train_mode() if training else autograd.predict_mode()

    def _zero_head(self, position: int) -> NDArray:
        if position not in self._zero_heads:
            self._zero_heads[position] = mx.nd.zeros_like(self.outputs[position])
        return self._zero_heads[position]

    def input_gradient(self, name: str, shape: Shape, context: mx.Context) -> NDArray:
        """The whole gradient of an input, in a new array on the context."""
        regions, tiles = zip(*self._input_gradients[name])
        whole = empty(shape, context, tiles[0].dtype)
        tiles_of.gather_sum(tiles, regions, whole)
        return whole

    def input_arrays(self) -> List[NDArray]:
        """The arrays that it holds for the block's inputs and outputs: input tiles, their gradients, zero gradients."""
        held = [*self._input_tiles.values(), *self._input_gradients.values()]
        return [tile for tiles in held for _, tile in tiles] + list(self._zero_heads.values())

    def watch(self, written: Callable[[NDArray], None]) -> None:
        """Show each array that an operator is about to write, in every run from now on."""
        # MXNet hands over an array of its own making, which is ours to free.
        self._executor.set_monitor_callback(lambda _, handle: written(NDArray(NDArrayHandle(handle), writable=False)))

    def update_statistics(self, tiles: Callable[[str, int, Region], NDArray]) -> None:
        """Queue the movement of auxiliary states towards the statistics of the batch.

        Parameters
        ----------
        tiles : callable
            Gives the tile of an auxiliary state, by name, device and region.
        """
        if self._statistics is None:
            self._statistics = self._prepared_statistics(tiles)
        for update, momentum in self._statistics:
            update.towards(momentum)

    def _prepared_statistics(self, tiles: Callable[[str, int, Region], NDArray]) -> List[Tuple["_Movement", float]]:
        """The movements of all states, some in one operator; the arrays stay what they are as long as the executor.

        A state that several BatchNorms share moves once for each, the last first, as in MXNet's backward pass.
        """
        groups: Dict[Tuple[int, int, float], List[Tuple[NDArray, NDArray]]] = {}
        turns: Dict[Tuple[str, int, Region], int] = {}
        for item in reversed(self.program.statistics):
            place = item["source"], item["device"], Region.of(item)
            turn = turns[place] = turns.get(place, -1) + 1
            pair = tiles(*place), self.outputs[item["head"]]
            groups.setdefault((turn, item["device"], item["momentum"]), []).append(pair)
        return [(_Movement(pairs[start:start + _MAX_FUSED]), momentum)
                for (_, _, momentum), pairs in sorted(groups.items(), key=lambda group: group[0][0])
                for start in range(0, len(pairs), _MAX_FUSED)]


class _Fence:
    """Orders what touches some arrays before and after it, without waiting.

    A BatchNorm in an executor changes its moving statistics in its backward pass, but is registered with the engine as
    if it only read them: without fences, other readers run before it or at the same time (and see old values: 10 of
    10 times in an experiment). An operation that is registered as writing them, and does nothing, waits for all
    readers so far, and later readers wait for it.
    """

    def __init__(self, arrays: Sequence[NDArray]):
        self._arrays = list(arrays)
        self._orders = [Order(context, [], [array for array in arrays if array.context == context])
                        for context in dict.fromkeys(array.context for array in arrays)]

    def __call__(self) -> None:
        """Queue it."""
        for order in self._orders:
            order()


class _Movement:
    """For each pair of (state, value): state = momentum * state + (1 - momentum) * value, all in one operator.

    It is SGD with learning rate 1, gradient -(1 - momentum) * value and weight decay 1 - momentum.
    """

    def __init__(self, pairs: Sequence[Tuple[NDArray, NDArray]]):
        self._pairs = pairs
        # Values of another type must be converted each time.
        self._update = None
        if all(state.dtype == value.dtype for state, value in pairs):
            self._update = sgd.TileUpdate([sgd.Tile(0, state, value, None) for state, value in pairs])

    def towards(self, momentum: float) -> None:
        """Queue it."""
        update, count = self._update, len(self._pairs)
        if update is None:
            update = sgd.TileUpdate([sgd.Tile(0, state, value.astype(state.dtype), None)
                                     for state, value in self._pairs])
        update([1.0] * count, [1.0 - momentum] * count, (("rescale_grad", momentum - 1.0),))


def _parameter_tile(slot: Slot, tiles: Mapping[str, Tiles]) -> Tuple[NDArray, Optional[NDArray], str]:
    if slot.source not in tiles:
        raise InternalError(f"internal error: the parallel graph's variable {slot.name!r} stands for {slot.source!r}, "
                            "which is neither an input nor a parameter of the block.")
    held = tiles[slot.source]
    try:
        position = held.layout.places.index((slot.device, slot.region))
    except ValueError:
        raise InternalError(f"internal error: the parallel graph's variable {slot.name!r} is {slot.region} of "
                            f"{slot.source!r} on device {slot.device}, but its tiles are {held.layout.places}: the "
                            "plan did not keep to the pinned tilings.") from None
    gradient = None if held.gradients is None else held.gradients[position]
    return held.data[position], gradient, held.grad_req


def _add_fills(program: Program, arrays: Dict[str, NDArray], gradients: Dict[str, NDArray],
               requests: Dict[str, str]) -> None:
    """Arrays of ones for a program's fills, which are legal as indices too, and the gradients that they ask for."""
    types = _fill_types(program, {name: array.dtype for name, array in arrays.items()})
    for fill in program.fills:
        context = program.contexts[fill.device]
        arrays[fill.name] = mx.nd.ones(fill.shape, context, types[fill.name])
        if fill.requires_grad and program.gradients:
            gradients[fill.name], requests[fill.name] = empty(fill.shape, context, types[fill.name]), "write"


def _fill_types(program: Program, known: Mapping[str, Any]) -> Dict[str, Any]:
    """The type of each fill: that of the tensor in whose place it is, whose own may depend on other fills."""
    types: Dict[str, Any] = {}
    arguments = program.symbol.list_arguments()
    while len(types) < len(program.fills):
        given = {name: kind for name, kind in {**known, **types}.items() if name in arguments}
        heads = program.symbol.infer_type_partial(**given)[1]
        found = {fill.name: heads[fill.head] for fill in program.fills
                 if fill.name not in types and heads[fill.head] is not None}
        if not found:
            missing = [fill.name for fill in program.fills if fill.name not in types]
            raise InternalError(f"internal error: MXNet cannot tell the types of the variables {missing}.")
        types.update(found)
    return types


def _bind(program: Program, arrays: Dict[str, NDArray], gradients: Dict[str, NDArray], requests: Dict[str, str]):
    symbol = program.symbol
    arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    missing = [name for name in arguments + states if name not in arrays]
    if missing:
        raise InternalError(f"internal error: the parallel graph has variables {missing} that are not listed.")
    groups = {f"d{index}": context for index, context in enumerate(program.contexts)}
    inference = not gradients

    def bind(shared: bool):
        with _bind_environment(program.contexts, inference, shared):
            return symbol.bind(
                program.contexts[0],
                {name: arrays[name] for name in arguments},
                args_grad=gradients or None,
                grad_req={name: requests.get(name, "null") for name in arguments},
                aux_states={name: arrays[name] for name in states},
                group2ctx=groups)

    executor = bind(shared=True)
    on_cpu = program.contexts[0].device_type == "cpu"
    text = "" if inference and not on_cpu else executor.debug_str()
    if on_cpu and reads_freed_memory(text, symbol.tojson()):
        del executor  # before the memory of the next
        executor = bind(shared=False)
    if not inference and "Op:_grad_add" in text:
        raise InternalError("internal error: MXNet sums a gradient of the parallel graph in a chain (_grad_add), which "
                            "gives wrong results across devices; please report it with the plan.")
    return executor


@functools.lru_cache(maxsize=None)
def copies_are_clean() -> bool:
    """Whether MXNet's copies between CPU contexts are repaired (soybean_mx.clean_copies), found out by making one."""
    source = mx.sym.var("source", attr={"__ctx_group__": "source"})
    target = mx.sym.identity(source, attr={"__ctx_group__": "target"})
    executor = target.bind(mx.cpu(0), [mx.nd.zeros((1,), ctx=mx.cpu(0))], grad_req="null",
                           group2ctx={"source": mx.cpu(0), "target": mx.cpu(1)})
    before = cleaned()
    with cleaning():
        check_call(_LIB.MXExecutorForward(executor.handle, ctypes.c_int(0)))
    return cleaned() > before


@contextmanager
def _bind_environment(contexts: Sequence[mx.Context], inference: bool, shared: bool):
    """Settings that MXNet reads while it binds; `shared` is whether tensors may share memory one after the other.

    Several devices: operators are not run in bulk, as a copy that another device waits for would wait for the whole
    bulk. CPU contexts, which crash or fail otherwise: with oneDNN, memory that tensors share keeps a stale layout when
    a copy from another context is written into it, so no memory is shared where that is not repaired; and oneDNN's
    fused subgraphs, used for inference, cannot infer shapes over contexts.
    """
    settings = {}
    if len(set(contexts)) > 1:
        settings.update(MXNET_EXEC_BULK_EXEC_TRAIN="0", MXNET_EXEC_BULK_EXEC_INFERENCE="0")
    if contexts[0].device_type == "cpu":
        if not shared or (len(contexts) > 1 and not copies_are_clean()):
            settings["NNVM_EXEC_MATCH_RANGE"] = "0"
        if inference:
            settings["MXNET_SUBGRAPH_BACKEND"] = "NONE"
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def positions_used(program: Program, parameter: TiledParameter) -> Set[int]:
    """Which tiles of a parameter a program is bound to."""
    places = parameter.layout.places
    return {places.index((slot.device, slot.region)) for slot in program.slots_of.get(parameter.name, ())}
