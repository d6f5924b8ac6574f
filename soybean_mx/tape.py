"""The boundary between MXNet's autograd tape and tiled blocks.

A tiled block called under ``record()`` is not on the tape itself. Its outputs are: each is a *leaf*, a variable with
a gradient of its own, times one. The call is kept as a :class:`TiledCall` until a backward pass reaches a leaf of it;
then the call's executor differentiates it, and the gradients of its inputs go on into the tape behind them.

**One pass.** Let a backward pass start from heads with head gradients. Without tiled calls whose inputs are on the
tape, MXNet's own pass runs first, and then the calls whose leaves it reached, the latest first. With such calls,
the gradients of the leaves are found step by step, without touching any other gradient: the leaves reachable from the
heads; then, the latest call first, those reachable from the inputs of a call that has been differentiated. In the end
MXNet's own pass runs once, from the heads and from all those inputs together. So a variable used before and behind a
tiled block gets the whole sum, whatever its ``grad_req``, and whether the graph is kept is MXNet's own business. The
price: operators between two tiled blocks run their backward pass twice, of which a BatchNorm among them gives warning.

**Life time.** A call can be forgotten when nothing can reach its leaves any more: neither the program nor the tape.
MXNet does not tell. The one by which a leaf is multiplied does: its memory belongs to a token, an object that MXNet
releases with the last reference to the array, and the tape refers to the array for the multiplication's sake.
"""
from __future__ import annotations

import ctypes
import functools
import warnings
import weakref
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray import NDArray
from mxnet.ndarray import ndarray as _ndarray_module

from soybean_mx import parameters as tiled
from soybean_mx.executor import BoundGraph
from soybean_mx.parameters import TiledParameter
from soybean_mx.regions import legacy

_FLOATS = (np.float16, np.float32, np.float64)

_calls: List["TiledCall"] = []  # recorded calls that a backward pass may still reach, in the order of the calls
_original: Dict[str, Callable] = {}


class TapeError(RuntimeError):
    """A use of autograd that tiled blocks do not support, or a graph differentiated too often."""


class _Token:
    """An object whose death shows that MXNet has released every reference to some arrays."""

    __slots__ = ["__weakref__"]


class _Source(NamedTuple):
    """An input of a call whose gradient is wanted: its name, and an array at the same place of the tape."""

    name: str
    array: NDArray


