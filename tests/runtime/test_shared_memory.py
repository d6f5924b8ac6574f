"""Tensors share memory, except where an operator would read what another left."""
from __future__ import annotations

import mxnet as mx
import pytest

from soybean_mx.shared_memory import reads_freed_memory


def reads(symbol: mx.sym.Symbol, gradients: bool = False) -> bool:
    executor = symbol.simple_bind(mx.cpu(), grad_req="write" if gradients else "null", x=(4, 6))
    return reads_freed_memory(executor.debug_str(), symbol.tojson())


def test_inputs_that_are_ignored_must_be_kept():
    x = mx.sym.Variable("x")
    y = mx.sym.sin(x)
    for like in (mx.sym.zeros_like, mx.sym.ones_like):
        assert reads(mx.sym.Group([mx.sym.sum(y), like(y)]))
        assert not reads(mx.sym.Group([y, like(y)])) and not reads(like(x))
    assert reads(mx.sym.Group([mx.sym.sum(y), mx.sym.reshape_like(mx.sym.cos(x), y)]))
    assert not reads(mx.sym.Group([mx.sym.sum(y), mx.sym.reshape_like(y, x)]))


@pytest.mark.parametrize("is_output", (True, False))
def test_gradients_of_zero(is_output):
    # BlockGrad's gradient is zeros_like of its input, where that is one of several outputs.
    parts = mx.sym.split(mx.sym.sin(mx.sym.Variable("x")), num_outputs=2, axis=1)
    stopped = mx.sym.BlockGrad(parts[0])
    symbol = mx.sym.Group([mx.sym.sum(parts[1]), stopped if is_output else mx.sym.sum(stopped)])
    assert reads(symbol, gradients=True) != is_output
