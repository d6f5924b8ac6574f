"""Loops and branches in tiled blocks against MXNet operator by operator, which has no such operators in its gradients.

MXNet's own hybridized blocks are no reference: many of these gradients are wrong there (soybean_mx/control_flow.py).
"""
from __future__ import annotations

import itertools
from typing import Callable, List, Sequence

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

from soybean_mx import gluon_front

from .pairs import assert_close, assert_same_parameters, pair, samples

_counter = itertools.count()
LENGTH, BATCH, UNITS = 4, 4, 3


class Written(gluon.HybridBlock):
    """A function of inputs and two square weights."""

    def __init__(self, function: Callable, **kwargs):
        super().__init__(**kwargs)
        self._function = function
        with self.name_scope():
            self.v = self.params.get("v", shape=(UNITS, UNITS))
            self.w = self.params.get("w", shape=(UNITS, UNITS))

    def hybrid_forward(self, F, *inputs, **weights):
        """What the function returns."""
        return self._function(F, *inputs, **weights)


def check(function: Callable, *inputs: np.ndarray, steps: int = 3, devices: str = "cpu:4",
          unused: bool = False) -> gluon.HybridBlock:
    """Outputs and all gradients of a function, at every step alike, on one device and tiled; the tiled block."""
    prefix = f"written{next(_counter)}_"
    nets = [Written(function, prefix=prefix) for _ in range(2)]
    for net in nets:
        net.initialize(mx.init.Constant(0))
        net.v.set_data(samples(UNITS, UNITS, seed=1) / 2)
        net.w.set_data(samples(UNITS, UNITS, seed=2) / 2)
    nets[1].hybridize(backend="soybean_mx", devices=devices)
    for step in range(steps):
        found: List[Sequence] = []
        for net in nets:
            arrays = [mx.nd.array(array + 0.1 * step) for array in inputs]
            for array in arrays:
                array.attach_grad()
            for parameter in (net.v, net.w):
                parameter.zero_grad()
            with autograd.record():
                outputs = net(*arrays)
                outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
                loss = sum((output * (index + 1)).sum() for index, output in enumerate(outputs))
            loss.backward()
            found.append([*outputs, *(array.grad for array in arrays), net.v.grad(), net.w.grad()])
        for index, (theirs, ours) in enumerate(zip(*found)):
            assert_close(ours, theirs, 1e-5, f"step {step}, array {index}")
        assert unused or all(np.abs(array.asnumpy()).sum() > 0 for array in found[0][-2:])
    return nets[1]


SEQUENCE = np.random.RandomState(0).normal(size=(LENGTH, BATCH, UNITS))
STATE = np.random.RandomState(1).normal(size=(BATCH, UNITS))
ROW = np.random.RandomState(2).normal(size=(1, UNITS))

# Bodies of (F, step, state, v, w, row) whose gradients MXNet gets wrong in one way or another, or cannot bind.
BODIES = {
    "handed on": lambda F, a, b, v, w, q: (F.dot(a, v) + q, F.dot(b, w) + a),
    "only handed on": lambda F, a, b, v, w, q: (a * F.dot(q, v) + q, b + a * F.dot(q, w)),
    "read twice": lambda F, a, b, v, w, q: (F.tanh(a * F.dot(a, v) + q + b), F.sin(b * F.dot(a, w))),
    "accumulated": lambda F, a, b, v, w, q: (lambda s: (s, s + F.dot(b, w)))(b + F.dot(a, v) + q),
    "compared": lambda F, a, b, v, w, q: (F.dot(a * (b > 0), v), F.dot(b, w) + (q > 0)),
    "blocked": lambda F, a, b, v, w, q: (F.dot(a, v) + F.BlockGrad(b), F.dot(a, w) + b * q),
    "not read": lambda F, a, b, v, w, q: (F.dot(F.BlockGrad(a), v) + b, F.dot(b, w) + q),
}


@pytest.mark.parametrize("name", BODIES)
def test_loops_over_a_sequence(name):
    def function(F, x, state, q, v, w):
        x, state = F.tanh(x), F.tanh(state)
        q = F.broadcast_add(F.zeros_like(state), F.tanh(q))
        outputs, last = F.contrib.foreach(lambda a, b: BODIES[name](F, a, b, v, w, q), x, state)
        return outputs, last, F.dot(last, w)  # w is used outside too

    check(function, SEQUENCE, STATE, ROW)


@pytest.mark.parametrize("number", [1.0, -1.0])
def test_branches(number):
    def function(F, x, number, v, w):
        x = F.tanh(x)  # is two inputs of the operator, of which a branch has a gradient for one
        return F.contrib.cond(number > 0, lambda: F.dot(x, v), lambda: F.dot(F.sin(x), w) + x), x * 2

    check(function, STATE, np.array([number]), unused=True)


