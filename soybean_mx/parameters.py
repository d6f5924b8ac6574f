"""Gluon parameters whose data and gradients lie in tiles on several devices.

A parameter becomes *tiled* when a tiled block first uses it: its class is exchanged for a subclass that
:func:`tile` makes of :class:`TiledParameter` and the parameter's own class. To the program it stays the parameter that
it was. ``list_ctx()`` is the user's context; ``data()`` and ``grad()`` give whole arrays there, ``list_data()`` and
``list_grad()`` give the tiles themselves.

**Coherence.** A program may change the arrays that ``data()`` and ``grad()`` gave it, at any later time, and expects
to see in them what training does. So a whole array that was handed out, and that something besides this module still
refers to, is written back to the tiles before they are read (:func:`write_back`), and filled again after they have
changed (:func:`refresh`). A whole array that nobody else refers to is written back once more and forgotten. A program
that never asks for whole arrays pays nothing. What is lost: a change made through a *view* (``data()[0:2]``) when the
array that it is a view of has been dropped and a step was made in between.

**Gradients of recorded expressions.** A whole array of a parameter with gradient is a variable on MXNet's tape, so
that an expression recorded on it (an L2 penalty) is differentiated; after a backward pass :func:`collect_recorded`
moves that gradient to the tiles.
"""
from __future__ import annotations

import functools
import sys
import weakref
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Type

import mxnet as mx
from mxnet import autograd
from mxnet.gluon.parameter import Parameter, ParameterDict
from mxnet.ndarray import NDArray

from soybean_mx import regions as tiles_of
from soybean_mx.regions import Region, Shape, empty, legacy, like

# Parameters of which a whole array was handed out and may be in use.
_handed_out: Set["TiledParameter"] = set()
# Auxiliary states of which some tiles are newer than others (see TiledParameter.changed_tiles).
_uneven: Set["TiledParameter"] = set()


class Layout:
    """Where the tiles of one parameter are.

    Parameters
    ----------
    shape : sequence of int
        The whole parameter's shape.
    contexts : sequence of mxnet.Context
        The contexts of all devices.
    places : iterable of (int, Region)
        Device index and region of each tile. Equal regions on several devices are copies of each other.
    """

    def __init__(self, shape: Sequence[int], contexts: Sequence[mx.Context], places: Iterable[Tuple[int, Region]]):
        self.shape: Shape = tuple(shape)
        self.contexts = list(contexts)
        self.places: List[Tuple[int, Region]] = list(places)
        self.cover = tiles_of.cover(self.regions, self.shape)

    @property
    def regions(self) -> List[Region]:
        """The region of each tile."""
        return [region for _, region in self.places]

    def context(self, position: int) -> mx.Context:
        """The context of a tile."""
        return self.contexts[self.places[position][0]]

    def has_copies(self) -> bool:
        """Whether some elements are held by more than one tile."""
        return len(self.cover) < len(self.places)

    def gather(self, tiles: Sequence[NDArray], whole: NDArray) -> None:
        """Write the tiles that cover the parameter into a whole array."""
        for position in self.cover:
            tiles_of.copy_out(tiles[position], self.places[position][1], whole)

    def scatter(self, whole: NDArray, tiles: Sequence[NDArray]) -> None:
        """Write every tile's region of a whole array into it."""
        for (_, region), tile in zip(self.places, tiles):
            tiles_of.overwrite(whole, region, tile)

    def scatter_thriftily(self, whole: NDArray, tiles: Sequence[NDArray]) -> None:
        """:meth:`scatter`, waiting for each tile: so that no two pieces on the way are in memory at once."""
        with autograd.pause():
            for (_, region), tile in zip(self.places, tiles):
                tiles_of.overwrite(whole, region, tile)
                tile.wait_to_read()

    def empty(self, dtype: type) -> List[NDArray]:
        """New tiles without values."""
        return [empty(region.shape, self.context(position), dtype) for position, (_, region) in enumerate(self.places)]

    def cut(self, whole: NDArray) -> List[NDArray]:
        """New tiles with the values of a whole array."""
        result = self.empty(whole.dtype)
        self.scatter(whole, result)
        return result


