"""Networks whose depth is a parameter, for the time that planning takes by depth.

Every function of this module that a name such as ``perceptron_300`` or ``resnet_10`` asks for takes no arguments and
returns a block, so that `soybean-mx plan depth_networks:perceptron_300` can be asked for too.
"""
from __future__ import annotations

import functools
import re
from typing import Callable

from mxnet import gluon
from mxnet.gluon import nn
from mxnet.gluon.model_zoo.vision import BottleneckV1, ResNetV1

WIDTH = 1024  # inputs and outputs of each layer of the perceptrons


def perceptron(layers: int) -> gluon.HybridBlock:
    """Dense layers of WIDTH x WIDTH with ReLU after each."""
    net = nn.HybridSequential()
    for _ in range(layers):
        net.add(nn.Dense(WIDTH, in_units=WIDTH, activation="relu"))
    return net


def resnet(times: int) -> gluon.HybridBlock:
    """ResNet-50 v1 with `times` as many blocks in each of its stages, for images of 3x224x224."""
    return ResNetV1(BottleneckV1, [times * blocks for blocks in (3, 4, 6, 3)], [64, 256, 512, 1024, 2048])


def __getattr__(name: str) -> Callable[[], gluon.HybridBlock]:
    match = re.fullmatch(r"(perceptron|resnet)_([1-9]\d*)", name)
    if match is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return functools.partial(globals()[match.group(1)], int(match.group(2)))
