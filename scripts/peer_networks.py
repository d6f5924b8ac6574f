"""The networks that other automatic parallelisers were run on, as ``bench_peers.py`` compares them."""
from __future__ import annotations

from mxnet import gluon
from mxnet.gluon import nn
from mxnet.gluon.model_zoo import vision


def alexnet() -> gluon.HybridBlock:
    """AlexNet with one tower and 1000 classes, for images of 3x227x227."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(96, 11, 4, activation="relu"), nn.MaxPool2D(3, 2),
            nn.Conv2D(256, 5, padding=2, activation="relu"), nn.MaxPool2D(3, 2),
            nn.Conv2D(384, 3, padding=1, activation="relu"),
            nn.Conv2D(384, 3, padding=1, activation="relu"),
            nn.Conv2D(256, 3, padding=1, activation="relu"), nn.MaxPool2D(3, 2), nn.Flatten(),
            nn.Dense(4096, activation="relu"), nn.Dense(4096, activation="relu"), nn.Dense(1000))
    return net


def vgg16() -> gluon.HybridBlock:
    """VGG-16 with 1000 classes, for images of 3x224x224."""
    return vision.vgg16()


class SummedPerceptron(gluon.HybridBlock):
    """Dense layers of one width without biases, ReLU between them, and the sum of the last one's outputs as the loss.

    Parameters
    ----------
    layers : int
        Number of dense layers, 1 or more.
    width : int
        Inputs and outputs of each.
    """

    def __init__(self, layers: int, width: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layers = nn.HybridSequential()
            for index in range(layers):
                self.layers.add(nn.Dense(width, use_bias=False, activation="relu" if index < layers - 1 else None))

    def hybrid_forward(self, F, x):
        """The loss, of shape ``(1,)``, of `x`, ``(batch, width)``."""
        return F.sum(self.layers(x))


def perceptron() -> gluon.HybridBlock:
    """Four layers of 8192 x 8192."""
    return SummedPerceptron(4, 8192)
