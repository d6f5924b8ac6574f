"""The networks of the SoyBean paper's evaluation, as Gluon blocks and as graphs for the planner."""
from __future__ import annotations

from typing import Any, Dict, Mapping

import mxnet as mx
from mxnet.gluon import nn

from soybean_mx import core, model_loading
from soybean_mx.benchmark.model_task import Input, ModelTask
from soybean_mx.reproduction.traffic import BYTES

CNN_LAYERS = 5


def perceptron(width: int, layers: int) -> nn.HybridSequential:
    """Fully connected layers that are all `width` wide, with ReLU between them; `width` inputs and classes."""
    net = nn.HybridSequential()
    with net.name_scope():
        for layer in range(layers):
            net.add(nn.Dense(width, in_units=width, activation="relu" if layer < layers - 1 else None))
    return net


def five_convolutions(filters: int) -> nn.HybridSequential:
    """Five convolutional layers that are all alike, for images of `filters` channels; scores of `filters` classes."""
    net = nn.HybridSequential()
    with net.name_scope():
        for _ in range(CNN_LAYERS):
            net.add(nn.Conv2D(filters, kernel_size=3, padding=1, in_channels=filters, activation="relu"))
        net.add(nn.GlobalAvgPool2D(), nn.Flatten())
    return net


def perceptron_graph(width: int, layers: int, batch: int) -> Dict[str, Any]:
    """The planner's graph (docs/interface.md) of :func:`perceptron`."""
    return model_loading.of_block("perceptron", perceptron(width, layers), [(batch, width)]).graph


def convolutions_graph(size: int, filters: int, batch: int) -> Dict[str, Any]:
    """The planner's graph of :func:`five_convolutions` on images of `size` x `size`."""
    return model_loading.of_block("convolutions", five_convolutions(filters), [(batch, filters, size, size)]).graph


def products(width: int, layers: int, batch: int) -> Dict[str, Any]:
    """The planner's graph of a perceptron without biases and activations, as the paper counts its traffic."""
    symbol = mx.sym.Variable("x")
    shapes = {"x": [[batch, width]]}
    variables: Dict[str, Any] = {"x": {"role": "input", "requires_grad": False}}
    for i in range(layers):
        symbol = mx.sym.FullyConnected(symbol, mx.sym.Variable(f"w{i}"), num_hidden=width, no_bias=True, name=f"fc{i}")
        shapes[f"w{i}"], shapes[f"fc{i}"] = [[width, width]], [[batch, width]]
        variables[f"w{i}"] = {"role": "parameter", "requires_grad": True}
    return {"symbol": symbol.tojson(), "shapes": shapes, "itemsizes": {name: [BYTES] for name in shapes},
            "variables": variables, "training": True}


def planned_bytes(graph: Mapping[str, Any], devices: int) -> int:
    """What the plan of the fewest bytes moves in a step, all devices together."""
    return core.plan(dict(graph), {"devices": devices})["bytes"]["total"]


def perceptron_task(width: int, layers: int, batch: int) -> ModelTask:
    """What trains :func:`perceptron` on this machine."""
    return ModelTask(lambda: perceptron(width, layers), (Input((batch, width)),), ((batch, width),))