class TiledCall:
    """One recorded run of a bound graph.

    Parameters
    ----------
    bound : BoundGraph
        What has run; it belongs to this call until :meth:`finish`.
    sources : sequence of (str, NDArray)
        Name and array of each input whose gradient is wanted.
    trained : sequence of TiledParameter
        The parameters whose gradients the graph writes.
    release : callable
        Takes the bound graph back.
    after_backward : callable
        Called after each backward pass of the graph: what else training changes (auxiliary states).
    """

    def __init__(self, bound: BoundGraph, sources: Sequence[Tuple[str, NDArray]], trained: Sequence[TiledParameter],
                 release: Callable[[BoundGraph], None], after_backward: Callable[[BoundGraph], None]):
        self.bound = bound
        self.sources = [_Source(name, _same_place(array)) for name, array in sources]
        self.trained = trained
        self.leaves: List[Optional[NDArray]] = []
        self._release = release
        self._after_backward = after_backward
        self._token: Callable[[], Optional[_Token]] = lambda: None
        self._leaf_names: Optional[List[Optional[str]]] = None
        self._runs = 0

    def put_on_tape(self, outputs: Sequence[NDArray], numpy_like: bool) -> List[NDArray]:
        """Make the outputs reachable for backward passes.

        Parameters
        ----------
        outputs : sequence of NDArray
            New legacy arrays with the outputs' values.
        numpy_like : bool
            Whether the program wants ``mx.np.ndarray``.

        Returns
        -------
        list of NDArray
            The arrays for the program.
        """
        token = _Token()
        self._token = weakref.ref(token)
        result = []
        for output in outputs:
            leaf, visible = (output, self._differentiable(output, token)) if output.dtype in _FLOATS else (None, output)
            self.leaves.append(leaf)
            result.append(visible.as_np_ndarray() if numpy_like else visible)
        _calls.append(self)
        return result

    def _differentiable(self, leaf: NDArray, token: _Token) -> NDArray:
        gradient = mx.nd.empty(leaf.shape, ctx=leaf.context, dtype=leaf.dtype)
        autograd.mark_variables([leaf], [gradient])
        leaf._fresh_grad = False
        one = _one(leaf.context, leaf.dtype, len(leaf.shape), token)
        with autograd.record(train_mode=None):
            return mx.nd.broadcast_mul(leaf, one) if leaf.shape else mx.nd.elemwise_mul(leaf, one)

    def is_reachable(self) -> bool:
        """Whether a backward pass may still come here."""
        return self._token() is not None

    def fresh_gradients(self) -> Optional[List[Optional[NDArray]]]:
        """The leaves' gradients that the last pass wrote; None when it wrote none."""
        gradients = [leaf.grad if leaf is not None and leaf._fresh_grad else None for leaf in self.leaves]
        return gradients if any(gradient is not None for gradient in gradients) else None

    def reset(self) -> None:
        """Take the leaves' gradients as seen."""
        for leaf in self.leaves:
            if leaf is not None:
                leaf._fresh_grad = False

    def leaf_names(self) -> List[Optional[str]]:
        """The leaves' names on the tape, which are unique."""
        if self._leaf_names is None:
            self._leaf_names = [None if leaf is None else autograd.get_symbol(leaf).name for leaf in self.leaves]
        return self._leaf_names

    def differentiate(self, gradients: Sequence[Optional[NDArray]], train_mode: bool,
                      backward_pass: object) -> List[NDArray]:
        """Run the graph backward: write the parameters' gradients, and return those of the sources.

        Parameters
        ----------
        gradients : sequence of NDArray or None
            The outputs' gradients; None stands for zeros.
        train_mode : bool
            As of ``autograd.backward``.
        backward_pass : object
            Identifies the pass: within one, gradients of a parameter add up.

        Returns
        -------
        list of NDArray
            The gradient of each source, on the source's context.

        Raises
        ------
        TapeError
            When the graph draws random numbers and has been differentiated before.
        """
        self._run_again_if_needed()
        again = [parameter for parameter in self.trained
                 if parameter.grad_req == "write" and parameter.was_reached(backward_pass)]
        before = [[tile.copy() for tile in parameter.gradient_tiles()] for parameter in again]
        self.bound.backward(gradients, train_mode)
        self._runs += 1
        for parameter, saved in zip(again, before):
            for tile, addend in zip(parameter.gradient_tiles(), saved):
                mx.nd.elemwise_add(tile, addend, out=tile)
        for parameter in self.trained:
            parameter.reached(backward_pass)
        self._after_backward(self.bound)
        return [self.bound.input_gradient(source.name, source.array.shape, source.array.context)
                for source in self.sources]

    def _run_again_if_needed(self) -> None:
        """The executor reuses the memory of the forward pass while it runs backward."""
        if self._runs == 0:
            return
        if self.bound.program.random:
            raise TapeError("A tiled block that draws random numbers (Dropout) was to be differentiated a second time "
                            "(retain_graph=True), which would need the same draws again: add the losses up and call "
                            "backward once, or run such a block with hybridize(False).")
        self.bound.forward()

    def finish(self) -> None:
        """Forget the call: its executor is free for others."""
        if self.bound is not None:
            self._release(self.bound)
            self.bound = None


def _same_place(array: NDArray) -> NDArray:
    """A legacy array with the same memory and the same place on the tape, whatever becomes of the given object."""
    handle = NDArrayHandle()
    check_call(_LIB.MXShallowCopyNDArray(array.handle, ctypes.byref(handle)))
    return NDArray(handle)


# -- tokens --------------------------------------------------------------------------------------------------------

_ones: Dict[Tuple[mx.Context, Any], Tuple[NDArray, ctypes.c_void_p]] = {}