def test_a_branch_that_changes_from_step_to_step():
    def function(F, x, number, v, w):
        x = F.tanh(x)
        return F.contrib.cond(number > 0, lambda: [F.dot(x, v), x], lambda: [F.dot(F.sin(x), w), x * 2])

    net = check(function, STATE, np.array([-0.05]), unused=True)  # grows by 0.1 a step
    assert gluon_front.plan_of(net)["whole"]


@pytest.mark.parametrize("limit", [0.0, 2.0, 9.0])
def test_loops_with_a_condition(limit):
    """Of no iteration, of some, and of the most that there may be."""
    def function(F, x, limit, factor, v, w):
        x, limit = F.tanh(x), limit * 1

        def body(count, state, fixed):
            state = F.tanh(F.dot(state, v) + F.broadcast_mul(fixed, factor))
            return state, [count + 1, state, fixed]

        _, (count, state, _) = F.contrib.while_loop(
            lambda count, state, fixed: F.broadcast_lesser(count, limit + F.sum(F.zeros_like(w))), body,
            [F.zeros_like(limit), x, F.dot(x, w)], max_iterations=4)
        return state, count, F.dot(state, w)

    check(function, STATE, np.array([limit]), ROW, unused=True)


def test_loops_in_loops_and_one_behind_the_other():
    def function(F, x, state, v, w):
        def outer(a, b):
            rows, total = F.contrib.foreach(lambda row, c: (F.sin(row) + c, c + row), F.dot(a, v),
                                            F.sum(F.zeros_like(a), axis=0))
            return rows, F.broadcast_add(F.tanh(b + rows), total.expand_dims(0))

        outputs, state = F.contrib.foreach(outer, F.tanh(x), F.tanh(state))
        state = F.contrib.cond(F.sum(state * 0) + 1 > 0, lambda: F.dot(state, w), lambda: state)
        return F.contrib.foreach(lambda a, b: (a + b, b + a), outputs, state)

    check(function, SEQUENCE, STATE)


def test_the_last_step_may_be_all_that_is_returned():
    def function(F, x, state, v, w):
        _, state = F.contrib.foreach(lambda a, b: ([], F.tanh(F.dot(a, v) + F.dot(b, w))), x, state)
        return state

    check(function, SEQUENCE, STATE)


def test_whole_numbers_in_a_body():
    def function(F, x, v, w):
        tokens = F.cast(F.clip(F.abs(x) * 2, 0, 2), dtype="int32")
        outputs, state = F.contrib.foreach(lambda a, b: (F.dot(F.take(v, a), w) + b, b + 1), tokens,
                                           F.zeros_like(F.dot(v, w)))
        return outputs, state

    check(function, SEQUENCE[:, 0])


def test_dropout_and_inference_in_a_loop():
    def function(F, x, state, v, w):
        scale = F.sum(F.zeros_like(v) + F.zeros_like(w)) + 1
        return F.contrib.foreach(lambda a, b: (F.Dropout(F.broadcast_mul(a + b, scale), p=0.5), a), x, state)

    block = Written(function)
    block.initialize()
    block.hybridize(backend="soybean_mx", devices="cpu:2")
    x, state = mx.nd.ones((LENGTH, BATCH, UNITS)), mx.nd.ones((BATCH, UNITS))
    quiet = block(x, state)[0]
    assert_close(quiet, 2 * np.ones(quiet.shape))
    x.attach_grad()
    with autograd.record():
        outputs, _ = block(x, state)
        loss = outputs.sum()
    loss.backward()
    assert set(np.unique(outputs.asnumpy())) == {0, 4}
    kept = outputs.asnumpy() / 2
    np.testing.assert_array_equal(x.grad.asnumpy(), kept + np.concatenate([kept[1:], 0 * kept[:1]]))


@pytest.mark.parametrize("operator", ["SequenceMask", "SequenceLast", "SequenceReverse"])
def test_lengths_have_no_gradient(operator):
    """MXNet does not write it; what was in the memory would be added to that of their other uses."""
    class Masked(gluon.HybridBlock):
        blocks = False

        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(1,), init=mx.init.One())

        def hybrid_forward(self, F, x, lengths, weight):
            lengths = F.broadcast_mul(lengths, weight)
            masked = getattr(F, operator)(x * 2, F.BlockGrad(lengths) if self.blocks else lengths,
                                          use_sequence_length=True)
            return masked, lengths * 3

    nets = pair(lambda prefix: Masked(prefix=prefix), samples(LENGTH, BATCH, UNITS), mx.nd.array([1, 2, 3, 4]),
                hybridize=False)
    nets[0].blocks = True
    nets[1].hybridize(backend="soybean_mx", devices="cpu:4")
    for step in range(3):
        for net in nets:
            x, lengths = samples(LENGTH, BATCH, UNITS, seed=step), mx.nd.array([1, 2, 3, 4])
            with autograd.record():
                loss = sum((output ** 2).sum() for output in net(x, lengths))
            loss.backward()
        assert_same_parameters(nets[1], nets[0])
