"""Small models with loops and branches in the graph: ``F.contrib.foreach``, ``while_loop`` and ``cond``."""
from __future__ import annotations

import mxnet as mx
from mxnet.gluon import HybridBlock, contrib, nn, rnn

from sample_blocks import Calling, Example, Examples, normal, sequential, together

BATCH, LENGTH, UNITS = 8, 5, 6


class _Weighted(HybridBlock):
    """A block with a square weight of its own, which is used where its subclass says."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.first = sequential(nn.Dense(12, in_units=10, flatten=False, activation="tanh"),
                                    nn.Dense(UNITS, in_units=12, flatten=False, activation="tanh"))
            self.weight = self.params.get("weight", shape=(UNITS, UNITS))
            self.last = sequential(nn.Dense(12, in_units=UNITS, flatten=False, activation="tanh"),
                                   nn.Dense(4, in_units=12, flatten=False))


def _first(F, x):
    """The first step of `x`."""
    return F.reshape(F.slice_axis(x, axis=0, begin=0, end=1), shape=(-3, 0))


def _zero(F, x):
    """A vector of one zero, of the type of `x`."""
    return F.sum(F.zeros_like(x))


def _positive(F, number):
    """Whether a number is above 0; in single precision, which alone MXNet takes for the condition of a branch."""
    return F.cast(number > 0, dtype="float32")


class Accumulating(_Weighted):
    """A loop over time whose body uses a parameter that is used outside of it, too."""

    def hybrid_forward(self, F, x, weight):
        """Every step's output and the last state."""
        def body(step, state):
            state = F.tanh(F.dot(step, weight) + state)
            return state * 2, state

        x = self.first(x)
        outputs, state = F.contrib.foreach(body, x, _first(F, x))
        return self.last(outputs), F.dot(state, weight)


class Iterating(_Weighted):
    """A loop that ends when the data say so."""

    def hybrid_forward(self, F, x, weight):
        """The steps' outputs, padded to the most steps, and the last state."""
        def proceeds(count, state):
            return F.cast(F.broadcast_add(F.zeros_like(F.mean(state)), count) < 3, dtype="float32")

        def body(count, state):
            state = F.tanh(F.dot(state, weight))
            return state, [count + 1, state]

        outputs, (count, state) = F.contrib.while_loop(proceeds, body, [_zero(F, x), self.first(x)],
                                                       max_iterations=LENGTH)
        # MXNet leaves what lies behind the last step undefined.
        return self.last(F.slice_axis(outputs, axis=0, begin=0, end=3)), state, count


class Branching(_Weighted):
    """One of two branches, by a number that is fed."""

    def hybrid_forward(self, F, x, number, weight):
        """What the chosen branch makes."""
        x = self.first(x)
        chosen = F.contrib.cond(_positive(F, number), lambda: F.dot(x, weight), lambda: F.dot(F.sin(x), weight) * 3)
        return self.last(chosen)


class Everything(_Weighted):
    """Two loops and a branch, one on what the other returns, and a loop in a loop."""

    def hybrid_forward(self, F, x, number, weight):
        """The scores behind all of them."""
        def inner(step, state):
            return F.tanh(step + state), F.sin(state * step)

        def outer(step, state):
            rows, _ = F.contrib.foreach(inner, F.dot(step, weight), F.sum(F.zeros_like(step), axis=0))
            return rows, F.tanh(state * rows)

        x = self.first(x)
        outputs, state = F.contrib.foreach(outer, x, _first(F, x))
        state = F.contrib.cond(_positive(F, number), lambda: F.tanh(state), lambda: F.dot(state, weight))
        outputs, _ = F.contrib.foreach(lambda step, last: (F.tanh(step * last), F.sigmoid(step * last)), outputs, state)
        return self.last(outputs)


def looped_cell() -> Example:
    """A cell as the body of a loop over time, between dense layers."""
    def forward(F, children, x, hidden, memory):
        outputs, states = F.contrib.foreach(children["cell"], children["first"](x), [hidden, memory])
        return children["last"](outputs), states

    net = Calling(forward, first=nn.Dense(10, in_units=10, flatten=False),
                  cell=rnn.LSTMCell(UNITS, input_size=10), last=nn.Dense(4, in_units=UNITS, flatten=False))
    return Example(net, normal((LENGTH, BATCH, 10), (BATCH, UNITS), (BATCH, UNITS)))


def dynamic_unrolling() -> Example:
    """A cell that MXNet unrolls by a loop, with samples of different lengths."""
    def forward(F, children, x, hidden, memory, valid_length):
        cell = children["cell"]
        valid_length = F.cast(valid_length, dtype="float32")  # it is held against numbers of that type
        outputs, states = contrib.rnn.rnn_cell.dynamic_unroll(cell, children["first"](x), [hidden, memory],
                                                              layout="TNC", valid_length=valid_length)
        return children["last"](outputs), states

    net = Calling(forward, first=nn.Dense(10, in_units=10, flatten=False),
                  cell=rnn.LSTMCell(UNITS, input_size=10), last=nn.Dense(4, in_units=UNITS, flatten=False))

    def lengths(rs):
        return [mx.nd.array(rs.randint(1, LENGTH + 1, BATCH))]

    return Example(net, together(normal((LENGTH, BATCH, 10), (BATCH, UNITS), (BATCH, UNITS)), lengths))


def branching(number: float) -> Example:
    """:class:`Branching` with the number."""
    return Example(Branching(), together(normal((BATCH, 10)), lambda rs: [mx.nd.array([number])]), "float32",
                   imperative=True)


EXAMPLES: Examples = {
    "foreach_cell": looped_cell,
    "foreach_shared_weight": lambda: Example(Accumulating(), normal((LENGTH, BATCH, 10))),
    "dynamic_unroll": dynamic_unrolling,
    "while_loop": lambda: Example(Iterating(), normal((BATCH, 10))),
    "cond_then": lambda: branching(1),
    "cond_else": lambda: branching(-1),
    "control_flow": lambda: Example(Everything(), together(
        normal((LENGTH, BATCH, 10)), lambda rs: [mx.nd.array([1.0])]), "float32", imperative=True),
}
