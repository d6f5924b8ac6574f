"""The operators of a network put together into layers, so that a plan can be drawn and read.

An operator without a matrix of parameters, all of whose inputs come from one layer, belongs to that layer: a
convolution, its BatchNorm, activation and pooling are one layer, and so are an addition and the activation behind it.
As nothing but the first operator of a layer reads from other layers, the graph of layers has no cycle either.
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Container, Dict, List, Mapping, Optional, Sequence, Tuple

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
        That of its first operator in the user's graph; of an input or an output of the network, its own.
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

    @property
    def main(self) -> Optional[Operator]:
        """The operator that the layer is called after; None for an input or an output."""
        return next((operator for operator in self.operators if operator.name == self.name),
                    self.operators[0] if self.operators else None)


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
    """Puts the operators together. What :meth:`run` makes a graph of is in the lists and mappings."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]], known: Container[str], heads: Sequence[str]) -> None:
        self._nodes = nodes
        self._heads = heads
        self._operators = [number for number, node in enumerate(nodes) if node["op"] != _VARIABLE]
        self._origins = {number: _nearest(nodes[number]["name"], known) or nodes[number]["name"]
                         for number in self._operators}
        self._tensors = {name: Tensor(name, tuple(output["shape"]), output["itemsize"], node["role"])
                         for node in nodes for name, output in zip(_outputs(node), node["outputs"])}
        self._layers: List[_OpenLayer] = []
        self._layer_of: Dict[int, int] = {}  # of an operator or input, by its position

    def run(self) -> LayerGraph:
        for number, node in enumerate(self._nodes):
            if node["op"] == _VARIABLE and node["role"] == "input":
                self._layer_of[number] = self._new_layer(node["name"], "input")
        for members in self._written_out():
            layer = self._layer_for(members)
            if layer is None:
                layer = self._new_layer(self._origins[members[0]], "layer")
            self._layer_of.update(dict.fromkeys(members, layer))
        for number in self._operators:  # in the order in which they run
            self._layers[self._layer_of[number]].add(self._operator(number), self._tensors)
        return self._graph()

    def _written_out(self) -> List[List[int]]:
        """The operators, those that one was written out as together, so that each reads from earlier ones."""
        together: Dict[str, List[int]] = {}
        for number in self._operators:
            together.setdefault(self._origins[number], []).append(number)
        waiting = {origin: {self._origins[source] for number in members for source in self._sources(number)
                            if source in self._origins} - {origin} for origin, members in together.items()}
        ready = [(together[origin][-1], origin) for origin, sources in waiting.items() if not sources]
        heapify(ready)
        readers: Dict[str, List[str]] = {}
        for origin, sources in waiting.items():
            for source in sources:
                readers.setdefault(source, []).append(origin)
        order = []
        while ready:
            _, origin = heappop(ready)
            order.append(together[origin])
            for reader in readers.get(origin, ()):
                waiting[reader].discard(origin)
                if not waiting[reader]:
                    heappush(ready, (together[reader][-1], reader))
        # Names that only look as if they belonged together could make a cycle: then each stands for itself.
        return order if len(order) == len(together) else [[number] for number in self._operators]

    def _layer_for(self, members: Sequence[int]) -> Optional[int]:
        """The layer that operators belong to, or None for a new one."""
        sources = {self._layer_of[source] for number in members for source in self._sources(number)
                   if source in self._layer_of and source not in members}
        has_matrix = any(self._nodes[source]["role"] == "parameter"
                         and len(self._nodes[source]["outputs"][0]["shape"]) >= _MATRIX_DIMS
                         for number in members for source in self._sources(number))
        if has_matrix or len(sources) != 1:
            return None
        source, = sources
        return source if self._layers[source].kind == "layer" else None

    def _sources(self, number: int) -> List[int]:
        return [entry[0] for entry in self._nodes[number]["inputs"]]

    def _operator(self, number: int) -> Operator:
        node = self._nodes[number]
        inputs = tuple(tensor_name(self._nodes, entry) for entry in node["inputs"])
        return Operator(node["name"], node["op"], inputs, tuple(_outputs(node)), node["rule"], self._origins[number])

    def _graph(self) -> LayerGraph:
        makers: Dict[str, int] = {}
        for number, layer in self._layer_of.items():
            makers.update(dict.fromkeys([self._nodes[number]["name"], *_outputs(self._nodes[number])], layer))
        edges: Dict[Tuple[int, int, str], None] = {}
        for number in self._operators:
            for entry in self._nodes[number]["inputs"]:
                source, target = self._layer_of.get(entry[0]), self._layer_of[number]
                if source is not None and source != target:
                    edges[source, target, tensor_name(self._nodes, entry)] = None
        for number, layer in enumerate(self._layers):
            for name in layer.parameters:
                makers.setdefault(name, number)
        for number, head in enumerate(self._heads):
            source = makers.get(_nearest(head, makers))
            if source is not None:
                name = "output" if len(self._heads) == 1 else f"output {number}"
                edges[source, self._new_layer(name, "output"), head] = None
        layers = tuple(Layer(layer.name, layer.kind, tuple(layer.operators), tuple(layer.parameters))
                       for layer in self._layers)
        return LayerGraph(layers, tuple(sorted(edges, key=lambda edge: edge[:2])), self._tensors, makers)

    def _new_layer(self, name: str, kind: str) -> int:
        self._layers.append(_OpenLayer(name, kind))
        return len(self._layers) - 1


class _OpenLayer:
    """A layer that is being filled."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.operators: List[Operator] = []
        self.parameters: Dict[str, None] = {}

    def add(self, operator: Operator, tensors: Mapping[str, Tensor]) -> None:
        self.operators.append(operator)
        self.parameters.update({name: None for name in operator.inputs
                                if tensors[name].role in ("parameter", "auxiliary")})


def _outputs(node: Mapping[str, Any]) -> List[str]:
    return [tensor_name([node], (0, number)) for number in range(len(node["outputs"]))]
