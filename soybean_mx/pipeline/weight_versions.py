"""The versions of a parameter on one device: kept by reference, written out of place, reused when nobody needs them."""
from __future__ import annotations

from typing import Any, Dict, List

import mxnet as mx
from mxnet import optimizer as optimizers
from mxnet.ndarray import NDArray


class Versions:
    """The versions of one parameter that are alive on one device.

    Parameters
    ----------
    first : NDArray
        The value to start from, which is now this object's.
    number : int
        What the first version is called.
    """

    def __init__(self, first: NDArray, number: int = 0):
        self.newest = number
        self._held: Dict[int, NDArray] = {number: first}
        self._users: Dict[int, int] = {}
        self._free: List[NDArray] = []
        self.most = 1  # arrays that there have ever been

    def __len__(self) -> int:
        return len(self._held)

    def value(self, number: int) -> NDArray:
        """The array of a version."""
        return self._held[number]

    def take(self, number: int) -> NDArray:
        """The array of a version, which stays until it has been given back as often."""
        self._users[number] = self._users.get(number, 0) + 1
        return self._held[number]

    def give_back(self, number: int) -> None:
        """The opposite of :meth:`take`."""
        self._users[number] -= 1

    def is_read(self) -> bool:
        """Whether somebody has taken the newest version, so that the next one must be written elsewhere."""
        return self._users.get(self.newest, 0) > 0

    def next_array(self, needed_from: int) -> NDArray:
        """The array for the version after the newest, which :meth:`add` then names.

        Parameters
        ----------
        needed_from : int
            The oldest version that somebody may yet take.
        """
        for number in sorted(self._held):
            if not self._users.get(number) and number < needed_from:
                self._users.pop(number, None)
                self._free.append(self._held.pop(number))
        if self._free:
            return self._free.pop()
        self.most += 1
        return mx.nd.empty(self._held[self.newest].shape, self._held[self.newest].context,
                           self._held[self.newest].dtype)

    def add(self, array: NDArray) -> None:
        """The next version, in an array that :meth:`next_array` gave."""
        self.newest += 1
        self._held[self.newest] = array

    def renew(self) -> None:
        """The newest version has been written in place, and is the next one."""
        self._held[self.newest + 1] = self._held.pop(self.newest)
        self._users.pop(self.newest, None)
        self.newest += 1

    def reset(self, number: int) -> None:
        """Nobody holds anything any more: the newest stays, under a new number."""
        array = self._held.pop(self.newest)
        self._free += self._held.values()
        self._held, self._users, self.newest = {number: array}, {}, number


def update(optimizer: optimizers.Optimizer, index: int, old: NDArray, new: NDArray, gradient: NDArray,
           state: Any) -> None:
    """Queue an update from one array to another.

    MXNet's SGD writes out of place, which copies nothing. Every other optimizer gets a copy of the weights,
    one for each update.

    Parameters
    ----------
    optimizer : mxnet.optimizer.Optimizer
        The optimizer.
    index : int
        The parameter's index with the optimizer.
    old, new : NDArray
        Where the weights are, and where they shall be; may be the same array.
    gradient : NDArray
        Their gradient, before ``optimizer.rescale_grad``.
    state : object
        What ``optimizer.create_state_multi_precision`` made.
    """
    if old is not new and gradient.stype == "default":
        kind = type(optimizer)
        if kind is optimizers.SGD and (state is None or isinstance(state, NDArray)):
            _sgd(optimizer, index, old, new, gradient, state)
            return
    if old is not new:
        old.copyto(new)
    if optimizer.aggregate_num:  # such optimizers take lists
        optimizer.update_multi_precision([index], [new], [gradient], [state])
    else:
        optimizer.update_multi_precision(index, new, gradient, state)


def _sgd(optimizer, index, old, new, gradient, state) -> None:
    optimizer._update_count(index)
    settings = {"lr": optimizer._get_lr(index), "wd": optimizer._get_wd(index),
                "rescale_grad": optimizer.rescale_grad}
    if optimizer.clip_gradient:
        settings["clip_gradient"] = optimizer.clip_gradient
    if state is None:
        mx.nd.sgd_update(old, gradient, out=new, **settings)
    else:
        mx.nd.sgd_mom_update(old, gradient, state, out=new, momentum=optimizer.momentum, **settings)
