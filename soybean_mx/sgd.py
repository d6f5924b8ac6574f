"""SGD over tiles, with everything prepared that does not change from step to step.

A model has many tiles, and MXNet's Python takes 25 to 50 us to queue the update of one: looking up attributes,
converting arrays and numbers. Here each operator's arrays are converted once, and its numbers when they change, so that
a call takes a few microseconds.
"""
from __future__ import annotations

import ctypes
import functools
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
from mxnet import optimizer as optimizers
from mxnet.base import _LIB, NDArrayHandle, c_handle_array, c_str, c_str_array, check_call
from mxnet.ndarray import NDArray

from soybean_mx.parameters import Layout

# Tiles of one device that are updated in one operator, where the user did not ask for more: there are many tiles, and
# queueing an operator costs more than a small update (the operator takes 60 at most).
GROUP = 16
# On CPUs, tiles of at least this many elements are updated one by one: MXNet's operator for several tensors goes
# through them element by element, seven times slower than the one for one tensor (8 Mi elements, measured), and starts
# when the last of the gradients is there.
LARGE = 1 << 16


class Member(NamedTuple):
    """A parameter to be updated: its index in the trainer, and its tiles."""

    index: int
    data: List[NDArray]
    gradients: List[NDArray]
    states: List[Any]
    layout: Layout


class Tile(NamedTuple):
    """What one update changes; the index is its parameter's in the trainer."""

    index: int
    data: NDArray
    gradient: NDArray
    momentum: Optional[NDArray]
    master: Optional[NDArray] = None  # the copy in single precision, where there is one


@functools.lru_cache(maxsize=None)
def _operator(name: str) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(handle)))
    return handle


class TileUpdate:
    """One operator on fixed arrays."""

    def __init__(self, tiles: Sequence[Tile]):
        self.indices = [tile.index for tile in tiles]
        self._several = len(tiles) > 1
        first = tiles[0]
        self._operator = _operator(("multi_" if self._several else "") + ("mp_" if first.master is not None else "")
                                   + ("sgd_update" if first.momentum is None else "sgd_mom_update"))
        arrays = [array for tile in tiles for array in tile[1:] if array is not None]
        outputs = [tile.data for tile in tiles]
        self._held = (arrays, outputs)  # as long as their handles are
        self._inputs, self._input_count = c_handle_array(arrays), ctypes.c_int(len(arrays))
        self._output_array = c_handle_array(outputs)
        self._output_count = ctypes.c_int(len(outputs))
        self._outputs = ctypes.cast(self._output_array, ctypes.POINTER(NDArrayHandle))
        self._storage_types = ctypes.POINTER(ctypes.c_int)()
        self._numbers: Any = None
        self._keys = self._values = self._count = None

    def __call__(self, rates: Sequence[float], decays: Sequence[float], rest: Tuple[Tuple[str, float], ...]) -> None:
        """Queue it, with a learning rate and a weight decay for each tile."""
        if (rates, decays, rest) != self._numbers:
            self._numbers = (rates, decays, rest)
            self._write(rates, decays, rest)
        check_call(_LIB.MXImperativeInvokeEx(
            self._operator, self._input_count, self._inputs, ctypes.byref(self._output_count),
            ctypes.byref(self._outputs), self._count, self._keys, self._values, ctypes.byref(self._storage_types)))

    def _write(self, rates: Sequence[float], decays: Sequence[float], rest: Tuple[Tuple[str, float], ...]) -> None:
        """The numbers as the operator takes them."""
        if self._several:
            own = {"lrs": tuple(rates), "wds": tuple(decays), "num_weights": len(rates)}
        else:
            own = {"lr": rates[0], "wd": decays[0]}
        numbers = {**own, **dict(rest)}
        self._keys, self._values = c_str_array(list(numbers)), c_str_array([str(n) for n in numbers.values()])
        self._count = ctypes.c_int(len(numbers))


class PreparedUpdate:
    """The updates of some parameters by MXNet's SGD.

    Parameters
    ----------
    optimizer : mxnet.optimizer.SGD
        The trainer's own.
    members : sequence of Member
        All that is to be updated; as :func:`can_prepare` allows.
    """

    def __init__(self, optimizer: optimizers.SGD, members: Sequence[Member]):
        self._members = list(members)
        self._calls: List[TileUpdate] = []
        size = max(GROUP, optimizer.aggregate_num) if optimizer.aggregate_num > 1 else 1
        by_type: dict = {}
        for member in members:
            by_type.setdefault(member.data[0].dtype, []).append(member)
        for alike in by_type.values():
            for start in range(0, len(alike), size):
                self._add_group(alike[start:start + size], size)

    def _add_group(self, members: Sequence[Member], size: int) -> None:
        by_context: dict = {}
        for member in members:
            for position, (data, gradient, state) in enumerate(zip(member.data, member.gradients, member.states)):
                momentum, master = state if isinstance(state, tuple) else (state, None)
                tile = Tile(member.index, data, gradient, momentum, master)
                by_context.setdefault(member.layout.context(position), []).append(tile)
        for context, tiles in by_context.items():
            alone = [tile for tile in tiles if tile.data.size >= LARGE and context.device_type == "cpu"]
            self._calls.extend(TileUpdate([tile]) for tile in alone)
            rest = [tile for tile in tiles if tile.data.size < LARGE or context.device_type != "cpu"]
            # One context that stands for several devices has several tiles of a parameter.
            self._calls.extend(TileUpdate(rest[start:start + size]) for start in range(0, len(rest), size))

    def fits(self, members: Sequence[Member]) -> bool:
        """Whether these are the members, with the same arrays."""
        return len(members) == len(self._members) and all(
            a.index == b.index and a.layout is b.layout and a.states is b.states
            and _same(a.data, b.data) and _same(a.gradients, b.gradients) for a, b in zip(members, self._members))

    def __call__(self, optimizer: optimizers.SGD) -> None:
        """Queue one step: counts and learning rates advance as in the optimizer's own ``update``."""
        indices = [member.index for member in self._members]
        optimizer._update_count(indices)
        rates = dict(zip(indices, optimizer._get_lrs(indices)))
        decays = dict(zip(indices, optimizer._get_wds(indices)))
        numbers = [("rescale_grad", optimizer.rescale_grad)]
        if optimizer.momentum > 0:
            numbers.append(("momentum", optimizer.momentum))
        if optimizer.clip_gradient:
            numbers.append(("clip_gradient", optimizer.clip_gradient))
        rest = tuple(numbers)
        for call in self._calls:
            call([rates[index] for index in call.indices], [decays[index] for index in call.indices], rest)


def _same(some: Sequence[NDArray], others: Sequence[NDArray]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others))


def can_prepare(optimizer: mx.optimizer.Optimizer, members: Sequence[Member]) -> bool:
    """Whether :class:`PreparedUpdate` takes these: MXNet's SGD, and its own states."""
    if type(optimizer) is not optimizers.SGD or optimizer.aggregate_num == 0:
        return False
    wanted = NDArray if optimizer.momentum > 0 else type(None)
    momenta = (state[0] if isinstance(state, tuple) and len(state) == 2 else state
               for member in members for state in member.states)
    return all(isinstance(momentum, wanted) for momentum in momenta)
