"""What the catalogue of small models in ``sequence_models.py`` is made of."""
from __future__ import annotations

from typing import Callable, Dict, NamedTuple, Optional, Sequence

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from sample_model import Inputs

# Dropout with these rates keeps or drops every element with near certainty, so that a run on many devices, which draws
# other numbers than one device does, can be compared with it, and every operator that draws is in the graph.
KEEPS_ALL, DROPS_ALL = 1e-7, 1 - 1e-7


class Example(NamedTuple):
    """A small network, not initialised, how its inputs are drawn, and what else SampleModel says."""

    net: HybridBlock
    inputs: Inputs
    dtype: Optional[str] = None
    imperative: bool = False


Examples = Dict[str, Callable[[], Example]]


def normal(*shapes: Sequence[int], dtype: str = "float32") -> Inputs:
    """Normally distributed values, one array for each shape."""
    return lambda rs: [mx.nd.array(rs.normal(size=shape), dtype=dtype) for shape in shapes]


def tokens(vocabulary: int, *shapes: Sequence[int], dtype: str = "int32") -> Inputs:
    """Whole numbers below `vocabulary`, one array for each shape."""
    return lambda rs: [mx.nd.array(rs.randint(0, vocabulary, shape), dtype=dtype) for shape in shapes]


def together(*parts: Inputs) -> Inputs:
    """The arrays of several draws, one after the other."""
    return lambda rs: [array for part in parts for array in part(rs)]


def sequential(*blocks: HybridBlock) -> nn.HybridSequential:
    """The blocks one after the other, as one."""
    net = nn.HybridSequential()
    net.add(*blocks)
    return net


class Calling(HybridBlock):
    """A block whose forward pass is a function ``forward(F, children, *inputs)`` on its children.

    Parameters
    ----------
    forward : callable
        What is computed; `children` holds the keyword arguments.
    **children : HybridBlock
        The blocks that it calls.
    """

    def __init__(self, forward: Callable, **children: HybridBlock):
        super().__init__()
        self._forward = forward
        self._named = children
        for name, child in children.items():
            self.register_child(child, name)

    def hybrid_forward(self, F, *inputs):
        """What the function returns."""
        return self._forward(F, self._named, *inputs)