class _Whole:
    """A whole array that was handed out, and for data the gradient that MXNet's tape writes for it."""

    def __init__(self, array: NDArray, tape_gradient: Optional[NDArray] = None, recorded: bool = False):
        self.array = array
        self.tape_gradient = tape_gradient
        self.recorded = recorded  # an expression on the tape may refer to it until a backward pass is done
        self.outdated = False  # the tiles have changed since
        self.tiles_win = False  # the tiles themselves were handed out later, and may change at any time

    def in_use(self) -> bool:
        """Whether anything but this object refers to the array."""
        return self.recorded or sys.getrefcount(self.array) > 2  # our attribute, and getrefcount's argument


def write_back() -> None:
    """Bring into the tiles what the program may have changed in whole arrays. Call before tiles are read."""
    for parameter in list(_handed_out):
        parameter._write_back()


def refresh() -> None:
    """Bring into handed-out whole arrays what has changed in the tiles. Call after tiles have changed."""
    for parameter in list(_handed_out):
        parameter._refresh()


def begin_backward() -> None:
    """Prepare handed-out arrays for a backward pass on MXNet's tape."""
    for parameter in _handed_out:
        whole = parameter._whole_data
        if whole is not None and whole.tape_gradient is not None:
            whole.array._fresh_grad = False
            if parameter.grad_req == "add":  # so that what the pass adds can be told from what was there
                mx.nd.zeros_like(legacy(whole.tape_gradient), out=legacy(whole.tape_gradient))
                parameter._outdate_gradient()


def collect_recorded(backward_pass: object) -> None:
    """After a backward pass on MXNet's tape: move gradients of recorded whole arrays to the tiles."""
    for parameter in list(_handed_out):
        whole = parameter._whole_data
        if whole is not None:
            if whole.recorded and parameter._grad is None:
                parameter._write_back()  # a BatchNorm outside of tiled blocks moves its statistics in this pass
            whole.recorded = False
            if whole.tape_gradient is not None and whole.array._fresh_grad:
                whole.array._fresh_grad = False
                parameter.accumulate(legacy(whole.tape_gradient), backward_pass)


def even_out(needed: Dict["TiledParameter", Set[int]]) -> None:
    """Bring tiles of auxiliary states that one graph changed and another reads up to date.

    Parameters
    ----------
    needed : dict of TiledParameter to set of int
        The positions of the tiles that are about to be used.
    """
    for parameter in [parameter for parameter in _uneven if parameter in needed]:
        if not needed[parameter] <= parameter._newest:
            parameter._even_out()


