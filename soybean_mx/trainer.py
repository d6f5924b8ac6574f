"""``gluon.Trainer`` over tiled parameters.

Every tile is updated in place on its own device, and nothing is communicated. The optimizer is the trainer's own one:
its counts advance once per step, whatever the number of tiles. Optimizers that look at more than one element at a
time, or that are not known to look at one only, get the whole gathered tensor instead, and the result is cut again.

Saved states are MXNet's: whole tensors by parameter index, so a file fits any number of devices.
"""
from __future__ import annotations

import pickle
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import mxnet as mx
from mxnet import autograd
from mxnet import optimizer as optimizers
from mxnet.gluon import Trainer
from mxnet.ndarray import NDArray, multi_all_finite

from soybean_mx import parameters as tiled
from soybean_mx import sgd
from soybean_mx.files import write_bytes
from soybean_mx.parameters import Layout, TiledParameter, is_tiled
from soybean_mx.regions import Region, empty, legacy

_original: Dict[str, Callable] = {}

# MXNet's optimizers whose update of an element depends on that element alone (and on counts).
_ELEMENTWISE = {
    optimizers.SGD, optimizers.Signum, optimizers.FTML, optimizers.DCASGD, optimizers.NAG, optimizers.Adam,
    optimizers.AdaGrad, optimizers.RMSProp, optimizers.AdaDelta, optimizers.Ftrl, optimizers.Adamax,
    optimizers.Nadam, optimizers.Test, optimizers.ccSGD,
}
# MXNet's others need the whole tensor: norms (LARS, LAMB, LBSGD), row means (GroupAdaGrad), draws (SGLD).
_WHOLE = {optimizers.LARS, optimizers.LAMB, optimizers.LBSGD, optimizers.SGLD, optimizers.contrib.GroupAdaGrad}


class TrainerError(RuntimeError):
    """A use of Trainer that tiled parameters do not support."""


def is_elementwise(optimizer: optimizers.Optimizer) -> bool:
    """Whether an optimizer can update tiles one by one.

    Parameters
    ----------
    optimizer : mxnet.optimizer.Optimizer
        The optimizer. A user's own class says so with the attribute ``elementwise`` (True or False).

    Returns
    -------
    bool
        True for MXNet's own elementwise optimizers, and for those that say so.
    """
    kind = type(optimizer)
    if kind in _ELEMENTWISE or kind in _WHOLE:
        return kind in _ELEMENTWISE
    declared = getattr(optimizer, "elementwise", None)
    if declared is None:
        _warn_once(kind)
    return bool(declared)


_warned = set()


def _warn_once(kind: type) -> None:
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(f"soybean_mx does not know whether the optimizer {kind.__name__} treats every element by itself, "
                      "so it gathers each parameter for every update, which is slow: if it does, set "
                      f"{kind.__name__}.elementwise = True; if it does not, set it to False to silence this.",
                      stacklevel=6)


# -- states --------------------------------------------------------------------------------------------------------


class _TiledStates:
    """The optimizer's states of tiled parameters: by parameter index, a layout and one state per tile."""

    def __init__(self):
        self._held: Dict[int, Tuple[Layout, List[Any]]] = {}
        self.prepared: Optional[sgd.PreparedUpdate] = None

    def of(self, trainer: Trainer, index: int, parameter: TiledParameter) -> List[Any]:
        """The states of a parameter's tiles: those held, or cut from a whole one, or new ones."""
        layout = parameter.layout
        held = self._held.get(index)
        if held is not None and held[0] is layout:
            return held[1]
        updater = trainer._updaters[0]
        if held is not None:
            self.to_updater(trainer, index)
        if index in updater.states:
            states = cut_state(updater.states.pop(index), layout, parameter.name)
            updater.states_synced.pop(index, None)
        else:
            create = trainer._optimizer.create_state_multi_precision
            states = [create(index, tile) for tile in parameter.tiles()]
        self._held[index] = (layout, states)
        return states

    def to_updater(self, trainer: Trainer, index: int) -> None:
        """Turn a parameter's states into MXNet's whole one."""
        layout, states = self._held.pop(index)
        updater = trainer._updaters[0]
        updater.states[index] = whole_state(states, layout, trainer._contexts[0])
        updater.states_synced[index] = False

    def held(self, index: int) -> List[Any]:
        """The states of a parameter's tiles; none where there are none yet."""
        return self._held[index][1] if index in self._held else []

    def whole(self, context: mx.Context) -> Dict[int, Any]:
        """MXNet's whole states of all parameters held here."""
        return {index: whole_state(states, layout, context) for index, (layout, states) in self._held.items()}

    def indices(self) -> List[int]:
        """The indices of the parameters held here."""
        return list(self._held)

    def clear(self) -> None:
        """Forget all."""
        self._held.clear()
        self.prepared = None


