"""Files of optimizer states of pipelined training, which ``gluon.Trainer`` reads and writes too.

A file holds the states by parameter index, whole, and one optimizer with the counts of all stages. Each stage's own
optimizer goes with it, for what it has beside counts of parameters: a pipeline of as many stages continues bit for bit.
``gluon.Trainer`` counts parameters in the order of their names, in which ``dense10`` comes before ``dense9``; so the
order in which the network has them goes with it too, and the names need not be the same when a file is loaded.
"""
from __future__ import annotations

import copy
import pickle
from typing import Any, Dict, List, Mapping, Optional, Sequence

import mxnet as mx
from mxnet import optimizer as optimizers
from mxnet.ndarray import NDArray

from soybean_mx.files import write_bytes

_STAGES, _ORDER = "_soybean_stages", "_soybean_order"


class StatesError(ValueError):
    """A file that holds no optimizer states; the message says what to do."""


def placed(state: Any, context: mx.Context) -> Any:
    """A copy of a state (an array, a tuple of states, or None) on a device."""
    if isinstance(state, NDArray):
        return state.copyto(context)
    if isinstance(state, (tuple, list)):
        return type(state)(placed(part, context) for part in state)
    return state


def write(path: str, states: Mapping[int, Any], stages: Sequence[optimizers.Optimizer], order: Sequence[int]) -> None:
    """Write states and the optimizer of each stage.

    Parameters
    ----------
    path : str
        Where to; an existing file is replaced when the new one is complete.
    states : mapping of int to object
        The state of each parameter, by its index in ``gluon.Trainer(net.collect_params())``.
    stages : sequence of mxnet.optimizer.Optimizer
        One for each stage.
    order : sequence of int
        The index of each parameter, in the order in which the network has them.
    """
    whole = copy.copy(stages[0])
    counts = dict(whole._index_update_count)
    for stage in stages:
        counts.update(stage._index_update_count)
    _set_counts(whole, counts)
    whole.num_update = max(stage.num_update for stage in stages)
    setattr(whole, _STAGES, list(stages))
    setattr(whole, _ORDER, list(order))
    write_bytes(path, pickle.dumps(({index: placed(state, mx.cpu(0)) for index, state in states.items()}, whole)))


class Loaded:
    """What a file holds.

    Parameters
    ----------
    path : str
        A file of this module, or of ``gluon.Trainer.save_states``.

    Raises
    ------
    OSError
        When there is no such file.
    StatesError
        When it holds something else.
    """

    def __init__(self, path: str):
        with open(path, "rb") as file:
            content = file.read()
        try:
            self.states, self._whole = pickle.loads(content)
        except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, ImportError, IndexError):
            self.states, self._whole = None, None
        if not isinstance(self.states, dict) or not isinstance(self._whole, optimizers.Optimizer):
            raise StatesError(f"The file {path} holds no states of an optimizer: give one that save_states of a "
                              "trainer has written.")

    def states_of(self, order: Sequence[int]) -> Dict[int, Any]:
        """The states, by the indices of the network that they are for.

        Parameters
        ----------
        order : sequence of int
            As of :func:`write`, of that network.

        Raises
        ------
        StatesError
            When the network has another number of parameters.
        """
        kept = getattr(self._whole, _ORDER, None)
        count = len(kept) if kept is not None else 1 + max(self.states, default=0)
        if count > len(order) or (kept is not None and count < len(order)):
            raise StatesError(f"The file has optimizer states of {count} parameters, but the network has {len(order)}: "
                              "give a file of the same network.")
        names = self._renamed(order)
        return {names[index]: state for index, state in self.states.items()}

    def _renamed(self, order: Sequence[int]) -> Dict[int, int]:
        kept = getattr(self._whole, _ORDER, None)
        return {index: index for index in range(len(order))} if kept is None else dict(zip(kept, order))

    def for_any_stages(self, count: int) -> List[optimizers.Optimizer]:
        """Optimizers with the file's settings, before it is known what each stage updates."""
        return [copy.deepcopy(self._whole) for _ in range(count)]

    def _kept_stages(self) -> Optional[List[optimizers.Optimizer]]:
        """The stages' own optimizers, unless gluon.Trainer has gone on with the whole one since."""
        kept = getattr(self._whole, _STAGES, None)
        if kept is None or any(stage.lr != self._whole.lr for stage in kept):
            return None
        counts: Dict[int, int] = {}
        for stage in kept:
            counts.update(stage._index_update_count)
        return kept if counts == self._whole._index_update_count else None

    def stages(self, order: Sequence[int], owned: Sequence[Sequence[int]]) -> List[optimizers.Optimizer]:
        """An optimizer for each stage.

        Parameters
        ----------
        order : sequence of int
            As of :func:`write`, of the network that they are for.
        owned : sequence of sequence of int
            The indices of the parameters that each stage updates.
        """
        names = self._renamed(order)
        kept = self._kept_stages()
        if kept is not None and len(kept) == len(owned) and all(
                {names[index] for index in stage._index_update_count} <= set(indices)
                for stage, indices in zip(kept, owned)):
            result = copy.deepcopy(kept)
            for stage in result:
                _set_counts(stage, {names[index]: count for index, count in stage._index_update_count.items()})
            return result
        result = []
        for indices in owned:
            stage = copy.deepcopy(self._whole)
            for attribute in (_STAGES, _ORDER):
                stage.__dict__.pop(attribute, None)
            counts = {names[index]: count for index, count in stage._index_update_count.items()
                      if names[index] in indices}
            _set_counts(stage, counts)
            stage.num_update = max([stage.begin_num_update, *counts.values()])
            result.append(stage)
        return result


def _set_counts(optimizer: optimizers.Optimizer, counts: Dict[int, int]) -> None:
    optimizer._all_index_update_counts = {0: counts}
    optimizer._index_update_count = counts


__all__ = ["Loaded", "StatesError", "placed", "write"]