class TiledParameter:
    """What a tiled parameter has beyond :class:`mxnet.gluon.Parameter`, as a mixin over its class.

    ``_data`` and ``_grad`` hold tiles, so that MXNet's own code that goes through all of them (zeroing, casting,
    checks for staleness) works on tiles; ``_ctx_list`` stays the user's.
    """

    _plain_class: Type[Parameter]

    def _start_tiled(self, layout: Layout, data: List[NDArray], gradients: Optional[List[NDArray]]) -> None:
        self._layout = layout
        self._whole_data: Optional[_Whole] = None
        self._whole_gradient: Optional[_Whole] = None
        self._last_pass: Optional[object] = None
        self._newest: Set[int] = set(range(len(data)))
        self._diverges = False
        self._set_tiles(data, gradients)

    def _set_tiles(self, data: List[NDArray], gradients: Optional[List[NDArray]]) -> None:
        self._data = [like(tile, self._numpy_like) for tile in data]
        self._grad = None
        if gradients is not None:
            self._grad = [like(tile, self._numpy_like) for tile in gradients]
            autograd.mark_variables(self._data, self._grad, self.grad_req)

    # -- tiles, for the runtime ------------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """Where the tiles are; another object after every change."""
        return self._layout

    def tiles(self) -> List[NDArray]:
        """The tiles, as legacy arrays."""
        return [legacy(tile) for tile in self._data]

    def gradient_tiles(self) -> Optional[List[NDArray]]:
        """The tiles of the gradient, as legacy arrays; None without gradient."""
        return None if self._grad is None else [legacy(tile) for tile in self._grad]

    def _outdate_gradient(self) -> None:
        if self._whole_gradient is not None:
            self._whole_gradient.outdated = True

    def updated(self) -> None:
        """Note that the tiles have been changed."""
        if self._whole_data is not None:
            self._whole_data.outdated = True

    def reached(self, backward_pass: object) -> None:
        """Note that a backward pass has written the gradient."""
        self._outdate_gradient()
        self._last_pass = backward_pass
        for tile in self._data:
            tile._fresh_grad = True

    def was_reached(self, backward_pass: object) -> bool:
        """Whether a backward pass has written the gradient already, so that more is to be added to it."""
        return self._last_pass is backward_pass

    def accumulate(self, gradient: NDArray, backward_pass: object) -> None:
        """Take a whole gradient into the tiles, as ``grad_req`` says."""
        adds = self.grad_req == "add" or self.was_reached(backward_pass)
        for (_, region), tile in zip(self._layout.places, self.gradient_tiles() or ()):
            (tiles_of.add_in if adds else tiles_of.overwrite)(gradient, region, tile)
        self.reached(backward_pass)

    def changed_tiles(self, positions: Set[int], diverges: bool = False) -> None:
        """Note that operators have changed some tiles of an auxiliary state, and copies elsewhere are out of date.

        Parameters
        ----------
        positions : set of int
            The tiles that are up to date now.
        diverges : bool
            Whether copies of the same region may differ, each with the statistics of its own device's samples; their
            mean is the value then, as in MXNet's data parallelism.
        """
        self.updated()
        self._diverges = diverges
        if diverges or len(positions) < len(self._data):
            self._newest = set(positions)
            _uneven.add(self)

    def _even_out(self) -> None:
        """Give all tiles the value that the newest ones hold."""
        whole = self._empty(self._context)
        self._gather(whole)
        self._layout.scatter(whole, self.tiles())
        self._newest = set(range(len(self._data)))
        self._diverges = False
        _uneven.discard(self)

    def _gather(self, whole: NDArray) -> None:
        """Write the parameter's value into a whole array."""
        tiles, places = self.tiles(), self._layout.places
        if len(self._newest) == len(tiles) and not self._diverges:
            self._layout.gather(tiles, whole)
            return
        newest = sorted(self._newest)
        chosen = tiles_of.cover([places[position][1] for position in newest], self._layout.shape)
        for position in (newest[index] for index in chosen):
            tile, region = tiles[position], places[position][1]
            copies = [tiles[other] for other in newest if places[other][1] == region]
            if self._diverges and len(copies) > 1:
                tile = mx.nd.add_n(*[copy.as_in_context(whole.context) for copy in copies]) / len(copies)
            tiles_of.copy_out(tile, region, whole)

    def extend(self, places: Iterable[Tuple[int, Region]]) -> None:
        """Hold further copies of parts of an auxiliary state, for a graph that reads them on other devices."""
        new = [place for place in places if place not in self._layout.places]
        if not new:
            return
        with autograd.pause():
            self._write_back()
            whole = self._empty(self._context)
            self._gather(whole)
            added = Layout(self._layout.shape, self._layout.contexts, self._layout.places + new)
            tiles = self.tiles()
            for _, region in new:
                tiles.append(empty(region.shape, added.context(len(tiles)), tiles[0].dtype))
                tiles_of.copy_in(whole, region, tiles[-1])
            self._newest |= set(range(len(self._data), len(tiles)))
            self._layout = added
            self._data = [like(tile, self._numpy_like) for tile in tiles]

    def _empty(self, context: mx.Context) -> NDArray:
        """A new whole array of the parameter's shape and type."""
        return empty(self._layout.shape, context, self._data[0].dtype)

    # -- whole arrays, for the program -----------------------------------------------------------------------------

    @property
    def _context(self) -> mx.Context:
        return self._ctx_list[0]

    def _check_and_get(self, arr_list, ctx):
        if ctx is list or arr_list is None:
            return super()._check_and_get(arr_list, ctx)
        if ctx is not None and ctx != self._context:
            raise RuntimeError(f"Parameter '{self.name}' was not initialized on context {ctx}. It was only "
                               f"initialized on {self._ctx_list}.")
        return self._hand_out_gradient() if arr_list is self._grad else self._hand_out_data()

    def _hand_out_data(self) -> NDArray:
        with autograd.pause():
            self._write_back()
            if self._whole_data is None:
                array = self._empty(self._context)
                self._gather(array)
                self._whole_data = _Whole(_owned(array, self))
                self._mark_whole()
        whole = self._whole_data
        whole.tiles_win = False
        whole.recorded = whole.recorded or autograd.is_recording()
        _handed_out.add(self)
        return whole.array

    def _mark_whole(self) -> None:
        whole = self._whole_data
        if whole is not None and self._grad is not None:
            gradient = self._empty(self._context)
            whole.tape_gradient = like(gradient, self._numpy_like)
            autograd.mark_variables([whole.array], [whole.tape_gradient], self.grad_req)
            whole.array._fresh_grad = False

    def _hand_out_gradient(self) -> NDArray:
        with autograd.pause():
            self._write_back()
            if self._whole_gradient is None:
                array = self._empty(self._context)
                self._layout.gather(self.gradient_tiles(), array)
                self._whole_gradient = _Whole(like(array, self._numpy_like))
        self._whole_gradient.tiles_win = False
        _handed_out.add(self)
        return self._whole_gradient.array

    def _adopt_whole(self, array: NDArray, gradient: Optional[NDArray], recorded: bool) -> None:
        """Keep whole arrays that were handed out before the parameter became tiled."""
        self._whole_data = _Whole(array, gradient, recorded)
        if gradient is not None:
            self._whole_gradient = _Whole(gradient)
        _handed_out.add(self)

    def _sides(self):
        """Each handed-out whole array with its tiles, and how to bring it up to date."""
        if self._whole_data is not None:
            yield self._whole_data, self.tiles(), self._gather
        if self._whole_gradient is not None and self._grad is not None:
            tiles = self.gradient_tiles()
            yield self._whole_gradient, tiles, lambda whole: self._layout.gather(tiles, whole)

    def _write_back(self) -> None:
        with autograd.pause():
            for whole, tiles, gather in self._sides():
                if whole.tiles_win or whole.outdated:
                    self._fill(whole, gather)
                else:
                    if whole is self._whole_data:
                        self._newest, self._diverges = set(range(len(tiles))), False
                        _uneven.discard(self)
                    self._layout.scatter(legacy(whole.array), tiles)
        self._forget_unused()

    def _refresh(self) -> None:
        self._forget_unused()
        with autograd.pause():
            for whole, _, gather in self._sides():
                if whole.outdated:
                    self._fill(whole, gather)

    def _fill(self, whole: _Whole, gather: Callable[[NDArray], None]) -> None:
        """Bring a whole array up to date. By way of a new one: others may have given it a layout of their own."""
        value = self._empty(self._context)
        gather(value)
        tiles_of.overwrite(value, Region.whole(value.shape), legacy(whole.array))
        whole.outdated = False

    def _forget_unused(self) -> None:
        if self._whole_data is not None and not self._whole_data.in_use():
            self._whole_data = None
        if self._whole_gradient is not None and not self._gradient_in_use():
            self._whole_gradient = None
        if self._whole_data is None and self._whole_gradient is None:
            _handed_out.discard(self)

    def _gradient_in_use(self) -> bool:
        """An adopted gradient is also where the tape writes, so another reference of ours."""
        data = self._whole_data
        return self._whole_gradient.in_use() if data is None or data.tape_gradient is not self._whole_gradient.array \
            else True

    # -- what a Parameter does -------------------------------------------------------------------------------------

    def list_data(self):
        """The tiles themselves, of which each holds a part of the parameter on one device."""
        self._write_back()
        if self._whole_data is not None:
            self._whole_data.tiles_win = True
        return list(super().list_data())

    def list_grad(self):
        """The tiles of the gradient themselves; changes in place take effect."""
        result = super().list_grad()
        self._write_back()
        if self._whole_gradient is not None:
            self._whole_gradient.tiles_win = True
        return list(result)

    def _reduce(self):
        with autograd.pause():
            self._write_back()
            whole = self._empty(mx.cpu())
            self._gather(whole)
            return like(whole, mx.util.is_np_array())

    def set_data(self, data):
        """Set the parameter's value; a wrong shape is refused before anything is changed."""
        self.shape = data.shape
        if not isinstance(data, NDArray):
            data = mx.nd.array(data, ctx=self._context, dtype=self._data[0].dtype)
        with autograd.pause():
            data = legacy(data).astype(self._data[0].dtype, copy=False)
            self._layout.scatter(data, self.tiles())
            self._newest, self._diverges = set(range(len(self._data))), False
            _uneven.discard(self)
            self.updated()
            self._refresh()

    def zero_grad(self):
        """Set the gradient to 0 on all devices."""
        if self._grad is None:
            return
        for tile in self.gradient_tiles():
            mx.nd.zeros_like(tile, out=tile)
        self._outdate_gradient()
        self._refresh()

    @property
    def grad_req(self):
        return super().grad_req

    @grad_req.setter
    def grad_req(self, req):
        before = self.grad_req
        self._write_back()
        _base_property(self, "grad_req").fset(self, req)
        if self.grad_req != before:
            self._whole_gradient = None
            if self._whole_data is not None:
                self._whole_data.tape_gradient = None
                self._mark_whole()
            self._restructured()

    @property
    def dtype(self):
        return super().dtype

    @dtype.setter
    def dtype(self, dtype):
        self.cast(dtype)

    def cast(self, dtype):
        """Cast data and gradient to another type."""
        self._write_back()
        self._whole_data = self._whole_gradient = None
        _handed_out.discard(self)
        super().cast(dtype)
        self._restructured()

    def reset_ctx(self, ctx):
        """Give up the tiles, and hold the whole parameter on another context."""
        whole = self._reduce()
        self._untile([whole], [whole.context])
        self.reset_ctx(ctx)

    def initialize(self, init=None, ctx=None, default_init=None, force_reinit=False):
        """As of a Parameter; with ``force_reinit`` the tiles are given up."""
        default = {} if default_init is None else {"default_init": default_init}
        if force_reinit:
            self._untile(None, self._ctx_list)
            self.initialize(init, ctx, force_reinit=True, **default)
        else:
            super().initialize(init, ctx, force_reinit=False, **default)

    def _untile(self, data: Optional[List[NDArray]], contexts: List[mx.Context]) -> None:
        """Become an ordinary parameter with these arrays (whole, one per context) and no gradient."""
        _handed_out.discard(self)
        _uneven.discard(self)
        self._restructured()
        self.__class__ = self._plain_class
        for name in ("_layout", "_whole_data", "_whole_gradient", "_last_pass", "_newest", "_diverges"):
            del self.__dict__[name]
        self._data, self._grad = data, None
        self._ctx_list = list(contexts)
        self._ctx_map = _context_map(contexts)

    def _restructured(self) -> None:
        """The arrays are others now: graphs that are bound to them must be bound again."""
        for graph in list(self._soybean_users):
            graph.parameters_changed()

    def __reduce_ex__(self, protocol):
        """Copies and pickles are ordinary parameters with the whole value."""
        state = {name: value for name, value in self.__dict__.items() if name not in _RUNTIME_STATE}
        state["_data"] = [self._reduce().as_in_context(self._context)]
        state["_grad"] = None
        if self._grad is not None:
            whole = self._empty(self._context)
            self._layout.gather(self.gradient_tiles(), whole)
            state["_grad"] = [like(whole, self._numpy_like)]
        return _copied, (self._plain_class, state)

    def __deepcopy__(self, memo):
        import copy

        build, (plain, state) = self.__reduce_ex__(4)
        result = plain.__new__(plain)
        memo[id(self)] = result
        result.__dict__.update(copy.deepcopy(state, memo))
        return result


