"""Hybridized blocks in stages: what runs in the place of a tiled graph where ``SOYBEAN_MX_PARALLEL`` is ``pipeline``.

A block's symbol is cut into stages, one for each device, and each parameter lies whole on the device of the first
stage that uses it: a tiled parameter with one tile, so that all of :mod:`soybean_mx.parameters`,
:mod:`soybean_mx.trainer` and :mod:`soybean_mx.tape` holds for it as it is. Other stages, and those of other blocks,
work on a copy that each call makes, and send the gradient back.

The program's loss is computed outside of the block, from the outputs of the whole batch. So a call queues the forward
passes of all microbatches, stage by stage, and the backward pass those of all microbatches: the order of the schedule
``gpipe``, whose results are those of ``flush``.
"""
from __future__ import annotations

import json
import warnings
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import mxnet as mx
from mxnet import autograd
from mxnet.ndarray import CachedOp, NDArray

from soybean_mx import core
from soybean_mx import parameters as tiled
from soybean_mx import regions as tiles_of
from soybean_mx.engine_order import Order, after
from soybean_mx.executor import Slot, Tiles
from soybean_mx.gluon_front import BlockError, TiledGraph
from soybean_mx.graph import describe, is_random
from soybean_mx.parameters import Cut, Layout
from soybean_mx.pipeline.partition import PartitionError, StageGraph, Tensor, balanced, partition
from soybean_mx.pipeline.samples import SampleDims, sample_dims
from soybean_mx.regions import Region, Shape, empty
from soybean_mx.tape import plain_backward

_FLOATS = ("float16", "float32", "float64")


class StagedProgram:
    """What the stages run for one call signature; stands where a tiled graph has its ``Program``.

    Parameters
    ----------
    graphs : sequence of StageGraph
        The stages, of which stage i runs on context i.
    contexts : sequence of mxnet.Context
        The devices.
    training : bool
        Whether it runs in training mode.
    gradients : set of str
        The variables whose gradient is wanted. Empty for inference.
    ends : sequence of int
        Where each microbatch ends.
    batched : set of str
        The inputs that are cut along dim 0.
    outputs : sequence of (tuple of int, int)
        The shape of each output, and the dim of the samples.
    parameters : mapping of str to tuple of int
        The shapes of all parameters and auxiliary states.
    """

    used_once = has_bodies = recompute = False
    statistics: Tuple[Dict[str, Any], ...] = ()

    def __init__(self, graphs: Sequence[StageGraph], contexts: Sequence[mx.Context], training: bool,
                 gradients: Set[str], ends: Sequence[int], batched: Set[str], outputs: Sequence[Tuple[Shape, int]],
                 parameters: Mapping[str, Shape]):
        self.graphs, self.contexts, self.training = list(graphs), list(contexts), training
        self.gradients, self.batched = set(gradients), set(batched)
        self.ends = list(ends)
        self.sample_dims = [dim for _, dim in outputs]
        self.outputs = [(index, 0, Region.whole(shape)) for index, (shape, _) in enumerate(outputs)]
        self.random = any(is_random(graph.symbol.tojson(), training) for graph in graphs)
        self.calls = [CachedOp(graph.symbol) for graph in graphs]
        self.orders = [graph.symbol.list_inputs() for graph in graphs]
        self.producer = {tensor: stage for stage, graph in enumerate(graphs) for tensor in graph.outputs}
        self.auxiliary = {name for graph in graphs for name in graph.auxiliary}
        self.slots_of: Dict[str, List[Slot]] = {}
        for stage, graph in enumerate(graphs):
            for name in dict.fromkeys([*graph.parameters, *graph.auxiliary]):
                self.slots_of.setdefault(name, []).append(Slot(name, name, stage, Region.whole(parameters[name])))


class _Pass(NamedTuple):
    """What the forward pass of one microbatch in one stage leaves."""

    outputs: List[NDArray]
    received: Dict[Tensor, NDArray]  # gradients of what came from other stages, to be


