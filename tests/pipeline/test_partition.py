"""Cutting a symbol into stages."""
from __future__ import annotations

import itertools

import mxnet as mx
import numpy as np
import pytest

from soybean_mx.pipeline.partition import PartitionError, _ends, balanced, operator_names, partition


def network():
    """Layers a, b, c and a sum that skips b; b and c share a weight."""
    x, shared = mx.sym.var("x"), mx.sym.var("shared")
    a = mx.sym.FullyConnected(x, num_hidden=4, name="a")
    b = mx.sym.FullyConnected(a, shared, num_hidden=4, no_bias=True, name="b")
    c = mx.sym.FullyConnected(mx.sym.elemwise_add(a, b, name="skip"), shared, num_hidden=4, no_bias=True, name="c")
    return mx.sym.BatchNorm(c, name="norm")


def test_stages_compute_what_the_whole_does():
    symbol = network()
    stages = partition(symbol, [["a"], ["b"], ["skip", "c"], ["norm"]], ["x"])
    assert [stage.parameters for stage in stages] == [
        ["a_weight", "a_bias"], ["shared"], ["shared"], ["norm_gamma", "norm_beta"]]
    assert stages[3].auxiliary == ["norm_moving_mean", "norm_moving_var"]
    shapes = dict(zip(symbol.list_arguments(), symbol.infer_shape(x=(2, 3))[0]))
    random = np.random.RandomState(0)
    values = {name: mx.nd.array(random.normal(size=shape)) for name, shape in shapes.items()}
    values.update(norm_moving_mean=mx.nd.zeros(4), norm_moving_var=mx.nd.ones(4))
    sent = {}
    for stage in stages:
        given = {**values, **{name: sent[tensor] for name, tensor in stage.received.items()}}
        out = mx.nd.CachedOp(stage.symbol)(*(given[name] for name in stage.symbol.list_inputs()))
        sent.update(zip(stage.outputs, out if isinstance(out, list) else [out]))
    whole = mx.nd.CachedOp(symbol)(*(values[name] for name in symbol.list_inputs()))
    assert np.array_equal(sent[stages[-1].outputs[-1]].asnumpy(), whole.asnumpy())


def test_the_dearest_part_is_as_cheap_as_can_be():
    random = np.random.RandomState(0)
    for count in (1, 2, 3, 4):
        costs = list(random.randint(1, 20, 9).astype(float))

        def dearest(ends):
            return max(sum(costs[start:end]) for start, end in zip([0, *ends], ends))  # noqa: B023

        best = min(dearest([*cut, 9]) for cut in itertools.combinations(range(1, 9), count - 1))
        assert dearest(_ends(costs, count)) == best


def test_balanced_stages_are_consecutive_and_complete():
    symbol = network()
    assert sum(balanced(symbol, {"x": (2, 3)}, 3), []) == operator_names(symbol)
    with pytest.raises(PartitionError, match="5 operators and was to be cut into 6"):
        balanced(symbol, {"x": (2, 3)}, 6)


@pytest.mark.parametrize("stages, message", [
    ([["a"], []], "Stage 1 of 2 has no operator"), ([["a", "b"], ["b"]], "is named in the stages 0 and 1"),
    ([["a"], ["z"]], "name z, which is no operator"), ([["b", "skip"], ["a", "c"]], "of the later stage 1")])
def test_bad_stages_are_refused(stages, message):
    with pytest.raises(PartitionError, match=message):
        partition(network(), stages, ["x"])
