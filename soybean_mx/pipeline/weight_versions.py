"""The versions of a parameter on one device: kept by reference, written out of place, reused when nobody needs them."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence

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


class Update(NamedTuple):
    """One array's step.

    Parameters
    ----------
    index : int
        The parameter's index with the optimizer.
    old, new : NDArray
        Where the weights are, and where they shall be; may be the same array.
    gradient : NDArray
        Their gradient, before ``optimizer.rescale_grad``.
    state : object
        What ``optimizer.create_state_multi_precision`` made.
    counts : bool
        Whether it is the parameter's first array: further tiles are of the same update.
    """

    index: int
    old: NDArray
    new: NDArray
    gradient: NDArray
    state: Any
    counts: bool = True


def update(optimizer: optimizers.Optimizer, updates: Sequence[Update]) -> None:
    """Queue updates from arrays to others.

    MXNet's SGD writes out of place, which copies nothing; each array by an operator of its own, since those that take
    many at a time go through them element by element, which is slow on CPUs. Every other optimizer gets a copy of the
    weights, one for each update.

    Parameters
    ----------
    optimizer : mxnet.optimizer.Optimizer
        The optimizer.
    updates : sequence of Update
        The arrays.
    """
    for item in updates:
        if not item.counts:
            optimizer._index_update_count[item.index] -= 1
        plain = item.gradient.stype == "default" and (item.state is None or isinstance(item.state, NDArray))
        if type(optimizer) is optimizers.SGD and plain:
            _sgd(optimizer, item)
            continue
        if item.old is not item.new:
            item.old.copyto(item.new)
        if optimizer.aggregate_num:  # such optimizers take lists
            optimizer.update_multi_precision([item.index], [item.new], [item.gradient], [item.state])
        else:
            optimizer.update_multi_precision(item.index, item.new, item.gradient, item.state)


def _sgd(optimizer: optimizers.SGD, item: Update) -> None:
    optimizer._update_count(item.index)
    settings = {"lr": optimizer._get_lr(item.index), "wd": optimizer._get_wd(item.index),
                "rescale_grad": optimizer.rescale_grad}
    if optimizer.clip_gradient:
        settings["clip_gradient"] = optimizer.clip_gradient
    if item.state is None:
        mx.nd.sgd_update(item.old, item.gradient, out=item.new, **settings)
    else:
        mx.nd.sgd_mom_update(item.old, item.gradient, item.state, out=item.new, momentum=optimizer.momentum, **settings)
