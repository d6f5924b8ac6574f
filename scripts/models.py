"""The image classifiers that the training scripts know, by name.

``alexnet`` and ``vgg*`` have the layers and the structure of ``mxnet.gluon.model_zoo``, so that at ``width=1`` their
``.params`` files are interchangeable with the zoo's; `width` scales every hidden layer for small images and slow
machines. ``mlp`` and ``mlpN`` are plain multi-layer perceptrons. Any other name is looked up in the model zoo.
"""
from __future__ import annotations

import re
from typing import List, Sequence

import mxnet as mx
from mxnet.gluon import nn

VGG_STAGE_FILTERS = (64, 128, 256, 512, 512)
VGG_STAGE_DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
MLP_HIDDEN = (512, 256)


def scaled(size: int, width: float) -> int:
    """`size` channels or units times `width`, as a multiple of 8 and at least 8 (unchanged at ``width=1``)."""
    return size if width == 1 else max(8, 8 * round(size * width / 8))


class AlexNet(nn.HybridBlock):
    """The one-tower AlexNet of "One weird trick for parallelizing convolutional neural networks" (1404.5997).

    Parameters
    ----------
    classes : int
        Number of classes.
    width : float
        Factor on the channels and units of every hidden layer.

    Notes
    -----
    Input ``(batch, channels, height, width)``, height and width at least 63; output ``(batch, classes)``.
    """

    def __init__(self, classes: int = 1000, width: float = 1.0, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                self.features.add(
                    nn.Conv2D(scaled(64, width), kernel_size=11, strides=4, padding=2, activation="relu"),
                    nn.MaxPool2D(pool_size=3, strides=2),
                    nn.Conv2D(scaled(192, width), kernel_size=5, padding=2, activation="relu"),
                    nn.MaxPool2D(pool_size=3, strides=2),
                    nn.Conv2D(scaled(384, width), kernel_size=3, padding=1, activation="relu"),
                    nn.Conv2D(scaled(256, width), kernel_size=3, padding=1, activation="relu"),
                    nn.Conv2D(scaled(256, width), kernel_size=3, padding=1, activation="relu"),
                    nn.MaxPool2D(pool_size=3, strides=2),
                    nn.Flatten(),
                    nn.Dense(scaled(4096, width), activation="relu"),
                    nn.Dropout(0.5),
                    nn.Dense(scaled(4096, width), activation="relu"),
                    nn.Dropout(0.5),
                )
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F, x):
        """Class scores of the images `x`."""
        return self.output(self.features(x))


class VGG(nn.HybridBlock):
    """VGG of "Very deep convolutional networks for large-scale image recognition" (1409.1556).

    Parameters
    ----------
    layers : int
        11, 13, 16 or 19.
    classes : int
        Number of classes.
    width : float
        Factor on the channels and units of every hidden layer.
    batch_norm : bool
        Whether a BatchNorm follows every convolution.

    Notes
    -----
    Input ``(batch, channels, height, width)``, height and width at least 32; output ``(batch, classes)``.
    """

    def __init__(self, layers: int, classes: int = 1000, width: float = 1.0, batch_norm: bool = False, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            for depth, filters in zip(VGG_STAGE_DEPTHS[layers], VGG_STAGE_FILTERS):
                self._add_stage(depth, scaled(filters, width), batch_norm)
            for _ in range(2):
                self.features.add(
                    nn.Dense(scaled(4096, width), activation="relu", weight_initializer="normal"),
                    nn.Dropout(0.5),
                )
            self.output = nn.Dense(classes, weight_initializer="normal")

    def _add_stage(self, depth: int, filters: int, batch_norm: bool) -> None:
        for _ in range(depth):
            initializer = mx.init.Xavier(rnd_type="gaussian", factor_type="out", magnitude=2)
            self.features.add(nn.Conv2D(filters, kernel_size=3, padding=1, weight_initializer=initializer))
            if batch_norm:
                self.features.add(nn.BatchNorm())
            self.features.add(nn.Activation("relu"))
        self.features.add(nn.MaxPool2D(strides=2))

    def hybrid_forward(self, F, x):
        """Class scores of the images `x`."""
        return self.output(self.features(x))


def multilayer_perceptron(hidden: Sequence[int], classes: int) -> nn.HybridSequential:
    """Fully connected layers of `hidden` units with ReLU, then one of `classes` units."""
    net = nn.HybridSequential()
    with net.name_scope():
        for units in hidden:
            net.add(nn.Dense(units, activation="relu"))
        net.add(nn.Dense(classes))
    return net


def zoo_names() -> List[str]:
    """Names of the models of ``mxnet.gluon.model_zoo``."""
    try:
        mx.gluon.model_zoo.vision.get_model("")
    except ValueError as error:  # the zoo publishes its names only in this message
        return sorted(str(error).split("\n\t")[1:])
    raise RuntimeError("mxnet.gluon.model_zoo accepted an empty model name.")


def create(name: str, classes: int, width: float = 1.0) -> mx.gluon.HybridBlock:
    """Build the model called `name`, uninitialised.

    Parameters
    ----------
    name : str
        ``alexnet``, ``vgg{11,13,16,19}`` with or without ``_bn``, ``mlp`` (two hidden layers), ``mlpN`` (four layers,
        all N wide, so `classes` plays no part), or a name of the Gluon model zoo.
    classes : int
        Number of classes.
    width : float
        Factor on the hidden layers; only of the models of this file.

    Raises
    ------
    ValueError
        If no model has that name, or a zoo model is asked for at another width than 1.
    """
    if name == "alexnet":
        return AlexNet(classes, width)
    vgg = re.fullmatch(r"vgg(11|13|16|19)(_bn)?", name)
    if vgg:
        return VGG(int(vgg.group(1)), classes, width, batch_norm=vgg.group(2) is not None)
    if name == "mlp":
        return multilayer_perceptron([scaled(units, width) for units in MLP_HIDDEN], classes)
    square = re.fullmatch(r"mlp([1-9][0-9]*)", name)
    if square:
        units = scaled(int(square.group(1)), width)
        return multilayer_perceptron([units] * 3, units)
    return _from_zoo(name, classes, width)


def smallest_image(name: str) -> int:
    """Height and width that images must have at least for the poolings of `name`; 1 where that is not known."""
    return 63 if name == "alexnet" else 32 if name.startswith("vgg") else 1


def _from_zoo(name: str, classes: int, width: float) -> mx.gluon.HybridBlock:
    known = zoo_names()
    if name not in known:
        raise ValueError(
            f"There is no model {name!r}; give alexnet, vgg11 to vgg19 (also with _bn), mlp, mlpN, or one of: "
            + ", ".join(known) + "."
        )
    if width != 1:
        raise ValueError(f"--width {width} was given, but {name} is of the model zoo, at width 1 only; drop --width.")
    return mx.gluon.model_zoo.vision.get_model(name, classes=classes)