class StagedRun:
    """The passes of one batch through the stages; stands where a tiled graph has its ``BoundGraph``.

    Parameters
    ----------
    program : StagedProgram
        What runs.
    tiles : mapping of str to Tiles
        Of all parameters and auxiliary states.
    """

    def __init__(self, program: StagedProgram, tiles: Mapping[str, Tiles]):
        self.program, self._tiles = program, dict(tiles)
        self._stages = range(len(program.graphs))
        self._last: List[List[NDArray]] = [[] for _ in self._stages]
        self._held: List[List[_Pass]] = []
        self._fed: List[List[Dict[str, NDArray]]] = []
        self._input_gradients: List[List[Dict[str, NDArray]]] = []
        self._copies: List[Dict[str, NDArray]] = [{} for _ in self._stages]
        self._shared = {name for name, slots in program.slots_of.items() if name not in program.auxiliary
                        and [slot.device for slot in slots] != [self._tiles[name].layout.places[0][0]]}
        self._buffers: List[Dict[str, NDArray]] = [self._buffers_of(stage) for stage in self._stages]

    def _value(self, stage: int, name: str) -> NDArray:
        """A parameter or a state where a stage can use it."""
        tiles = self._tiles[name]
        for (device, _), tile in zip(tiles.layout.places, tiles.data):
            if device == stage:
                return tile
        if name not in self._copies[stage]:
            self._copies[stage][name] = tiles.data[0].copyto(self.program.contexts[stage])
        return self._copies[stage][name]

    def _buffers_of(self, stage: int) -> Dict[str, NDArray]:
        """Where the gradients of a stage's parameters go: into the tile itself, where no other stage has a part."""
        result = {}
        for name in self.program.graphs[stage].parameters:
            if name in self.program.gradients:
                tiles = self._tiles[name]
                if tiles.gradients is not None and name not in self._shared:
                    result[name] = tiles.gradients[0]
                else:
                    result[name] = empty(tiles.layout.shape, self.program.contexts[stage], tiles.data[0].dtype)
        return result

    def _parts(self) -> List[Tuple[int, int]]:
        return list(zip([0, *self.program.ends], self.program.ends))

    def feed(self, inputs: Mapping[str, NDArray]) -> None:
        """Queue copies of the caller's arrays, or of each microbatch's part, to the stages that use them."""
        self._fed = []
        for begin, end in self._parts():
            self._fed.append([{name: self._part(inputs[name], name in self.program.batched, begin, end, stage)
                               for name in graph.inputs} for stage, graph in enumerate(self.program.graphs)])

    def _part(self, whole: NDArray, cut: bool, begin: int, end: int, stage: int) -> NDArray:
        region = Region.whole(whole.shape)
        if cut:
            region = Region((begin, *region.begin[1:]), (end, *region.end[1:]))
        result = empty(region.shape, self.program.contexts[stage], whole.dtype)
        tiles_of.copy_in(whole, region, result)
        return result

    def forward(self) -> None:
        """Queue the forward passes of all microbatches."""
        program = self.program
        self._held, self._input_gradients = [], []
        self._copies = [{} for _ in self._stages]
        for part, fed in enumerate(self._fed):
            sent: Dict[Tensor, NDArray] = {}
            self._held.append([])
            self._input_gradients.append([])
            for stage in self._stages:
                sent.update(self._forward(stage, part, fed[stage], sent))
        if not program.gradients:
            self._fed = []

    def _forward(self, stage: int, part: int, fed: Dict[str, NDArray],
                 sent: Mapping[Tensor, NDArray]) -> Dict[Tensor, NDArray]:
        program, graph, context = self.program, self.program.graphs[stage], self.program.contexts[stage]
        received = {name: sent[tensor].copyto(context) for name, tensor in graph.received.items()}
        # A new handle each time: MXNet's tape knows a variable by it.
        arrays = {name: array.detach() for name, array in fed.items()}
        arrays.update(received)
        self._after_last(stage, list(arrays.values()))
        for name in [*graph.parameters, *graph.auxiliary]:
            arrays[name] = self._value(stage, name).detach()
        input_gradients = {name: mx.nd.zeros(fed[name].shape, context, fed[name].dtype) for name in graph.inputs
                           if name in program.gradients}
        gradients = {name: mx.nd.zeros(array.shape, context, array.dtype) for name, array in received.items()
                     if array.dtype.__name__ in _FLOATS} if program.gradients else {}
        written = {**input_gradients, **gradients}
        marked = [*self._buffers[stage], *written]
        if marked:
            kinds = [self._kind(name, part) for name in self._buffers[stage]] + ["write"] * len(written)
            autograd.mark_variables([arrays[name] for name in marked],
                                    [*self._buffers[stage].values(), *written.values()], kinds)
        given = [arrays[name] for name in program.orders[stage]]
        if marked:
            with autograd.record(train_mode=program.training):
                outputs = program.calls[stage](*given)
        else:
            with autograd.pause(train_mode=program.training):
                outputs = program.calls[stage](*given)
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        self._last[stage] = outputs
        self._held[part].append(_Pass(outputs if marked else [],
                                      {graph.received[name]: array for name, array in gradients.items()}))
        if stage == self._stages[-1]:
            self._results(part)[:] = [output.detach() for output in outputs[-len(program.outputs):]]
        self._input_gradients[part].append(input_gradients)
        return dict(zip(graph.outputs, (output.detach() for output in outputs)))

    def _results(self, part: int) -> List[NDArray]:
        if part == 0:
            self._outputs: List[List[NDArray]] = [[] for _ in self._fed]
        return self._outputs[part]

    def _kind(self, name: str, part: int) -> str:
        """Whether a backward pass writes a parameter's gradient, or adds to it."""
        tiles = self._tiles[name]
        own = tiles.gradients is not None and name not in self._shared
        return "add" if part > 0 or (own and tiles.grad_req == "add") else "write"

    def _after_last(self, stage: int, arrays: Sequence[NDArray]) -> None:
        """One pass after the other on a device: the parts of several would take turns."""
        if self._last[stage] and arrays:
            after(self.program.contexts[stage], self._last[stage], arrays)

    def gather_outputs(self, shapes: Sequence[Shape], context: mx.Context) -> List[NDArray]:
        """Queue copies of the outputs into new whole arrays on a device, that later runs do not touch."""
        wholes = []
        for index, shape in enumerate(shapes):
            whole = empty(shape, context, self._outputs[0][index].dtype)
            for (begin, end), outputs in zip(self._parts(), self._outputs):
                tiles_of.copy_out(outputs[index], self._region(index, shape, begin, end), whole)
            wholes.append(whole)
        self._outputs = []
        return wholes

    def _region(self, index: int, shape: Shape, begin: int, end: int) -> Region:
        """The part of an output that a microbatch makes."""
        region, dim = Region.whole(shape), self.program.sample_dims[index]
        if len(self.program.ends) == 1:
            return region
        return Region((*region.begin[:dim], begin, *region.begin[dim + 1:]),
                      (*region.end[:dim], end, *region.end[dim + 1:]))

    def backward(self, gradients: Sequence[Optional[NDArray]], train_mode: bool) -> None:
        """Queue the backward passes of all microbatches.

        Parameters
        ----------
        gradients : sequence of NDArray or None
            The whole gradient of each output, on one device; None stands for zeros.
        train_mode : bool
            As of ``autograd.backward``.
        """
        last = self._stages[-1]
        states = [self._value(stage, name) for stage in self._stages for name in self.program.graphs[stage].auxiliary]
        # MXNet moves them in the backward pass, and takes them as only read there.
        fences = [Order(state.context, [], [state]) for state in states]
        for fence in fences:
            fence()
        for part, (begin, end) in enumerate(self._parts()):
            heads: Dict[Tensor, List[NDArray]] = {}
            outputs = self.program.graphs[last].outputs[-len(self.program.outputs):]
            for index, (tensor, gradient) in enumerate(zip(outputs, gradients)):
                if gradient is not None:
                    shape = self.program.outputs[index][2].shape
                    region = self._region(index, shape, begin, end)
                    head = empty(region.shape, self.program.contexts[last], gradient.dtype)
                    tiles_of.copy_in(gradient, region, head)
                    heads.setdefault((*tensor, index), []).append(head)
            for stage in reversed(self._stages):
                self._backward(stage, part, heads, train_mode)
        for fence in fences:
            fence()
        self._held = []
        self._send_gradients()

    def _backward(self, stage: int, part: int, heads: Dict[Any, List[NDArray]], train_mode: bool) -> None:
        held, graph = self._held[part][stage], self.program.graphs[stage]
        if not held.outputs:
            return
        first_result = len(graph.outputs) - (len(self.program.outputs) if stage == self._stages[-1] else 0)
        chosen, given = [], []
        for number, (tensor, output) in enumerate(zip(graph.outputs, held.outputs)):
            key = tensor if number < first_result else (*tensor, number - first_result)
            total: Optional[NDArray] = None
            for term in heads.pop(key, ()):  # a chain: none writes into what another reads
                total = term if total is None else total + term
            if total is None:
                total = mx.nd.zeros(output.shape, output.context, output.dtype)
            if output.dtype.__name__ in _FLOATS:
                chosen.append(output)
                given.append(total)
        if chosen:
            self._after_last(stage, given)
            plain_backward(chosen, given, train_mode)
        self._last[stage] = [*held.received.values(), *self._buffers[stage].values()] or given
        for tensor, gradient in held.received.items():
            context = self.program.contexts[self.program.producer[tensor]]
            heads.setdefault(tensor, []).append(gradient.copyto(context))

    def _send_gradients(self) -> None:
        """Give the sum of all stages' gradients to the parameters that some of them have copies of."""
        for name in self._shared & self.program.gradients:
            tiles = self._tiles[name]
            if tiles.gradients is None:
                continue
            gradient, total = tiles.gradients[0], None
            for part in [buffers[name] for buffers in self._buffers if name in buffers]:
                part = part.as_in_context(gradient.context)
                total = part if total is None else total + part
            (tiles_of.add_in if tiles.grad_req == "add" else tiles_of.overwrite)(
                total, Region.whole(total.shape), gradient)

    def input_gradient(self, name: str, shape: Shape, context: mx.Context) -> NDArray:
        """The whole gradient of an input, in a new array on the context."""
        whole = mx.nd.zeros(shape, context, dtype=self._first_gradient(name).dtype)
        for (begin, end), stages in zip(self._parts(), self._input_gradients):
            region = Region.whole(shape)
            if name in self.program.batched:
                region = Region((begin, *region.begin[1:]), (end, *region.end[1:]))
            for gradients in stages:
                if name in gradients:
                    tiles_of.add_out(gradients[name], region, whole)
        return whole

    def _first_gradient(self, name: str) -> NDArray:
        return next(gradients[name] for gradients in self._input_gradients[0] if name in gradients)


