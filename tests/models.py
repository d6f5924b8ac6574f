"""Small versions of the networks that the package promises to train, for 10 classes.

The layers, their order and their attributes are the original ones; images are small and layers narrow, with widths that
few numbers of devices divide. Dropout is left out, as its masks cannot agree between one device and many.
"""
from __future__ import annotations

import zlib
from typing import Callable, Dict, Tuple

import mxnet as mx
import numpy as np
from mxnet.gluon import nn
from mxnet.gluon.model_zoo import vision

CLASSES = 10


class NamedInit(mx.init.Initializer):
    """Draws every parameter from a generator that its own name seeds, so that any two runs start alike.

    Biases and the shifts of BatchNorm are not zero, so that an error relative to them means something.
    """

    def __call__(self, desc, arr) -> None:
        name = str(desc)
        rs = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)
        if name.endswith(("running_var", "gamma")):
            value = rs.uniform(0.8, 1.2, arr.shape)
        elif name.endswith(("bias", "beta", "running_mean")):
            value = rs.uniform(-0.1, 0.1, arr.shape)
        else:
            fan_in = int(np.prod(arr.shape[1:]))
            value = rs.uniform(-1, 1, arr.shape) * np.sqrt(6.0 / fan_in)
        arr[:] = value.astype(arr.dtype)


def mlp() -> nn.HybridSequential:
    """Return a perceptron of four layers for vectors of 30."""
    net = nn.HybridSequential(prefix="mlp_")
    with net.name_scope():
        for width in (50, 36, 28):
            net.add(nn.Dense(width, activation="relu"))
        net.add(nn.Dense(CLASSES))
    return net


def alexnet() -> nn.HybridSequential:
    """Return AlexNet with an eighth of its widths, for 3 x 64 x 64."""
    net = nn.HybridSequential(prefix="alexnet_")
    with net.name_scope():
        net.add(nn.Conv2D(8, kernel_size=11, strides=4, padding=2, activation="relu"))
        net.add(nn.MaxPool2D(pool_size=3, strides=2))
        net.add(nn.Conv2D(24, kernel_size=5, padding=2, activation="relu"))
        net.add(nn.MaxPool2D(pool_size=3, strides=2))
        net.add(nn.Conv2D(48, kernel_size=3, padding=1, activation="relu"))
        net.add(nn.Conv2D(32, kernel_size=3, padding=1, activation="relu"))
        net.add(nn.Conv2D(32, kernel_size=3, padding=1, activation="relu"))
        net.add(nn.MaxPool2D(pool_size=3, strides=2))
        net.add(nn.Flatten())
        net.add(nn.Dense(60, activation="relu"))
        net.add(nn.Dense(60, activation="relu"))
        net.add(nn.Dense(CLASSES))
    return net


def vgg11_bn() -> nn.HybridSequential:
    """Return VGG-11 with BatchNorm and an eighth of its widths, for 3 x 32 x 32."""
    net = nn.HybridSequential(prefix="vgg_")
    with net.name_scope():
        for layers, width in ((1, 8), (1, 16), (2, 32), (2, 64), (2, 64)):
            for _ in range(layers):
                net.add(nn.Conv2D(width, kernel_size=3, padding=1))
                net.add(nn.BatchNorm())
                net.add(nn.Activation("relu"))
            net.add(nn.MaxPool2D(strides=2))
        net.add(nn.Dense(60, activation="relu"))
        net.add(nn.Dense(60, activation="relu"))
        net.add(nn.Dense(CLASSES))
    return net


def resnet18() -> mx.gluon.HybridBlock:
    """Return ResNet-18 of the model zoo with an eighth of its widths, for 3 x 16 x 16."""
    widths = [8, 8, 16, 32, 64]
    return vision.ResNetV1(
        vision.BasicBlockV1, [2, 2, 2, 2], widths, classes=CLASSES, thumbnail=True, prefix="resnet_"
    )


MODELS: Dict[str, Tuple[Callable[[], mx.gluon.HybridBlock], Tuple[int, ...]]] = {
    "mlp": (mlp, (30,)),
    "alexnet": (alexnet, (3, 64, 64)),
    "vgg11_bn": (vgg11_bn, (3, 32, 32)),
    "resnet18": (resnet18, (3, 16, 16)),
}


DATA_SEED = {"mlp": 7, "alexnet": 8, "vgg11_bn": 21, "resnet18": 57}


def batches(model: str, batch_size: int, count: int, dtype: str):
    """Yield `count` batches (data, label) of random images, the same on every run."""
    rs = np.random.RandomState(DATA_SEED[model])
    shape = MODELS[model][1]
    for _ in range(count):
        data = rs.uniform(-1, 1, (batch_size,) + shape).astype(dtype)
        label = rs.randint(0, CLASSES, batch_size).astype("float32")
        yield mx.nd.array(data, dtype=dtype), mx.nd.array(label)
