"""What a tiled block holds on each of its devices, measured during a training step.

    usage = soybean_mx.memory.measure(net, step, trainer)

The parameters' tiles, their gradients, the optimizer's states and the input tiles are known arrays. What the executor
holds beside them is found by looking at every array that it writes while ``step`` runs: the blocks of memory that these
lie in, each counted once. What operators need while they run (temporary space), and arrays of the program's own, such
as its batches and its losses, are not among them.
"""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call
from mxnet.gluon import Block, Trainer
from mxnet.ndarray import NDArray

from soybean_mx.executor import BoundGraph
from soybean_mx.gluon_front import BlockError, TiledGraph
from soybean_mx.parameters import is_tiled
from soybean_mx.trainer import state_arrays

Span = Tuple[int, int]  # addresses: first, and behind the last


class DeviceMemory(NamedTuple):
    """Bytes that one device holds in a training step.

    Attributes
    ----------
    context : mxnet.Context
        The device.
    parameters, gradients, optimizer, inputs : int
        Tiles of parameters (moving statistics included), of their gradients, of the optimizer's states, and of the
        block's inputs with their gradients.
    executor : int
        All else that the parallel graph writes: activations kept for the backward pass, copies of tensors, gradients
        on their way.
    """

    context: mx.Context
    parameters: int
    gradients: int
    optimizer: int
    inputs: int
    executor: int

    @property
    def peak(self) -> int:
        """All of it: the executor's memory is taken when it is bound, so that the sum is the most at any time."""
        return self.parameters + self.gradients + self.optimizer + self.inputs + self.executor


def measure(block: Block, step: Callable[[], Any], trainer: Optional[Trainer] = None) -> List[DeviceMemory]:
    """Run one training step and find out what each device holds in it.

    The executors of the block are bound anew before the step and after it, as looking at what they write slows them.

    Parameters
    ----------
    block : mxnet.gluon.Block
        A block that is tiled, or has tiled blocks in it, and has been called once.
    step : callable
        Runs one training step of the block, on inputs of the shapes that are of interest.
    trainer : mxnet.gluon.Trainer, optional
        The trainer whose optimizer states count.

    Returns
    -------
    list of DeviceMemory
        For every device, in the order of the block's devices.

    Raises
    ------
    soybean_mx.gluon_front.BlockError
        When no block is tiled, or ``step`` ran none of them.
    """
    graphs = _tiled_graphs(block)
    if not graphs:
        raise BlockError(f"{block.name} is not tiled: hybridize it with soybean_mx switched on, and call it once.")
    watched: List[Tuple[BoundGraph, List[NDArray]]] = []

    def watch(bound: BoundGraph) -> None:
        arrays: List[NDArray] = []
        watched.append((bound, arrays))
        bound.watch(arrays.append)

    for graph in graphs:
        graph.watch(watch)
    try:
        step()
        mx.nd.waitall()
        if not watched:
            raise BlockError(f"The step ran no tiled block of {block.name}: call the block in it.")
        return _usage(block, graphs[0].settings.contexts, watched, trainer)
    finally:
        for graph in graphs:
            graph.watch(None)


def _tiled_graphs(block: Block) -> List[TiledGraph]:
    found: List[TiledGraph] = []

    def look(part: Block) -> None:
        graph = getattr(part, "_cached_op", None)
        if isinstance(graph, TiledGraph) and graph not in found:
            found.append(graph)

    block.apply(look)
    return found


def _usage(block: Block, contexts, watched, trainer: Optional[Trainer]) -> List[DeviceMemory]:
    parameters = [parameter for parameter in block.collect_params().values() if is_tiled(parameter)]
    known: Dict[str, List[NDArray]] = {
        "parameters": [tile for parameter in parameters for tile in parameter.tiles()],
        "gradients": [tile for parameter in parameters for tile in parameter.gradient_tiles() or ()],
        "optimizer": state_arrays(trainer, parameters) if trainer is not None else [],
        "inputs": [array for bound, _ in watched for array in bound.input_arrays()],
    }
    spans = {part: _spans(arrays) for part, arrays in known.items()}
    written = _spans(array for _, arrays in watched for array in arrays)
    result = []
    for context in contexts:
        held = {part: _union(of.get(context, [])) for part, of in spans.items()}
        outside = [span for part in held.values() for span in part]
        everything = _union(outside + written.get(context, []))
        result.append(DeviceMemory(context, executor=_size(everything) - _size(_union(outside)),
                                   **{part: _size(of) for part, of in held.items()}))
    return result


def _spans(arrays: Iterable[NDArray]) -> Dict[mx.Context, List[Span]]:
    """The addresses of arrays, by device."""
    result: Dict[mx.Context, List[Span]] = {}
    for array in arrays:
        address = ctypes.c_void_p()
        check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))
        if address.value and array.size:
            end = address.value + array.size * np.dtype(array.dtype).itemsize
            result.setdefault(array.context, []).append((address.value, end))
    return result


def _union(spans: List[Span]) -> List[Span]:
    """The same addresses as spans that do not overlap."""
    result: List[Span] = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def _size(spans: List[Span]) -> int:
    return sum(end - begin for begin, end in spans)


__all__ = ["DeviceMemory", "measure"]