class PipelinedGraph(TiledGraph):
    """What a pipelined block runs, in the place of MXNet's CachedOp; parameters as of :class:`TiledGraph`."""

    def __init__(self, symbol, input_names, parameters, settings):
        super().__init__(symbol, input_names, parameters, settings)
        self._stages: Optional[List[List[str]]] = None
        self._warned = False

    def _plan(self, call, gradients: Set[str]) -> Tuple[Dict[str, Any], Dict[str, Any], Any]:
        """The graph, its stages, and what runs."""
        types = {name: tiled.type_of(parameter) for name, parameter in self._parameters.items()}

        def described(size: Optional[int] = None) -> Dict[str, Any]:
            inputs = {name: ((size, *shape[1:]) if size is not None and name in batched else shape, dtype)
                      for name, (shape, dtype) in call.inputs.items()}
            return describe(self._symbol, inputs, types, gradients, call.training)

        batch = next((shape[0] for shape, _ in call.inputs.values() if shape), 1)
        batched = {name for name, (shape, _) in call.inputs.items() if shape and shape[0] == batch}
        graph = described()
        symbol = mx.sym.load_json(graph["symbol"])
        heads = [(item[0], item[1]) for item in json.loads(graph["symbol"])["heads"]]
        names = [node["name"] for node in json.loads(graph["symbol"])["nodes"]]
        shapes = [tuple(graph["shapes"][names[node]][output]) for node, output in heads]
        ends, dims = self._microbatches(graph, batched, batch, described, shapes)
        graphs = self._cut(symbol, {name: shape for name, (shape, _) in call.inputs.items()})
        plan = {"parallel": "pipeline", "stages": self._stages, "microbatches": len(ends), "tensors": {}}
        program = StagedProgram(graphs, self.settings.contexts, call.training, gradients, ends,
                                batched if len(ends) > 1 else set(), list(zip(shapes, dims)),
                                {name: shape for name, (shape, _) in types.items()})
        return graph, plan, program

    def _microbatches(self, graph, batched: Set[str], batch: int, described: Callable[[int], Dict[str, Any]],
                      shapes: Sequence[Shape]) -> Tuple[List[int], List[int]]:
        """Where each microbatch ends, and the dim of the samples in each output."""
        count = min(self.settings.microbatches or 2 * len(self.settings.contexts), batch)
        if count > 1:
            ends = [batch * (part + 1) // count for part in range(count)]
            sizes = {end - begin for begin, end in zip([0, *ends], ends)}
            found: SampleDims = sample_dims(graph, core.rules(graph), batched, sizes, described)
            if found.outputs is not None:
                if found.statistics is not None and self.settings.microbatches is None:
                    self._warn(f"{found.statistics!r} of a pipelined block takes the statistics of each of {count} "
                               "microbatches, not those of the batch as on one device: set SOYBEAN_MX_MICROBATCHES to "
                               "their number to accept this, or to 1 for the values of one device.")
                return ends, found.outputs
            self._warn("A pipelined block is not cut into microbatches, so that its devices work one after the other: "
                       f"{found.reason}. Take that out of the block, or tile it (SOYBEAN_MX_PARALLEL=tiling).")
        return [batch], [0] * len(shapes)

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(text, RuntimeWarning, stacklevel=8)

    def _cut(self, symbol, inputs: Mapping[str, Shape]) -> List[StageGraph]:
        """The stages: as many as there are devices, or as the block can be cut into."""
        # Outputs that are computed in earlier stages come out of the last one.
        ends = mx.sym.Group([mx.sym.identity(symbol[index], name=f"soybean_mx_output{index}")
                             for index in range(len(symbol.list_outputs()))])
        if self._stages is not None:
            known = {node["name"] for node in json.loads(symbol.tojson())["nodes"] if node["op"] != "null"}
            stages = [[name for name in stage if name in known] for stage in self._stages]
            return partition(ends, stages, list(inputs))
        for count in range(len(self.settings.contexts), 0, -1):
            try:
                stages = balanced(symbol, inputs, count)
                graphs = partition(ends, stages, list(inputs))
            except PartitionError:
                if count == 1:
                    raise
                continue
            self._stages = stages
            return graphs
        raise AssertionError("there is always one stage")

    def _bound(self, program: StagedProgram, inputs, tiles: Dict[str, Tiles]) -> StagedRun:
        return StagedRun(program, tiles)

    def _remember_tilings(self, plan: Dict[str, Any], provisional: bool) -> None:
        """Parameters are not tiled: where they lie follows from the stages."""

    def _cuts(self, program: StagedProgram, trains: bool) -> Dict[str, Cut]:
        """Where the parameters that no block has placed yet are to lie."""
        cuts = {}
        for name, parameter in self._parameters.items():
            shape, _ = tiled.type_of(parameter)
            places = [(slot.device, slot.region) for slot in program.slots_of.get(name, ())]
            if not tiled.is_tiled(parameter):
                first = (places or [(0, Region.whole(shape))])[:1]
                cuts[name] = Cut(parameter, Layout(shape, self.settings.contexts, first))
            elif any(region != Region.whole(shape) for region in parameter.layout.regions):
                raise BlockError(f"Parameter {name} is tiled by another block, but this one is to run in stages: give "
                                 "all blocks that share a parameter the same kind of parallelism.")
            elif name in self._auxiliary:
                parameter.extend(places)
        return cuts


__all__ = ["PipelinedGraph", "StagedProgram", "StagedRun"]
