"""Small models in MXNet's numpy mode. Making one switches the mode on for the whole process."""
from __future__ import annotations

from typing import List, Sequence

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock, nn

from sample_blocks import Example, Examples, sequential
from sample_model import Inputs

BATCH = 8


class Normalized(HybridBlock):
    """A product with a weight, written with the operators of ``F.np`` and ``F.npx``."""

    def __init__(self, features: int, units: int):
        super().__init__()
        self.weight = self.params.get("weight", shape=(features, units))
        self.bias = self.params.get("bias", shape=(units,), init="zeros")

    def hybrid_forward(self, F, x, weight, bias):
        """Probabilities, and how much each row holds."""
        scores = F.np.dot(x, weight) + bias
        scores = scores / F.np.sqrt(F.np.mean(F.np.square(scores), axis=-1, keepdims=True) + 1)
        return F.npx.softmax(scores, axis=-1), F.np.sum(F.np.abs(scores), axis=-1)


def normal(*shape: int) -> Inputs:
    """Normally distributed values."""
    def draw(rs: np.random.RandomState) -> List[mx.np.ndarray]:
        return [mx.np.array(rs.normal(size=shape), dtype="float32")]

    return draw


def of(*blocks: HybridBlock, sample: Sequence[int]) -> Example:
    """The blocks one after the other, on samples of that shape."""
    # Of another type, parameters cannot be drawn in this mode.
    return Example(sequential(*blocks), normal(BATCH, *sample), "float32")


def dense() -> Example:
    """Dense layers."""
    mx.npx.set_np()
    return of(nn.Dense(12, activation="relu"), nn.LayerNorm(), nn.Dense(9, activation="tanh"), Normalized(9, 6),
              sample=(10,))


def convolutional() -> Example:
    """Convolutions, poolings and a BatchNorm."""
    mx.npx.set_np()
    return of(nn.Conv2D(8, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(),
              nn.Conv2D(8, 3, groups=2), nn.AvgPool2D(2), nn.Flatten(), nn.Dense(9), Normalized(9, 6),
              sample=(4, 12, 12))


EXAMPLES: Examples = {"numpy_dense": dense, "numpy_convolutional": convolutional}