_RUNTIME_STATE = {"_layout", "_whole_data", "_whole_gradient", "_last_pass", "_newest", "_diverges",
                  "_soybean_users", "_numpy_like"}


def _copied(plain: Type[Parameter], state: dict) -> Parameter:
    result = plain.__new__(plain)
    result.__dict__.update(state)
    return result


def _base_property(parameter: TiledParameter, name: str) -> property:
    """The property that the parameter's own class, without tiles, has."""
    for base in parameter._plain_class.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    raise AttributeError(name)


def _context_map(contexts: Sequence[mx.Context]) -> List[List[Optional[int]]]:
    """MXNet's map from (device kind, device number) to the position in the list of contexts."""
    result: List[List[Optional[int]]] = [[], []]
    for position, context in enumerate(contexts):
        numbers = result[context.device_typeid & 1]
        numbers.extend([None] * (context.device_id + 1 - len(numbers)))
        numbers[context.device_id] = position
    return result


class _OwnedArray(NDArray):
    """A whole array of a parameter, whose ``grad`` is the parameter's."""

    __slots__ = ["_owner"]

    @property
    def grad(self):
        """The parameter's gradient."""
        return self._owner.grad()


class _OwnedNumpyArray(mx.np.ndarray):
    """The same for MXNet's numpy mode."""

    @property
    def grad(self):
        """The parameter's gradient."""
        return self._owner.grad()