def state_arrays(trainer: Trainer, parameters: Sequence[TiledParameter]) -> List[NDArray]:
    """The tiles of the optimizer's states of some parameters, as far as the trainer has made them.

    Parameters
    ----------
    trainer : mxnet.gluon.Trainer
        The trainer.
    parameters : sequence of TiledParameter
        The parameters.

    Returns
    -------
    list of NDArray
        All arrays of all states.
    """
    wanted = {parameter.name for parameter in parameters}
    return [array for index in _states_of(trainer).indices() if trainer._params[index].name in wanted
            for state in _states_of(trainer).held(index) for array in _arrays(state)]


def _arrays(state: Any) -> List[NDArray]:
    if isinstance(state, NDArray):
        return [state]
    return [array for part in state for array in _arrays(part)] if isinstance(state, (list, tuple)) else []


def cut_state(state: Any, layout: Layout, name: str) -> List[Any]:
    """A whole state as one state per tile: arrays of the parameter's shape are cut, everything else is repeated."""
    if isinstance(state, NDArray):
        state = legacy(state)
        if state.shape == layout.shape:
            return layout.cut(state)
        if state.size == 1:
            return [state.copyto(layout.context(position)) for position in range(len(layout.places))]
        raise TrainerError(f"The optimizer's state of parameter {name} has the shape {state.shape}, but only "
                           f"states of the parameter's shape {layout.shape} can be cut into tiles: set elementwise = "
                           "False on the optimizer, or load a file that fits the model.")
    if isinstance(state, (tuple, list)):
        parts = [cut_state(item, layout, name) for item in state]
        return [type(state)(items) for items in zip(*parts)] if parts else [state] * len(layout.places)
    return [state] * len(layout.places)


def whole_state(states: Sequence[Any], layout: Layout, context: mx.Context) -> Any:
    """The opposite of :func:`cut_state`."""
    first = states[0]
    if isinstance(first, NDArray):
        if all(state.shape == region.shape for state, region in zip(states, layout.regions)):
            whole = empty(layout.shape, context, first.dtype)
            layout.gather([legacy(state) for state in states], whole)
            return whole
        return first.as_in_context(context)
    if isinstance(first, (tuple, list)):
        return type(first)(whole_state(items, layout, context) for items in zip(*states))
    return first


def _states_of(trainer: Trainer) -> _TiledStates:
    if not hasattr(trainer, "_soybean_states"):
        trainer._soybean_states = _TiledStates()
    return trainer._soybean_states


# -- updates -------------------------------------------------------------------------------------------------------


def _update_tiles(trainer: Trainer, chosen: List[Tuple[int, TiledParameter]]) -> None:
    """Update parameters tile by tile, in groups as large as the optimizer takes at once."""
    optimizer, held = trainer._optimizer, _states_of(trainer)
    members = [sgd.Member(index, parameter.tiles(), parameter.gradient_tiles(), held.of(trainer, index, parameter),
                          parameter.layout) for index, parameter in chosen]
    optimizer._set_current_context(trainer._contexts[0].device_id)
    if sgd.can_prepare(optimizer, members):
        if held.prepared is None or not held.prepared.fits(members):
            held.prepared = sgd.PreparedUpdate(optimizer, members)
        held.prepared(optimizer)
        return
    by_type: Dict[Any, list] = {}
    for member in members:
        by_type.setdefault(member.data[0].dtype, []).append(member)
    size = max(1, optimizer.aggregate_num)
    for alike in by_type.values():
        for start in range(0, len(alike), size):
            _update_group(optimizer, alike[start:start + size])


