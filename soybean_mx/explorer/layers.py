"""The operators of a network put together into layers, so that a plan can be drawn and read.

An operator without a matrix of parameters, all of whose inputs come from one layer, belongs to that layer: a
convolution, its BatchNorm, activation and pooling are one layer, and so are an addition and the activation behind it.
As nothing but the first operator of a layer reads from other layers, the graph of layers has no cycle either.
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Container, Dict, List, Mapping, Optional, Sequence, Set, Tuple

# The node and the number of one of its outputs.
Entry = Tuple[int, int]

_MATRIX_DIMS = 2
_VARIABLE = "null"


@dataclass(frozen=True)
class Operator:
    """One operator of the program as it is planned.

    Parameters
    ----------
    name, operator : str
        The node's name and its operator.
    inputs, outputs : tuple of str
        The names of its tensors, as the plan has them.
    rule : mapping
        Its rule, as :func:`soybean_mx.core.space` gives it.
    origin : str
        The node of the user's graph that it was written out from, or its own name.
    """

    name: str
    operator: str
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    rule: Mapping[str, Any]
    origin: str


@dataclass(frozen=True)
class Tensor:
    """A tensor of the program.

    Parameters
    ----------
    name : str
        As the plan has it.
    shape : tuple of int
        Its extents.
    itemsize : int
        Bytes of an element.
    role : str
        ``input``, ``parameter``, ``auxiliary`` or ``intermediate``.
    """

    name: str
    shape: Tuple[int, ...]
    itemsize: int
    role: str

    @property
    def bytes(self) -> int:
        """The size of the whole tensor."""
        size = self.itemsize
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True)
class Layer:
    """Operators that are drawn as one.

    Parameters
    ----------
    name : str
        That of its first operator; of an input or an output of the network, its own.
    kind : str
        ``input``, ``layer`` or ``output``.
    operators : tuple of Operator
        In the order in which they run; none for an input or an output.
    parameters : tuple of str
        The names of the parameters and auxiliary states that it reads.
    """

    name: str
    kind: str
    operators: Tuple[Operator, ...]
    parameters: Tuple[str, ...]


@dataclass(frozen=True)
class LayerGraph:
    """The layers of a network and what passes between them.

    Parameters
    ----------
    layers : tuple of Layer
        In a topological order.
    edges : tuple of (int, int, str)
        From layer, to layer, and the tensor that passes; each once.
    tensors : mapping of str to Tensor
        By name, in the order of the program.
    makers : mapping of str to int
        The layer that each operator, tensor, parameter or input belongs to, by its name.
    """

    layers: Tuple[Layer, ...]
    edges: Tuple[Tuple[int, int, str], ...]
    tensors: Mapping[str, Tensor]
    makers: Mapping[str, int]

    def layer_of(self, name: str) -> Optional[int]:
        """The layer of an operator or tensor by its name, or by the one that it was written out from; None if none."""
        return self.makers.get(_nearest(name, self.makers))


def tensor_name(nodes: Sequence[Mapping[str, Any]], entry: Sequence[int]) -> str:
    """What a plan calls an output of a node: its name, with a number behind it from the second on."""
    name = nodes[entry[0]]["name"]
    return name if entry[1] == 0 else f"{name}:{entry[1]}"


def _nearest(name: str, known: Container[str]) -> str:
    """The longest known name that a name is, or begins with up to a ``_``; else nothing."""
    while name and name not in known:
        name = name.rpartition("_")[0]
    return name


def layer_graph(graph: Mapping[str, Any], space: Mapping[str, Any]) -> LayerGraph:
    """Put the operators of a network together.

    Parameters
    ----------
    graph : mapping
        As docs/interface.md says.
    space : mapping
        What :func:`soybean_mx.core.space` gives for it: the program as it is planned.
    """
    nodes = space["nodes"]
    user_graph = json.loads(graph["symbol"])
    known = {node["name"] for node in user_graph["nodes"] if node["op"] != _VARIABLE}
    heads = [tensor_name(user_graph["nodes"], head) for head in user_graph["heads"]]
    return _Grouping(nodes, known, heads).run()


class _Grouping:
    """Goes through the program once. Its results are in the lists and mappings that :meth:`run` makes a graph of."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]], known: Container[str], heads: Sequence[str]) -> None:
        self._nodes = nodes
        self._known = known
        self._heads = heads
        self._layers: List[Dict[str, Any]] = []
        self._makers: Dict[str, int] = {}
        self._tensors: Dict[str, Tensor] = {}
        self._edges: Dict[Tuple[int, int, str], None] = {}
        self._layer_of_origin: Dict[str, int] = {}

    def run(self) -> LayerGraph:
        for node in self._nodes:
            names = [tensor_name([node], (0, number)) for number in range(len(node["outputs"]))]
            for name, output in zip(names, node["outputs"]):
                self._tensors[name] = Tensor(name, tuple(output["shape"]), output["itemsize"], node["role"])
            if node["op"] != _VARIABLE:
                self._place(node, tuple(names))
            elif node["role"] == "input":
                self._makers[node["name"]] = self._new_layer(node["name"], "input")
        for number, head in enumerate(self._heads):
            source = self._makers.get(_nearest(head, self._makers))
            if source is not None:
                name = "output" if len(self._heads) == 1 else f"output {number}"
                self._edges[source, self._new_layer(name, "output"), head] = None
        layers = tuple(Layer(layer["name"], layer["kind"], tuple(layer["operators"]), tuple(layer["parameters"]))
                       for layer in self._layers)
        return LayerGraph(layers, tuple(self._edges), self._tensors, self._makers)

    def _place(self, node: Mapping[str, Any], outputs: Tuple[str, ...]) -> None:
        inputs = [tensor_name(self._nodes, entry) for entry in node["inputs"]]
        origin = _nearest(node["name"], self._known) or node["name"]
        number = self._layer_for(inputs, origin)
        if number is None:
            number = self._new_layer(node["name"], "layer")
        layer = self._layers[number]
        layer["operators"].append(Operator(node["name"], node["op"], tuple(inputs), outputs, node["rule"], origin))
        for name in inputs:
            maker = self._makers.get(name)
            if self._tensors[name].role in ("parameter", "auxiliary"):
                if name not in layer["parameters"]:
                    layer["parameters"].append(name)
                self._makers.setdefault(name, number)
            elif maker is not None and maker != number:
                self._edges[maker, number, name] = None
        for name in (node["name"], *outputs):
            self._makers[name] = number
        self._layer_of_origin.setdefault(origin, number)

    def _layer_for(self, inputs: Sequence[str], origin: str) -> Optional[int]:
        """The layer that an operator belongs to, or None for a new one."""
        if origin in self._layer_of_origin:  # another part of one that was written out
            candidate = self._layer_of_origin[origin]
            sources = {self._makers[name] for name in inputs if self._is_made(name)}
            return candidate if sources <= {candidate} | self._before(candidate) else None
        sources = {self._makers[name] for name in inputs if self._is_made(name) or self._tensors[name].role == "input"}
        has_matrix = any(self._tensors[name].role == "parameter" and len(self._tensors[name].shape) >= _MATRIX_DIMS
                         for name in inputs)
        if has_matrix or len(sources) != 1:
            return None
        source, = sources
        return source if self._layers[source]["kind"] == "layer" else None

    def _before(self, layer: int) -> Set[int]:
        """The layers that a layer reads from: what reads from these too cannot close a cycle."""
        return {source for source, target, _ in self._edges if target == layer}

    def _is_made(self, name: str) -> bool:
        return self._tensors[name].role == "intermediate"

    def _new_layer(self, name: str, kind: str) -> int:
        self._layers.append({"name": name, "kind": kind, "operators": [], "parameters": []})
        return len(self._layers) - 1
