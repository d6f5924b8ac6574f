"""The devices of a pipeline's stages, and the order that each keeps.

Each device of a stage runs the stage's symbol as a CachedOp, recorded for autograd: the tape of a microbatch holds its
activations and, by reference, the version of the weights that its forward pass used.
"""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.ndarray import CachedOp, NDArray

from soybean_mx.engine_order import after
from soybean_mx.pipeline import weight_versions
from soybean_mx.pipeline.partition import StageGraph
from soybean_mx.pipeline.tiled_stage import TiledPass, TiledStage
from soybean_mx.pipeline.trace import Mark
from soybean_mx.regions import legacy

Arrays = Union[NDArray, Sequence[NDArray]]


class Pass(NamedTuple):
    """What a forward pass leaves for the backward pass."""

    outputs: List[NDArray]
    gradients: Dict[str, NDArray]  # of what came from other stages, to be
    versions: Dict[str, int]
    run: Union[TiledPass, "Again", None]  # of a stage that is tiled, or that runs its passes again


class Again(NamedTuple):
    """What a pass is run again from: its inputs, and whether gradients begin anew with it."""

    arrays: Dict[str, NDArray]
    first: bool


class Worker:
    """One device of one stage."""

    def __init__(self, graph: StageGraph, context: mx.Context, parameters: Dict[str, gluon.Parameter],
                 trained: Sequence[str]):
        self.graph, self.context = graph, context
        self.weights: Dict[str, weight_versions.Versions] = {}
        self.gradients: Dict[str, NDArray] = {}
        self.states: Dict[str, NDArray] = {}
        for name in graph.parameters:
            value = own_copy(legacy(parameters[name].data()), context)
            self.weights[name] = weight_versions.Versions(value)
            if name in trained:
                self.gradients[name] = mx.nd.zeros(value.shape, context, value.dtype)
        for name in graph.auxiliary:
            self.states[name] = own_copy(legacy(parameters[name].data()), context)
        self.run = CachedOp(graph.symbol)
        self.order = graph.symbol.list_inputs()
        self.held: Dict[int, Pass] = {}
        self.most_held = 0
        self.recomputes = False

    def forward(self, arrays: Dict[str, NDArray], weights: Dict[str, NDArray], gradients: Dict[str, NDArray],
                first: bool) -> Tuple[List[NDArray], Optional[Again]]:
        """Queue a forward pass; `first` is whether gradients begin anew with it. The outputs are on the tape, unless
        the pass is to be run again."""
        if not self.recomputes:
            return self._recorded(arrays, weights, gradients, first), None
        # On copies of the states: the pass that is recorded moves them.
        states = {name: own_copy(state, self.context) for name, state in self.states.items()}
        given = {**arrays, **weights, **states}
        with autograd.pause(train_mode=True):
            outputs = listed(self.run(*(given[name].detach() for name in self.order)))
        return outputs, Again(arrays, first)

    def _recorded(self, arrays: Dict[str, NDArray], weights: Dict[str, NDArray], gradients: Dict[str, NDArray],
                  first: bool) -> List[NDArray]:
        trained = list(self.gradients)
        variables = [weights[name] for name in trained] + [arrays[name] for name in gradients]
        buffers = [self.gradients[name] for name in trained] + list(gradients.values())
        if variables:
            kinds = ["write" if first else "add"] * len(trained) + ["write"] * len(gradients)
            autograd.mark_variables(variables, buffers, kinds)
        # What has no gradient goes in by another handle each time: MXNet puts a handle on the tape, and takes from it
        # what other passes that are under way need when the first of them has gone back.
        unmarked = {name: array.detach() for name, array in {**weights, **self.states}.items()
                    if name not in self.gradients}
        arrays = {**arrays, **weights, **unmarked}
        with autograd.record():
            return listed(self.run(*(arrays[name] for name in self.order)))

    def backward(self, held: Pass, heads: List[NDArray]) -> None:
        """Queue the backward pass; behind its forward pass once more, where nothing of that is kept."""
        outputs = held.outputs
        if held.run is not None:
            if held.run.arrays:
                after(self.context, heads, list(held.run.arrays.values()))
            weights = {name: self.weights[name].value(version) for name, version in held.versions.items()}
            outputs = self._recorded(held.run.arrays, weights, held.gradients, held.run.first)
        if self.gradients or held.gradients:
            autograd.backward(outputs, heads)

    def set_state(self, name: str, value: NDArray) -> None:
        """Give an auxiliary state a value."""
        value.copyto(self.states[name])


class TiledWorker(TiledStage):
    """The devices that compute a stage together."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.held: Dict[int, Pass] = {}
        self.most_held = 0

    def forward(self, arrays, weights, gradients, first):
        run = super().forward(arrays, weights, first)
        return run.outputs, run

    def backward(self, held, heads):
        super().backward(held.run, heads, held.gradients)


class PassOrder:
    """Keeps a device's passes in the order in which they were queued, where nothing else does."""

    def __init__(self, context: mx.Context):
        self._context = context
        self._last: List[NDArray] = []
        self.mark: Optional[Mark] = None  # of the pass that is being queued, where there is a trace

    def before(self, inputs: Sequence[NDArray]) -> None:
        """What will read these arrays comes after the last pass."""
        if self.mark is not None:
            self.mark.begin(self._last, inputs)
        elif self._last and inputs:
            after(self._context, self._last, inputs)

    def done(self, outputs: Sequence[NDArray]) -> None:
        """A pass that writes these arrays has been queued."""
        self._last = list(outputs)
        if self.mark is not None:
            self.mark.end(outputs)


def own_copy(array: NDArray, context: mx.Context) -> NDArray:
    """A copy, even where the array is on that device already."""
    return array.copyto(context)


def listed(arrays: Arrays) -> List[NDArray]:
    """A list of legacy arrays, of whatever a caller gave or an operator returned."""
    arrays = list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
    return [legacy(array) if isinstance(array, NDArray) else mx.nd.array(array) for array in arrays]
