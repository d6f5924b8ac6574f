"""Small random programs, of sizes that divide by nothing in particular, for Hypothesis to draw and shrink."""
from __future__ import annotations

from typing import Dict, List, Tuple

import mxnet as mx
from hypothesis import strategies as st

from tests.search.programs import ProgramWriter

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13)
Tensor = Tuple[mx.sym.Symbol, Tuple[int, ...]]


class _Network:
    """The tensors so far, and the layers that may be added to them."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.writer = ProgramWriter()
        self.weights: Dict[Tuple[int, int], List[mx.sym.Symbol]] = {}
        self.used = set()
        self.count = 0

    def size(self) -> int:
        return self.draw(st.sampled_from(SIZES))

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def take(self, tensors: List[Tensor]) -> Tensor:
        chosen = tensors[self.draw(st.integers(0, len(tensors) - 1))]
        self.used.add(chosen[0].name)
        return chosen

    def dense(self, x: Tensor) -> Tensor:
        symbol, (n, k) = x
        name, m = self.name("fc"), self.size()
        shared = self.weights.setdefault((m, k), [])
        if shared and self.draw(st.booleans()):
            weight = shared[0]
        else:
            weight = self.writer.parameter(f"{name}_weight", m, k)
            shared.append(weight)
        operands = [symbol, weight]
        bias = self.draw(st.booleans())
        if bias:
            operands.append(self.writer.parameter(f"{name}_bias", m))
        return mx.sym.FullyConnected(*operands, num_hidden=m, no_bias=not bias, name=name), (n, m)

    def activation(self, x: Tensor) -> Tensor:
        return mx.sym.Activation(x[0], act_type="relu", name=self.name("relu")), x[1]

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        if x[1] == y[1] and self.draw(st.booleans()):
            operator = self.draw(st.sampled_from((mx.sym.elemwise_add, mx.sym.elemwise_mul)))
            return operator(x[0], y[0], name=self.name("pair")), x[1]
        if x[1] == y[1][::-1] and self.draw(st.booleans()):
            return mx.sym.dot(x[0], y[0], name=self.name("dot")), (x[1][0], y[1][1])
        joined = mx.sym.concat(x[0], y[0], dim=1, name=self.name("concat"))
        return joined, (x[1][0], x[1][1] + y[1][1])

    def finish(self, tensors: List[Tensor]) -> Dict:
        """Return the graph that ends in all tensors without a use, and maybe in the last one that has some."""
        ends = [symbol for symbol, _ in tensors if symbol.name not in self.used]
        again = [symbol for symbol, _ in tensors[1:] if symbol.name in self.used]
        if again and self.draw(st.booleans()):
            ends.append(again[-1])
        return self.writer.graph(ends[0] if len(ends) == 1 else mx.sym.Group(ends))


@st.composite
def layered(draw: st.DrawFn, most: int) -> Dict:
    """Draw dense layers, activations, sums, products and concatenations: chains, residuals, heads, shared weights."""
    net = _Network(draw)
    batch, width = net.size(), net.size()
    tensors = [(net.writer.input("x", batch, width), (batch, width))]
    layers = draw(st.integers(1, most))
    for i in range(layers):
        kind = draw(st.sampled_from(("dense", "dense", "activation", "pair"))) if i else "dense"
        x = net.take(tensors)
        if kind == "dense":
            made = net.dense(x)
        elif kind == "activation":
            made = net.activation(x)
        else:
            made = net.pairwise(x, net.take([t for t in tensors if t[1][0] == x[1][0]]))
        tensors.append(made)
    return net.finish([t for t in tensors if t[0].name != "x"])


@st.composite
def attention(draw: st.DrawFn, most: int) -> Dict:
    """Draw batched products of a tensor with itself or another, as in attention."""
    net = _Network(draw)
    samples, length, width = net.size(), net.size(), net.size()
    x = net.writer.input("x", samples, length, width)
    x = mx.sym.Activation(x, act_type="tanh", name="h") if draw(st.booleans()) else x
    if draw(st.booleans()):
        width = net.size()
        weight = net.writer.parameter("w", width, net.writer.variables["x"].value.shape[2])
        x = mx.sym.FullyConnected(x, weight, num_hidden=width, no_bias=True, flatten=False, name="project")
    y = net.writer.parameter("y", samples, length, width) if draw(st.booleans()) else x
    scores = mx.sym.batch_dot(x, y, transpose_b=True, name="scores")
    if most > 2 and draw(st.booleans()):
        scores = mx.sym.Activation(scores, act_type="relu", name="weights")
    if draw(st.booleans()):
        scores = mx.sym.batch_dot(scores, x if draw(st.booleans()) else y, name="attended")
    return net.writer.graph(scores)


@st.composite
def convolutional(draw: st.DrawFn, most: int) -> Dict:
    """Draw a convolution, pooling, and another convolution, a sum or a dense layer after it."""
    net = _Network(draw)
    batch, channels, filters = net.size(), net.size(), net.size()
    image = draw(st.sampled_from((3, 4, 6)))

    def convolution(x: mx.sym.Symbol, c: int, m: int) -> mx.sym.Symbol:
        name = net.name("conv")
        return mx.sym.Convolution(
            x, net.writer.parameter(f"{name}_weight", m, c, 3, 3), kernel=(3, 3), pad=(1, 1), num_filter=m,
            no_bias=True, name=name,
        )

    x = convolution(net.writer.input("x", batch, channels, image, image), channels, filters)
    end = draw(st.sampled_from(("residual", "pool", "dense"))) if most > 1 else "pool"
    if end == "residual":
        return net.writer.graph(mx.sym.elemwise_add(convolution(x, filters, filters), x, name="sum"))
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    if end == "dense":
        x = mx.sym.Flatten(x, name="flat")
        x = net.writer.dense(x, "fc", net.size(), filters * (image // 2) ** 2)
    return net.writer.graph(x)


def programs(most: int) -> st.SearchStrategy[Dict]:
    """Return a strategy for graphs (docs/interface.md) of about this many layers at the most."""
    return st.one_of(layered(most), layered(most), attention(most), convolutional(most))
