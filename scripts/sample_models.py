"""What a catalogue of small models holds: a block that is not initialised, and the arrays of one call of it."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, List, Sequence

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock, nn

Inputs = Callable[[np.random.RandomState], List[mx.nd.NDArray]]

# Dropout with these rates keeps or drops every element with near certainty, so that a run on many devices, which draws
# other numbers than one device does, can be compared with it, and every operator that draws is in the graph.
KEEPS_ALL, DROPS_ALL = 1e-7, 1 - 1e-7


@dataclass(frozen=True)
class SampleModel:
    """A small model that can be trained.

    Parameters
    ----------
    net : HybridBlock
        The model, not initialised. Its outputs may be nested lists.
    inputs : callable
        Draws the arrays of one call from a generator; gradients can be asked for those of a floating type.
    """

    net: HybridBlock
    inputs: Inputs


Catalogue = Dict[str, Callable[[], SampleModel]]


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
