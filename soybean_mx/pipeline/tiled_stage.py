"""A stage that a group of devices computes together, tiled.

The stage's symbol is planned and lowered as a hybridized block is. What crosses to other stages does so whole, from and
to the group's first device: the pipeline goes over the slow network, the tiling stays inside the fast one. Each tile of
a weight is a weight of its own to the trainer: it has versions, a gradient and optimizer states on its device.
"""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from soybean_mx import core, operators, pins
from soybean_mx import parameters as tiled
from soybean_mx.executor import BoundGraph, Program, Tiles, positions_used
from soybean_mx.graph import describe
from soybean_mx.parameters import Cut, Layout, TiledParameter
from soybean_mx.pipeline import weight_versions
from soybean_mx.pipeline.partition import StageGraph
from soybean_mx.regions import Region, Shape, legacy

Types = Dict[str, Tuple[Shape, Any]]  # shape and numpy type by name


class TiledWeight(NamedTuple):
    """A parameter of a tiled stage: where its tiles are, and what they are called as weights of their own."""

    layout: Layout
    tiles: List[str]


class _State(NamedTuple):
    """What a program does with an auxiliary state: the tiles it reads, and those that are new after a backward pass."""

    parameter: TiledParameter
    read: Set[int]
    changed: Set[int]


class _Signature(NamedTuple):
    """What runs for inputs of one type."""

    program: Program
    inputs: Types
    outputs: List[Shape]
    states: List[_State]
    # Executors that nothing is under way in, with the tiles of the weights that each is bound to.
    free: List[Tuple[List[NDArray], BoundGraph]]


class TiledPass(NamedTuple):
    """A forward pass that is under way."""

    signature: _Signature
    weights: List[NDArray]
    bound: BoundGraph
    outputs: List[NDArray]  # whole, on the group's first device
    first: bool


