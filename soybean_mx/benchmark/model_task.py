"""Models as tasks of a benchmark: random inputs of their shapes, and losses for their outputs."""
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import gluon

from soybean_mx import model_loading

Shape = Tuple[int, ...]


@dataclass(frozen=True)
class Input:
    """One input.

    Parameters
    ----------
    shape : tuple of int
        With the batch in front.
    whole_below : int, optional
        It holds whole numbers from 0 to below this; None: it is normally distributed.
    """

    shape: Shape
    whole_below: Optional[int] = None


@dataclass(frozen=True)
class ModelTask:
    """A network and what it learns from.

    Parameters
    ----------
    network : callable
        Gives a new network, not initialised.
    inputs : tuple of Input
        In the network's order.
    outputs : tuple of tuple of int
        The shape of each output, with the batch in front. One of two dims is taken for scores of classes.
    """

    network: Callable[[], gluon.HybridBlock]
    inputs: Tuple[Input, ...]
    outputs: Tuple[Shape, ...]

    def batch(self, batch_size: int, dtype: str) -> Tuple[List[mx.nd.NDArray], List[Optional[mx.nd.NDArray]]]:
        """Random inputs, and the labels of each output; on the host.

        Whole numbers stay in 32 bits: float16 does not hold them.
        """
        rng = np.random.RandomState(0)
        inputs = []
        for item in self.inputs:
            if item.whole_below is None:
                inputs.append(_array(rng.standard_normal(item.shape), dtype))
            else:
                inputs.append(_array(rng.randint(0, item.whole_below, item.shape), "float32"))
        labels = [_array(rng.randint(0, shape[1], batch_size), dtype) if len(shape) == 2 else None
                  for shape in self.outputs]
        return inputs, labels


def _array(values: np.ndarray, dtype: str):
    array = mx.nd.array(values, dtype=dtype)
    return array.as_np_ndarray() if mx.util.is_np_array() else array


def loaded_task(model: str, batch_size: Optional[int], input_shapes: Any, dtype: str,
                classes: Optional[int]) -> ModelTask:
    """The task of a model that ``soybean-mx bench`` was given.

    Parameters
    ----------
    model, batch_size, input_shapes, dtype, classes
        As of :func:`soybean_mx.model_loading.load`.

    Raises
    ------
    soybean_mx.model_loading.ModelError
        When it cannot be loaded.
    """
    loaded = model_loading.load(model, batch_size, input_shapes, dtype, classes)
    return of_model(loaded, lambda: model_loading.block(model, classes, tuple(inputs_of(loaded))))


def of_model(loaded: model_loading.LoadedModel, network: Callable[[], gluon.HybridBlock]) -> ModelTask:
    """The task of a model that is loaded already, and of which `network` gives new ones."""
    graph = json.loads(loaded.graph["symbol"])
    shapes, nodes = loaded.graph["shapes"], graph["nodes"]
    outputs = tuple(tuple(shapes[nodes[node]["name"]][index]) for node, index, *_ in graph["heads"])
    below = _whole_below(nodes)
    inputs = tuple(Input(shape, below.get(name)) for name, shape in inputs_of(loaded).items())
    return ModelTask(network, inputs, outputs)


def inputs_of(loaded: model_loading.LoadedModel) -> Dict[str, Shape]:
    """The shapes of all that must be fed: the inputs, and labels of an exported symbol that has its loss in it."""
    variables, shapes = loaded.graph["variables"], loaded.graph["shapes"]
    return {**loaded.input_shapes, **{name: tuple(shapes[name][0]) for name, variable in variables.items()
                                      if variable["role"] == "input"}}


def _whole_below(nodes: Sequence[Mapping[str, Any]]) -> Dict[str, int]:
    """Variables that pick rows of a table, with the number of its rows, and labels of classes."""
    result = {}
    for node in nodes:
        rows = node.get("attrs", {}).get("input_dim")
        if node["op"] == "Embedding" and rows is not None:
            result[nodes[node["inputs"][0][0]]["name"]] = int(rows)
        elif node["op"] == "null" and node["name"].endswith("label"):
            result[node["name"]] = 2
    return result