def _update_group(optimizer, group: List[sgd.Member]) -> None:
    """Update some parameters' tiles, one device at a time.

    The optimizer keeps counts per parameter, and some keep other numbers (Nadam); each device's update starts from
    what they were before the group, and the last one's result stays. Where one context stands for several devices, its
    tiles of a parameter are those of several.
    """
    by_device: Dict[Tuple[mx.Context, int], list] = {}
    for index, data, gradients, states, layout in group:
        held: Dict[mx.Context, int] = {}
        for position in range(len(data)):
            context = layout.context(position)
            held[context] = held.get(context, -1) + 1
            by_device.setdefault((context, held[context]), []).append(
                (index, data[position], gradients[position], states[position]))
    before, counts = dict(optimizer.__dict__), dict(optimizer._index_update_count)
    for items in by_device.values():
        optimizer.__dict__.update(before)
        optimizer._index_update_count.clear()
        optimizer._index_update_count.update(counts)
        if optimizer.aggregate_num == 0:
            for item in items:
                optimizer.update_multi_precision(item[0], item[1], item[2], item[3])
            continue
        optimizer.update_multi_precision(*(list(column) for column in zip(*items)))
    # A group may have a parameter with no tile on the last device.
    for index in {index for index, *_ in group}:
        if optimizer._index_update_count.get(index) == counts.get(index):
            optimizer._update_count(index)


def _update_whole(trainer: Trainer, chosen: List[Tuple[int, TiledParameter]]) -> None:
    """Update parameters by way of whole arrays on the program's own device."""
    wholes = []
    for index, parameter in chosen:
        shape, dtype = tiled.type_of(parameter)
        data, gradient = (empty(shape, trainer._contexts[0], dtype) for _ in range(2))
        parameter.layout.gather(parameter.tiles(), data)
        parameter.layout.gather(parameter.gradient_tiles(), gradient)
        wholes.append((index, gradient, data))
    indices, gradients, data = (list(column) for column in zip(*wholes))
    trainer._updaters[0](indices, gradients, data)
    for (_, parameter), whole in zip(chosen, data):
        parameter.layout.scatter(whole, parameter.tiles())


def _update(self, ignore_stale_grad=False):
    if not any(is_tiled(parameter) for parameter in self._params):
        _return_states(self)
        _original["update"](self, ignore_stale_grad)
        return
    with autograd.pause():
        tiled.write_back()
        loss_scaler = getattr(self, "_amp_loss_scaler", None)
        if loss_scaler is not None and _has_overflow(loss_scaler, self._params):
            return
        plain, chosen = _collect(self, ignore_stale_grad)
        if chosen:
            update = _update_tiles if is_elementwise(self._optimizer) else _update_whole
            if update is _update_whole:
                _return_states(self, also_tiled=True)
            # In bulk, the first update would wait for the gradient of the last.
            with mx.engine.bulk(0):
                update(self, chosen)
            for _, parameter in chosen:
                parameter.updated()
        _return_states(self)
        if plain:
            self._updaters[0](*(list(column) for column in zip(*plain)))
        tiled.refresh()


def _collect(trainer: Trainer, ignore_stale_grad: bool):
    """What is to be updated: plain parameters as (index, gradient, data), and tiled ones as (index, parameter)."""
    plain, chosen = [], []
    for index, parameter in enumerate(trainer._params):
        if parameter.grad_req == "null":
            continue
        arrays = parameter._check_and_get(parameter._data, list)
        # The tiles of a parameter are fresh together.
        stale = [array for array in arrays[:1] if not array._fresh_grad]
        if stale and not ignore_stale_grad:
            raise UserWarning(
                f"Gradient of Parameter `{parameter.name}` on context {stale[0].context} has not been updated by "
                "backward since last `step`. This could mean a bug in your model that made it only use a subset of the "
                "Parameters (Blocks) for this iteration. If you are intentionally only using a subset, call step with "
                "ignore_stale_grad=True to suppress this warning and skip updating of Parameters with stale gradient")
        if stale:
            continue
        if is_tiled(parameter):
            chosen.append((index, parameter))
        else:
            plain.append((index, parameter._grad[0], arrays[0]))
    for _, parameter in chosen:
        for tile in parameter._data:
            tile._fresh_grad = False
    for _, _, array in plain:
        array._fresh_grad = False
    return plain, chosen