_OwnedArray.__name__ = "NDArray"  # as it prints
_OwnedNumpyArray.__name__ = "ndarray"


def _owned(array: NDArray, parameter: TiledParameter) -> NDArray:
    """The array, taken over by an object that knows its parameter."""
    array = like(array, parameter._numpy_like)
    result = (_OwnedNumpyArray if parameter._numpy_like else _OwnedArray)(array.handle)
    array.handle = None
    result._owner = weakref.proxy(parameter)
    return result


_tiled_classes: Dict[type, type] = {}


def _tiled_class(plain: Type[Parameter]) -> type:
    if plain not in _tiled_classes:
        _tiled_classes[plain] = type("Tiled" + plain.__name__, (TiledParameter, plain), {"_plain_class": plain})
    return _tiled_classes[plain]


def type_of(parameter: Parameter) -> Tuple[Shape, type]:
    """Shape and numpy type of an initialised parameter; one loaded from a file may not know its shape itself."""
    shape = parameter.layout.shape if is_tiled(parameter) else parameter._data[0].shape
    return shape, parameter._data[0].dtype


def is_tiled(parameter: Parameter) -> bool:
    """Whether a parameter lies in tiles."""
    return isinstance(parameter, TiledParameter)


def install() -> None:
    """Patch what MXNet's own code does with parameters. Calling it again does nothing.

    ``ParameterDict.zero_grad`` zeroes handed-out whole gradients too. And a parameter notes when its arrays are
    fetched while recording: expressions on them may be on the tape when it becomes tiled.
    """
    original = ParameterDict.zero_grad
    if hasattr(original, "__wrapped__"):
        return
    fetch = Parameter._check_and_get

    @functools.wraps(fetch)
    def check_and_get(self, arr_list, ctx):
        if autograd.is_recording():
            self._soybean_recorded = True
        return fetch(self, arr_list, ctx)

    Parameter._check_and_get = check_and_get

    @functools.wraps(original)
    def zero_grad(self):
        original(self)
        for parameter in self.values():
            if is_tiled(parameter) and parameter in _handed_out:
                parameter.zero_grad()

    ParameterDict.zero_grad = zero_grad