def _one(context: mx.Context, dtype, dims: int, token: _Token) -> NDArray:
    """An array with the single element 1, whose last reference takes one of the token's with it.

    All of them share the memory of one array; only their owners differ. This is how MXNet itself keeps numpy arrays
    alive that it works on (``from_numpy``).
    """
    key = (context, dtype)
    if key not in _ones:
        base = mx.nd.ones((1,), ctx=context, dtype=dtype)
        base.wait_to_read()
        pointer = ctypes.c_void_p()
        check_call(_LIB.MXNDArrayGetData(base.handle, ctypes.byref(pointer)))
        _ones[key] = (base, pointer)
    module = _ndarray_module
    managed = module.DLManagedTensor()
    tensor = managed.dl_tensor
    tensor.data = _ones[key][1]
    tensor.ctx = module.DLContext(2 if context.device_type == "gpu" else 1, context.device_id)
    tensor.ndim = dims
    tensor.dtype = module.DLDataType.TYPE_MAP[np.dtype(dtype).name]
    tensor.shape = (ctypes.c_int64 * max(dims, 1))(*[1] * dims)
    owner = ctypes.py_object(token)
    ctypes.pythonapi.Py_IncRef(owner)
    managed.manager_ctx = ctypes.c_void_p.from_buffer(owner)
    managed.deleter = module.dl_managed_tensor_deleter
    handle = NDArrayHandle()
    check_call(_LIB.MXNDArrayFromDLPackEx(ctypes.byref(managed), True, ctypes.byref(handle)))
    return NDArray(handle)


# -- what is on the tape -------------------------------------------------------------------------------------------


def is_on_tape(array: NDArray) -> bool:
    """Whether an array is a variable with gradient, or was computed while recording.

    Setting an array's gradient state fails for arrays that are not on the tape; it is set to what it was.
    """
    state = ctypes.c_int()
    check_call(_LIB.MXNDArrayGetGradState(array.handle, ctypes.byref(state)))
    return _LIB.MXNDArraySetGradState(array.handle, state) == 0


def pending_calls() -> List[TiledCall]:
    """The recorded calls that a backward pass may still reach; others are forgotten now."""
    dead = [call for call in _calls if not call.is_reachable()]
    for call in dead:
        _calls.remove(call)
        call.finish()
    return _calls


# -- backward passes -----------------------------------------------------------------------------------------------


def backward(heads, head_grads=None, retain_graph=False, train_mode=True):
    """``autograd.backward``, through tiled blocks too."""
    calls = list(pending_calls())
    if not calls and not tiled._handed_out:
        _original["backward"](heads, head_grads, retain_graph, train_mode)
        return
    heads = [heads] if isinstance(heads, NDArray) else list(heads)
    if head_grads is None:
        head_grads = [None] * len(heads)
    head_grads = [head_grads] if isinstance(head_grads, NDArray) else list(head_grads)
    assert len(heads) == len(head_grads), "heads and head_grads must be lists of the same length"
    backward_pass = object()
    reached: List[TiledCall] = []
    with autograd.pause():
        tiled.write_back()
        tiled.begin_backward()
        for call in calls:
            call.reset()
        try:
            if any(call.sources for call in calls):
                _chained(calls, heads, head_grads, retain_graph, train_mode, backward_pass, reached)
            else:
                _original["backward"](heads, head_grads, retain_graph, train_mode)
                _differentiate_fresh(calls, train_mode, backward_pass, reached)
            tiled.collect_recorded(backward_pass)
        finally:
            if not retain_graph:
                for call in reached:
                    _calls.remove(call)
                    call.finish()
            tiled.refresh()


def plain_backward(heads: Sequence[NDArray], head_grads: Sequence[NDArray], train_mode: bool) -> None:
    """MXNet's own ``autograd.backward``, for what a call itself has recorded while it is differentiated."""
    _original["backward"](list(heads), list(head_grads), False, train_mode)


def _differentiate_fresh(calls: Sequence[TiledCall], train_mode: bool, backward_pass: object,
                         reached: List[TiledCall]) -> None:
    for call in reversed(calls):
        gradients = call.fresh_gradients()
        if gradients is not None:
            reached.append(call)
            call.differentiate(gradients, train_mode, backward_pass)
            call.reset()


def _chained(calls: Sequence[TiledCall], heads: List[NDArray], head_grads: List[Optional[NDArray]], retain_graph: bool,
             train_mode: bool, backward_pass: object, reached: List[TiledCall]) -> None:
    """A pass in which tiled calls may feed each other, see the module's text."""
    waiting = list(calls)
    found: Dict[TiledCall, List[Optional[NDArray]]] = {}
    ends = _Ends(heads, head_grads)
    step_heads, step_grads = heads, head_grads
    while True:
        _find_leaf_gradients(waiting, step_heads, step_grads, train_mode, found)
        if not found:
            break
        call = max(found, key=waiting.index)
        gradients = found.pop(call)
        waiting.remove(call)
        reached.append(call)
        step_grads = call.differentiate(gradients, train_mode, backward_pass)
        step_heads = [source.array for source in call.sources]
        for head, gradient in zip(step_heads, step_grads):
            ends.add(head, gradient)
    _original["backward"](ends.heads, ends.gradients, retain_graph, train_mode)
    for call in reached:
        call.reset()