def _return_states(trainer: Trainer, also_tiled: bool = False) -> None:
    """Give states of parameters that are tiled no more (or of all) back to MXNet's updater."""
    held = _states_of(trainer)
    for index in held.indices():
        if also_tiled or not is_tiled(trainer._params[index]):
            held.to_updater(trainer, index)


def _has_overflow(loss_scaler, params) -> bool:
    """MXNet's ``LossScaler.has_overflow`` over all tiles: it looks at each parameter's first gradient only."""
    by_context: Dict[mx.Context, List[NDArray]] = {}
    for parameter in params:
        for gradient in parameter._grad or ():
            by_context.setdefault(gradient.context, []).append(legacy(gradient))
    results = []
    for gradients in by_context.values():
        finite = mx.nd.ones((1,), ctx=gradients[0].context)
        for start in range(0, len(gradients), 200):
            part = gradients[start:start + 200]
            multi_all_finite(*part, num_arrays=len(part), init_output=False, out=finite)
        results.append(finite)
    finite = all(bool(result.asscalar()) for result in results)
    return loss_scaler.has_overflow([_FirstGradient(finite)])


class _FirstGradient:
    """What ``LossScaler.has_overflow`` reads of a parameter, standing for all gradients together."""

    def __init__(self, finite: bool):
        self._grad = [mx.nd.array([0.0 if finite else float("inf")])]


# -- kvstore and files ---------------------------------------------------------------------------------------------


def _init_kvstore(self):
    if any(is_tiled(parameter) for parameter in self._params):
        wanted = self._kvstore_params["kvstore"]
        if wanted is not None and not (isinstance(wanted, str) and "dist" not in wanted):
            raise TrainerError(f"Trainer was given the kvstore {wanted!r}, but tiled parameters are updated on their "
                               "own devices without one: give kvstore=None or 'device', or set SOYBEAN_MX=0.")
        if self._kvstore_params["update_on_kvstore"]:
            raise TrainerError("Trainer was given update_on_kvstore=True, but tiled parameters are updated on their "
                               "own devices without a kvstore: leave it out, or set SOYBEAN_MX=0.")
        # What MXNet decides for one device, without gathering every parameter to look at its size.
        self._kvstore, self._update_on_kvstore, self._distributed = None, None, False
        self._kv_initialized = True
        return
    _original["init_kvstore"](self)


def _init_params(self):
    if self._kvstore is not None:
        _refuse_kvstore(self)
    _original["init_params"](self)


def _allreduce_grads(self):
    if self._kvstore is not None:
        _refuse_kvstore(self)
    _original["allreduce_grads"](self)


def _refuse_kvstore(trainer: Trainer) -> None:
    """A kvstore that was made before the parameters became tiled holds whole copies of them."""
    names = [parameter.name for parameter in trainer._params if is_tiled(parameter)]
    if names:
        raise TrainerError(f"Trainer uses the kvstore {trainer._kvstore.type!r}, but its parameter {names[0]} is "
                           "tiled, and tiles are updated on their own devices: give kvstore=None or 'device', or set "
                           "SOYBEAN_MX=0.")


def save_states(self, fname):
    """``Trainer.save_states``: whole-tensor states, as plain MXNet writes them, put in place all at once."""
    held = _states_of(self)
    if not held.indices():
        _original["save_states"](self, fname)
        return
    updater = self._updaters[0]
    states = {**updater.states, **held.whole(self._contexts[0])}
    write_bytes(fname, pickle.dumps((states, updater.optimizer)))


def load_states(self, fname):
    """``Trainer.load_states``: the whole-tensor states are cut at the next update."""
    _original["load_states"](self, fname)
    _states_of(self).clear()


def install() -> None:
    """Patch ``gluon.Trainer``. Calling it again does nothing."""
    if _original:
        return
    _original.update(update=Trainer._update, init_kvstore=Trainer._init_kvstore, init_params=Trainer._init_params,
                     allreduce_grads=Trainer._allreduce_grads, save_states=Trainer.save_states,
                     load_states=Trainer.load_states)
    Trainer._update = _update
    Trainer._init_kvstore = _init_kvstore
    Trainer._init_params = _init_params
    Trainer._allreduce_grads = _allreduce_grads
    Trainer.save_states = save_states
    Trainer.load_states = load_states


__all__ = ["Region", "TrainerError", "install", "is_elementwise"]