class Cut:
    """New tiles of a parameter that are not in force yet, so that a failure leaves the parameter as it is.

    The tiles of a parameter that is not tiled yet get their values on :meth:`commit` only. Until then they are memory
    that nothing has touched, and one parameter after the other exchanges its whole arrays for tiles.

    Parameters
    ----------
    parameter : mxnet.gluon.Parameter
        An initialised parameter, tiled (otherwise) or not.
    layout : Layout
        Where its tiles are to be.
    """

    def __init__(self, parameter: Parameter, layout: Layout):
        self.parameter, self.layout = parameter, layout
        self._gradients: Optional[List[NDArray]] = None
        with autograd.pause():
            if is_tiled(parameter):
                self._data, self._gradients = self._cut_again()
            else:
                self._data = layout.empty(parameter._data[0].dtype)
                if parameter._grad is not None:
                    self._gradients = layout.empty(parameter._grad[0].dtype)

    def _cut_again(self):
        parameter = self.parameter
        parameter._write_back()
        whole = parameter._empty(parameter._context)
        parameter._gather(whole)
        data, gradients = self.layout.cut(whole), None
        if parameter._grad is not None:
            parameter.layout.gather(parameter.gradient_tiles(), whole)
            gradients = self.layout.cut(whole)
        return data, gradients

    def tiles(self) -> List[NDArray]:
        """The new tiles."""
        return self._data

    def gradient_tiles(self) -> Optional[List[NDArray]]:
        """The new tiles of the gradient; None without gradient."""
        return self._gradients

    def commit(self) -> None:
        """Make the parameter hold the new tiles. It cannot fail."""
        parameter = self.parameter
        fresh = bool(parameter._grad) and parameter._data[0]._fresh_grad
        if is_tiled(parameter):
            self._replace()
        else:
            self._become_tiled()
        if fresh:
            for tile in parameter._data:
                tile._fresh_grad = True

    def _replace(self) -> None:
        parameter = self.parameter
        parameter._layout = self.layout
        parameter._newest, parameter._diverges = set(range(len(self._data))), False
        _uneven.discard(parameter)
        parameter._set_tiles(self._data, self._gradients)
        parameter._restructured()

    def _become_tiled(self) -> None:
        parameter = self.parameter
        array = parameter._data[0]
        gradient = None if parameter._grad is None else parameter._grad[0]
        parameter._data = parameter._grad = None
        recorded = gradient is not None and parameter.__dict__.get("_soybean_recorded", False)
        self.layout.scatter_thriftily(legacy(array), self._data)
        if gradient is not None:
            self.layout.scatter_thriftily(legacy(gradient), self._gradients)
        # Our two names and getrefcount's argument each; with more, the program holds the array.
        held = sys.getrefcount(array) > 2 or (gradient is not None and sys.getrefcount(gradient) > 2)
        parameter._numpy_like = isinstance(array, mx.np.ndarray)
        parameter.__dict__.setdefault("_soybean_users", weakref.WeakSet())
        parameter.__class__ = _tiled_class(type(parameter))
        parameter._start_tiled(self.layout, self._data, self._gradients)
        if held or recorded:
            parameter._adopt_whole(array, gradient, recorded)