class TiledStage:
    """Runs a stage's symbol over a group of devices.

    Parameters
    ----------
    graph : StageGraph
        The stage.
    contexts : sequence of mxnet.Context
        The group.
    parameters : mapping of str to mxnet.gluon.Parameter
        The network's parameters, whose values are cut into tiles.
    trained : sequence of str
        Those whose gradients are computed.
    inputs : dict
        Shape and type of everything that the stage is fed, for the largest microbatch.
    accumulates : bool
        Whether gradients are summed over the microbatches of a batch.
    options : mapping
        ``strategy``, ``batch_norm`` and ``pins`` of the planner.
    shared : set of str
        Parameters that other stages use too. They stay whole, on the group's first device, and are fed like inputs.
    recompute : bool
        Whether the backward pass computes activations again (:mod:`soybean_mx.recomputation`).

    Attributes
    ----------
    graph : StageGraph
        The stage, its parameters being the tiles.
    parameters : dict of str to TiledWeight
        The tiles of each parameter.
    weights, gradients : dict
        Versions and gradient of each tile, and of each shared parameter.
    plan : dict
        The plan for the largest microbatch.
    """

    def __init__(self, graph: StageGraph, contexts: Sequence[mx.Context],
                 parameters: Mapping[str, gluon.Parameter], trained: Sequence[str], inputs: Types, accumulates: bool,
                 options: Mapping[str, Any], shared: Set[str], recompute: bool = False):
        self.context, self._recompute = contexts[0], recompute
        self._contexts, self._options = list(contexts), dict(options)
        self._symbol, self._accumulates = graph.symbol, accumulates
        self._received = list(graph.received)
        self._trained = [name for name in graph.parameters if name in trained]
        self._types: Types = {name: _type_of(parameters[name]) for name in [*graph.parameters, *graph.auxiliary]
                              if name not in shared}
        self._shared: Types = {name: _type_of(parameters[name]) for name in graph.parameters if name in shared}
        self._auxiliary = {name: _own_parameter(name, parameters[name], contexts[0]) for name in graph.auxiliary}
        self._tilings: Dict[str, List[str]] = {}
        self._signatures: Dict[Tuple, _Signature] = {}
        own = [name for name in graph.parameters if name not in shared]
        program, self.plan = self._program(inputs)
        self._tilings = {name: self.plan["tensors"][name] for name in own if name in self.plan["tensors"]}
        self.parameters: Dict[str, TiledWeight] = {}
        self.weights: Dict[str, weight_versions.Versions] = {}
        self.gradients: Dict[str, NDArray] = {}
        for name in own:
            layout = Layout(self._types[name][0], contexts, _places(program, name, self._types[name][0]))
            held = TiledWeight(layout, [f"{name}[{place}]" for place in range(len(layout.places))])
            self.parameters[name] = held
            for tile, array in zip(held.tiles, layout.cut(legacy(parameters[name].data()))):
                self.weights[tile] = weight_versions.Versions(array)
                if name in trained:
                    self.gradients[tile] = mx.nd.zeros(array.shape, array.context, array.dtype)
        self._tile_names = list(self.weights)
        for name, (shape, dtype) in self._shared.items():
            self.weights[name] = weight_versions.Versions(legacy(parameters[name].data()).copyto(self.context))
            if name in trained:
                self.gradients[name] = mx.nd.zeros(shape, self.context, dtype)
        self.graph = graph._replace(parameters=list(self.weights), auxiliary=[])
        self._add_signature(inputs, program)

    # -- passes ----------------------------------------------------------------------------------------------------

    def forward(self, arrays: Mapping[str, NDArray], weights: Mapping[str, NDArray], first: bool) -> TiledPass:
        """Queue a forward pass.

        Parameters
        ----------
        arrays : mapping of str to NDArray
            All inputs, whole, on the group's first device.
        weights : mapping of str to NDArray
            The version of each tile, and of each shared parameter, that is to be used.
        first : bool
            Whether gradients that are summed begin anew with this pass.

        Returns
        -------
        TiledPass
            For :meth:`backward`, which must come before it is dropped.
        """
        inputs = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        signature = self._signatures.get(_key(inputs)) or self._add_signature(inputs, self._program(inputs)[0])
        used = [weights[tile] for tile in self._tile_names]
        bound = self._take(signature, used)
        tiled.even_out({state.parameter: state.read for state in signature.states})
        bound.feed({**arrays, **{name: weights[name] for name in self._shared}})
        bound.forward()
        outputs = bound.gather_outputs(signature.outputs, self.context)
        return TiledPass(signature, used, bound, outputs, first)

    def backward(self, held: TiledPass, heads: Sequence[NDArray], gradients: Mapping[str, NDArray]) -> None:
        """Queue the backward pass: the weights' gradients, the movement of statistics, and the inputs' gradients.

        Parameters
        ----------
        held : TiledPass
            The forward pass.
        heads : sequence of NDArray
            The gradient of each output.
        gradients : mapping of str to NDArray
            Where the gradient of each tensor that came from another stage goes.
        """
        signature, bound = held.signature, held.bound
        if held.first and self._accumulates:  # now: earlier, another batch may not have gone back yet
            for gradient in self.gradients.values():
                gradient[:] = 0
        bound.backward(heads, True)
        for name, whole in gradients.items():
            if name in signature.program.gradients:
                bound.input_gradient(name, whole.shape, self.context).copyto(whole)
        for name in self._shared:
            if name in signature.program.gradients:
                gradient = bound.input_gradient(name, self.gradients[name].shape, self.context)
                if self._accumulates:
                    self.gradients[name] += gradient
                else:
                    gradient.copyto(self.gradients[name])
        for state in signature.states:
            if state.changed:
                state.parameter.changed_tiles(state.changed)
        if signature.program.statistics:
            bound.update_statistics(self._state_tile)
        signature.free.append((held.weights, bound))

    def _take(self, signature: _Signature, weights: List[NDArray]) -> BoundGraph:
        for index, (others, bound) in enumerate(signature.free):
            if all(some is other for some, other in zip(weights, others)):
                del signature.free[index]
                return bound
        data = dict(zip(self._tile_names, weights))
        tiles = {}
        for name, (layout, names) in self.parameters.items():
            written = [self.gradients[tile] for tile in names] if name in self._trained else None
            tiles[name] = Tiles(layout, [data[tile] for tile in names], written,
                                "add" if self._accumulates else "write")
        for name, parameter in self._auxiliary.items():
            tiles[name] = Tiles(parameter.layout, parameter.tiles(), None, "null")
        return BoundGraph(signature.program, {**signature.inputs, **self._shared}, tiles)

    def _state_tile(self, source: str, device: int, region: Region) -> NDArray:
        parameter = self._auxiliary[source]
        return parameter.tiles()[parameter.layout.places.index((device, region))]

    # -- states ----------------------------------------------------------------------------------------------------

    @property
    def states(self) -> Dict[str, NDArray]:
        """Every auxiliary state, whole, in a new array on the group's first device."""
        result = {}
        for name, parameter in self._auxiliary.items():
            tiled.even_out({parameter: set(range(len(parameter.layout.places)))})
            shape, dtype = self._types[name]
            result[name] = mx.nd.empty(shape, self.context, dtype)
            parameter.layout.gather(parameter.tiles(), result[name])
        return result

    def set_state(self, name: str, value: NDArray) -> None:
        """Give an auxiliary state a value, which is whole."""
        parameter = self._auxiliary[name]
        parameter.layout.scatter(value, parameter.tiles())
        parameter.changed_tiles(set(range(len(parameter.layout.places))))

    # -- planning --------------------------------------------------------------------------------------------------

    def _program(self, inputs: Types) -> Tuple[Program, Dict[str, Any]]:
        wanted = set(self._trained) | {name for name in self._received if np.dtype(inputs[name][1]).kind == "f"}
        own = operators.are_usable(self._contexts)
        graph = describe(self._symbol, {**inputs, **self._shared}, self._types, wanted, True, own)
        names = {*self._symbol.get_internals().list_outputs(), *graph["shapes"]}
        fixed = pins.matching(pins.checked(self._options.get("pins") or {}, "The argument tiling"), names)
        plan = core.plan(graph, {"devices": len(self._contexts),
                                 "strategy": self._options.get("strategy", "optimal"),
                                 "batch_norm": self._options.get("batch_norm", "exact"),
                                 "pins": pins.with_decided(fixed, self._tilings)})
        lowered = core.lower(graph, plan, {"order": "scheduled", "conversions": "exchanged",
                                           "copy_engines": self.context.device_type == "gpu"})
        return Program(lowered, self._contexts, True, wanted, self._recompute), plan

    def _add_signature(self, inputs: Types, program: Program) -> _Signature:
        ends: Dict[int, Shape] = {}
        for index, _, region in program.outputs:
            ends[index] = tuple(max(pair) for pair in zip(ends.get(index, region.end), region.end))
        states = []
        for name, parameter in self._auxiliary.items():
            yielded = [(item["device"], Region.of(item)) for item in program.statistics if item["source"] == name]
            places = [*_places(program, name, self._types[name][0]), *yielded]
            if tiled.is_tiled(parameter):
                parameter.extend(places)
            else:
                Cut(parameter, Layout(self._types[name][0], self._contexts, list(dict.fromkeys(places)))).commit()
            read = positions_used(program, parameter)
            changed = {parameter.layout.places.index(place) for place in yielded} or read
            states.append(_State(parameter, read, changed))
        signature = _Signature(program, inputs, [ends[index] for index in range(len(ends))], states, [])
        self._signatures[_key(inputs)] = signature
        return signature


def _key(inputs: Types) -> Tuple:
    return tuple(sorted((name, shape, np.dtype(dtype).name) for name, (shape, dtype) in inputs.items()))


def _places(program: Program, name: str, shape: Shape) -> List[Tuple[int, Region]]:
    places = dict.fromkeys((slot.device, slot.region) for slot in program.slots_of.get(name, ()))
    return list(places) or [(0, Region.whole(shape))]


def _type_of(parameter: gluon.Parameter) -> Tuple[Shape, Any]:
    data: Optional[NDArray] = legacy(parameter.data())
    return data.shape, data.dtype


def _own_parameter(name: str, parameter: gluon.Parameter, context: mx.Context) -> gluon.Parameter:
    """A copy of an auxiliary state that is this stage's."""
    data = legacy(parameter.data())
    own = gluon.Parameter(name, grad_req="null", shape=data.shape, dtype=data.dtype)
    own.initialize(mx.init.Zero(), ctx=context)
    own.set_data(data.as_in_context(context))
    return own