class _Ends:
    """Where a backward pass starts: heads, each place of the tape once, since MXNet does not add up repeated heads."""

    def __init__(self, heads: Sequence[NDArray], gradients: Sequence[Optional[NDArray]]):
        self.heads: List[NDArray] = list(heads)
        self.gradients: List[Optional[NDArray]] = list(gradients)
        self._index = {_place_name(head): index for index, head in enumerate(heads)}

    def add(self, head: NDArray, gradient: NDArray) -> None:
        """Start from a further head, or with more from one that is there."""
        index = self._index.setdefault(_place_name(head), len(self.heads))
        if index == len(self.heads):
            self.heads.append(head)
            self.gradients.append(gradient)
            return
        before = self.gradients[index]
        before = mx.nd.ones_like(gradient) if before is None else legacy(before)
        self.gradients[index] = before + gradient


def _place_name(array: NDArray) -> str:
    """A name of the array's place on the tape; operators and variables on it are numbered."""
    return autograd.get_symbol(array).list_outputs()[0]


def _find_leaf_gradients(waiting: Sequence[TiledCall], heads: Sequence[NDArray], grads: Sequence[Optional[NDArray]],
                         train_mode: bool, found: Dict[TiledCall, List[Optional[NDArray]]]) -> None:
    """Add to ``found`` what the heads contribute to the gradients of the waiting calls' leaves."""
    if not heads or not waiting:
        return
    tapes = [autograd.get_symbol(head) for head in heads]
    behind = {name for symbol in tapes for name in symbol.list_arguments()}
    targets = [(call, index) for call in waiting for index, name in enumerate(call.leaf_names()) if name in behind]
    if not targets:
        return
    if any(symbol.list_auxiliary_states() for symbol in tapes):
        _warn_of_statistics()
    gradients = _original["grad"](list(heads), [call.leaves[index] for call, index in targets], list(grads),
                                  retain_graph=True, create_graph=False, train_mode=train_mode)
    for (call, index), gradient in zip(targets, gradients):
        sums = found.setdefault(call, [None] * len(call.leaves))
        gradient = legacy(gradient)
        sums[index] = gradient if sums[index] is None else sums[index] + gradient


@functools.lru_cache(maxsize=None)  # once
def _warn_of_statistics() -> None:
    warnings.warn("A BatchNorm (or another operator with moving statistics) outside of tiled blocks has tiled blocks "
                  "both before and behind it, so its backward pass may run twice and move its statistics twice per "
                  "step: put it into a hybridized block.", stacklevel=7)


def _array_backward(self, out_grad=None, retain_graph=False, train_mode=True):
    """``NDArray.backward``, through tiled blocks too."""
    backward([self], None if out_grad is None else [out_grad], retain_graph, train_mode)


def _grad(heads, variables, head_grads=None, retain_graph=None, create_graph=False, train_mode=True):
    """``autograd.grad``, refused while a tiled block's recorded outputs are in use."""
    if pending_calls():
        what = "autograd.grad" + (" with create_graph=True" if create_graph else "")
        raise TapeError(f"{what} was called while outputs of a tiled block are on the tape, but tiled blocks are "
                        "differentiated by backward() alone: call attach_grad() on the variables and backward() on "
                        "the heads, or run the block with hybridize(False).")
    return _original["grad"](heads, variables, head_grads, retain_graph, create_graph, train_mode)


def install() -> None:
    """Make MXNet's backward passes go through tiled blocks. Calling it again does nothing."""
    if _original:
        return
    _original.update(backward=autograd.backward, grad=autograd.grad, array_backward=NDArray.backward)
    for name, replacement in (("backward", backward), ("grad", _grad)):
        replacement.__doc__ = _original[name].__doc__
        setattr(autograd, name, replacement)
    _array_backward.__doc__ = NDArray.backward.__doc__
    NDArray.backward = _array_backward


def inputs_with_gradient(inputs: Mapping[str, NDArray]) -> List[str]:
    """The names of the inputs that gradients are wanted for: those on the tape."""
    return [name for name, array in inputs.items() if array.dtype in _FLOATS and is_on_tape(array)]
