"""Small serial programs whose optimal tilings can be worked out by hand or by force."""
from __future__ import annotations

from typing import Dict, Sequence

import mxnet as mx
import numpy as np

from tests.lower.execution import graph_of
from tests.lower.random_graphs import Program, Variable


class ProgramWriter:
    """Writes a program of float32 tensors down, layer by layer."""

    def __init__(self) -> None:
        self.variables: Dict[str, Variable] = {}

    def input(self, name: str, *shape: int) -> mx.sym.Symbol:
        """Add an input without gradient."""
        self.variables[name] = Variable("input", False, np.zeros(shape, "float32"))
        return mx.sym.Variable(name)

    def parameter(self, name: str, *shape: int) -> mx.sym.Symbol:
        """Add a parameter with gradient."""
        self.variables[name] = Variable("parameter", True, np.zeros(shape, "float32"))
        return mx.sym.Variable(name)

    def state(self, name: str, *shape: int) -> mx.sym.Symbol:
        """Add a state that an operator changes in place."""
        self.variables[name] = Variable("auxiliary", False, np.ones(shape, "float32"))
        return mx.sym.Variable(name)

    def batch_norm(self, x: mx.sym.Symbol, name: str, channels: int) -> mx.sym.Symbol:
        """Add a BatchNorm over dim 1."""
        parameters = [self.parameter(f"{name}_{kind}", channels) for kind in ("gamma", "beta")]
        states = [self.state(f"{name}_moving_{kind}", channels) for kind in ("mean", "var")]
        return mx.sym.BatchNorm(x, *parameters, *states, name=name)

    def dense(self, x: mx.sym.Symbol, name: str, m: int, k: int, bias: bool = False) -> mx.sym.Symbol:
        """Add a fully connected layer from k to m."""
        inputs = [x, self.parameter(f"{name}_weight", m, k)]
        if bias:
            inputs.append(self.parameter(f"{name}_bias", m))
        return mx.sym.FullyConnected(*inputs, num_hidden=m, no_bias=not bias, name=name)

    def graph(self, symbol: mx.sym.Symbol) -> Dict:
        """Return the JSON form of the program with this symbol."""
        return graph_of(Program(symbol, self.variables, True, "float32"))


def mlp(batch: int, widths: Sequence[int], bias: bool = False, activation: bool = False) -> Dict:
    """Return the graph of an MLP: layer i is ``fc<i>``, from widths[i] to widths[i + 1]."""
    writer = ProgramWriter()
    x = writer.input("x", batch, widths[0])
    for i, (k, m) in enumerate(zip(widths, widths[1:])):
        x = writer.dense(x, f"fc{i}", m, k, bias)
        if activation and i + 2 < len(widths):
            x = mx.sym.Activation(x, act_type="relu", name=f"relu{i}")
    return writer.graph(x)


def residual(batch: int, width: int) -> Dict:
    """Return the graph of a residual block: out = fc1(relu(fc0(h))) + h, with h = tanh(x)."""
    writer = ProgramWriter()
    h = mx.sym.tanh(writer.input("x", batch, width), name="h")
    y = mx.sym.Activation(writer.dense(h, "fc0", width, width), act_type="relu", name="relu0")
    y = writer.dense(y, "fc1", width, width)
    return writer.graph(mx.sym.elemwise_add(y, h, name="sum"))


def two_heads(batch: int, width: int, first: int, second: int) -> Dict:
    """Return the graph of a network with a shared layer and two outputs."""
    writer = ProgramWriter()
    h = writer.dense(writer.input("x", batch, width), "shared", width, width)
    heads = [writer.dense(h, "first", first, width), writer.dense(h, "second", second, width)]
    return writer.graph(mx.sym.Group(heads))


def siamese(batch: int, width: int) -> Dict:
    """Return the graph of a network that uses one weight for two inputs."""
    writer = ProgramWriter()
    weight = writer.parameter("w", width, width)
    sides = []
    for side in ("left", "right"):
        x = writer.input(f"x_{side}", batch, width)
        sides.append(mx.sym.FullyConnected(x, weight, num_hidden=width, no_bias=True, name=f"fc_{side}"))
    return writer.graph(mx.sym.elemwise_mul(*sides, name="product"))


def small_convnet(batch: int, channels: int) -> Dict:
    """Return the graph of convolution, pooling, flatten and a layer."""
    writer = ProgramWriter()
    x = writer.input("x", batch, 2, 4, 4)
    x = mx.sym.Convolution(
        x, writer.parameter("conv_weight", channels, 2, 3, 3), kernel=(3, 3), pad=(1, 1), num_filter=channels,
        no_bias=True, name="conv",
    )
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    return writer.graph(writer.dense(mx.sym.Flatten(x, name="flat"), "fc", 8, channels * 4))
