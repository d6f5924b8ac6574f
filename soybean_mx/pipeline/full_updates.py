"""The last update that all stages have completed, kept while stages update at different times, for when one fails.

A *point* is a version of every stage after the same number of steps. Each update writes its versions elsewhere than
over those of a point that all stages are known to complete first; and it is *stamped* when it is done: an
engine operation says afterwards what has happened, whatever became of the
errors. For MXNet forgets an error once somebody has read it, and what comes later runs, on whatever is in memory. So an
update is guarded: by an operation that fails unless the update before it, the losses of its own minibatches, and the
point that it leaves behind are stamped.
"""
from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
from mxnet.ndarray import NDArray

from soybean_mx import core
from soybean_mx.engine_order import Order

Point = Tuple[int, ...]  # the version of each stage


class _Done(NamedTuple):
    """Is stamped when something is done, and what others read to come later."""

    stamp: core.Stamp
    token: NDArray

    def after(self, context: mx.Context, arrays: Sequence[NDArray]) -> None:
        """Queue it behind what writes these arrays, and before who reads them."""
        Order(context, [], [*arrays, self.token], self.stamp.operation())()


class _Update(NamedTuple):
    """One update of a stage, and the values that it makes."""

    done: _Done
    values: Dict[str, NDArray]
    states: List[Dict[str, NDArray]]  # of each replica


class FullUpdates:
    """Keeps what is needed to go back to the last update that all stages have completed.

    Parameters
    ----------
    contexts : sequence of mxnet.Context
        The device of each stage that updates its weights.
    rounds : sequence of int
        The number of steps that one update of each stage takes in.
    slack : int
        How many points behind the newest are kept too, so that a stage need not wait until others have completed what
        they are at; each is a version more.
    """

    def __init__(self, contexts: Sequence[mx.Context], rounds: Sequence[int], slack: int):
        self._contexts, self._rounds, self._slack = list(contexts), list(rounds), slack
        self._updates: Dict[Tuple[int, int], _Update] = {}
        self._points: List[Point] = []
        self._losses: Dict[int, _Done] = {}
        self._base: Point = ()
        self._made: List[int] = []
        self._taken_in = [-1] * len(rounds)  # the last microbatch

    def start(self, versions: Sequence[int], values: Sequence[Mapping[str, NDArray]],
              states: Sequence[List[Dict[str, NDArray]]]) -> None:
        """The values of all stages before the first update."""
        for stage, version in enumerate(versions):
            done = self._undone(self._contexts[stage])
            done.stamp.stamp()
            self._updates[stage, version] = _Update(done, dict(values[stage]), states[stage])
        self._base = tuple(versions)
        self._made = list(versions)
        self._points = [self._base]

    def drained(self) -> None:
        """All stages are after the same step again."""
        self._base = tuple(self._made)
        self._losses, self._taken_in = {}, [-1] * len(self._rounds)
        if self._points[-1] != self._base:
            self._points.append(self._base)

    def loss(self, microbatch: int, loss: NDArray) -> None:
        """Stamp the loss of a microbatch (counted since all stages were after the same step), before anybody reads it.
        """
        done = self._losses[microbatch] = self._undone(loss.context)
        done.after(loss.context, [loss])

    @staticmethod
    def _undone(context: mx.Context) -> _Done:
        return _Done(core.Stamp(), mx.nd.zeros((1,), ctx=context))

    def needed_from(self, stage: int) -> int:
        """The oldest version of a stage that must stay."""
        return self._kept[stage]

    @property
    def _kept(self) -> Point:
        """What no update may write over."""
        return self._points[max(0, len(self._points) - 1 - self._slack)]

    def guard(self, stage: int, microbatches: Sequence[int], target: NDArray) -> None:
        """Queue what lets a stage's next version of a parameter be written only if all before it went well.

        Parameters
        ----------
        stage : int
            The stage.
        microbatches : sequence of int
            Whose gradients the update takes in.
        target : NDArray
            What is to be written.
        """
        before = [self._updates[stage, self._made[stage]].done]
        before += [self._updates[other, version].done for other, version in enumerate(self._kept)]
        before += [self._losses[number] for number in microbatches]
        tokens = {id(done.token): done.token for done in before}
        Order(self._contexts[stage], list(tokens.values()), [target], core.guard([done.stamp for done in before]))()

    def made(self, stage: int, version: int, values: Mapping[str, NDArray], states: List[Dict[str, NDArray]],
             microbatches: Sequence[int]) -> None:
        """Stamp a stage's update, whose values have been queued.

        Parameters
        ----------
        stage, version : int
            The stage and its new version.
        values : mapping of str to NDArray
            Its parameters' arrays, which stay what they are until a later point is complete.
        states : list of dict of str to NDArray
            Copies of the auxiliary states, of each device of the stage.
        microbatches : sequence of int
            As of :meth:`guard`.
        """
        context = self._contexts[stage]
        update = _Update(self._undone(context), dict(values), states)
        update.done.after(context, list(values.values()))
        self._updates[stage, version] = update
        self._made[stage] = version
        self._taken_in[stage] = microbatches[-1]
        for number in [number for number in self._losses if number <= min(self._taken_in)]:
            del self._losses[number]
        self._add_points()
        self._forget()

    def _add_points(self) -> None:
        """The steps after which every stage has just updated."""
        while True:
            steps = [(version - base) * size for version, base, size in zip(self._points[-1], self._base, self._rounds)]
            after = steps[0] + 1
            while any(after % size for size in self._rounds):
                after += 1
            point = tuple(base + after // size for base, size in zip(self._base, self._rounds))
            if any(version > made for version, made in zip(point, self._made)):
                return
            self._points.append(point)

    def _is_complete(self, point: Point) -> bool:
        return all(self._updates[stage, version].done.stamp.nanoseconds for stage, version in enumerate(point))

    def _forget(self) -> None:
        """What no failure can ask for any more; does not wait."""
        complete = [index for index, point in enumerate(self._points) if self._is_complete(point)]
        self._points = self._points[complete[-1]:] if complete else self._points
        oldest = self._points[0]
        for stage, version in [key for key, update in self._updates.items()
                               if key[1] < oldest[key[0]] and update.done.stamp.nanoseconds]:
            del self._updates[stage, version]

    def failed(self) -> bool:
        """Whether something that was queued has not been done; call it when all has ended."""
        return not all(update.done.stamp.nanoseconds for update in self._updates.values())

    def last(self) -> Tuple[List[Dict[str, NDArray]], List[List[Dict[str, NDArray]]]]:
        """When all has ended: each stage's values, and its devices' states, after the last update of all stages."""
        point = [point for point in self._points if self._is_complete(point)][-1]
        updates = [self._updates[stage, version] for stage, version in enumerate(point)]
        return [update.values for update in updates], [update.states for update in updates]


def unread(array: NDArray) -> Optional[mx.MXNetError]:
    """The error that an array has, which is forgotten then; None where it has none."""
    try:
        array.wait_to_read()
    except mx.MXNetError as error:
        return error
    return None


__all__ = ["FullUpdates", "unread"]
