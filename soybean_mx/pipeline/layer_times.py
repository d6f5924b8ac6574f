"""Profiles of Gluon models, measured: every operator on its own, on one CPU context.

An operator runs as a symbol of its own, with inputs of the shapes and types that it has in the network and gradients
for those of its inputs that have one there. Each pass is timed from its call until its results are there, which
includes what MXNet's executor takes for one operator. Operators alike (the same attributes, shapes, types and
gradients) are measured once.
"""
from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import mxnet as mx
import numpy as np

from soybean_mx.graph import describe
from soybean_mx.pipeline.profile import Layer, Profile, ProfileError

Shape = Tuple[int, ...]
Tensor = Tuple[int, int]  # a node's index and which of its outputs

_FLOATS = {2: np.dtype("float16"), 4: np.dtype("float32"), 8: np.dtype("float64")}
# Attributes that a description leaves out: they do not change what is computed.
_TUNING = {"workspace", "cudnn_off", "cudnn_tune", "layout"}


class Measurement(NamedTuple):
    """The seconds of one operator's passes."""

    forward: float
    backward: float


class MeasuredModel(NamedTuple):
    """A profile, and how many of its operators were measured: all that differ."""

    profile: Profile
    measured: int


class Operator(NamedTuple):
    """An operator of a network with what it reads, as far as its time depends on it.

    Attributes
    ----------
    node : mapping
        Of the network's symbol.
    shapes, types : tuple
        Of its inputs.
    gradients : tuple of bool
        Which of the inputs have a gradient.
    outputs : int
        How many it has.
    """

    node: Mapping[str, Any]
    shapes: Tuple[Shape, ...]
    types: Tuple[str, ...]
    gradients: Tuple[bool, ...]
    outputs: int

    def key(self) -> str:
        """Equal for operators alike."""
        node = {name: value for name, value in self.node.items() if name not in ("name", "inputs")}
        return json.dumps([node, self.shapes, self.types, self.gradients, self.outputs], sort_keys=True)


def measure(graph: Mapping[str, Any], input_shapes: Mapping[str, Sequence[int]], dtype: str, repeats: int = 5,
            progress: Optional[Callable[[int, int], None]] = None,
            context: Optional[mx.Context] = None,
            counts: Callable[[Sequence[float]], float] = statistics.median) -> MeasuredModel:
    """Time every operator of a network.

    Parameters
    ----------
    graph : mapping
        The ``graph`` of docs/interface.md, such as :func:`soybean_mx.model_loading.load` gives.
    input_shapes : mapping of str to sequence of int
        The shapes of the network's inputs.
    dtype : str
        Of the inputs.
    repeats : int
        How often each pass is timed after a first run that is not.
    progress : callable, optional
        Called with how many operators are done, and how many there are to measure.
    context : mxnet.Context, optional
        The device; a CPU unless given.
    counts : callable
        Which of the times counts.

    Returns
    -------
    MeasuredModel
        The layers are named after the operators, in topological order behind one ``Input`` for each input; a
        parameter counts for the first operator that reads it. The sizes of outputs are those that others can read.

    Raises
    ------
    ProfileError
        When an operator cannot be run on its own.
    """
    nodes = json.loads(graph["symbol"])["nodes"]
    types = _types(graph, nodes, dict.fromkeys(input_shapes, dtype))
    operators = _operators(graph, nodes, types)
    wanted: Dict[str, Operator] = {}
    for operator in operators.values():
        wanted.setdefault(operator.key(), operator)
    times: Dict[str, Measurement] = {}
    for done, (key, operator) in enumerate(wanted.items()):
        if progress is not None:
            progress(done, len(wanted))
        times[key] = _time(operator, repeats, context or mx.cpu(), counts)
    if progress is not None:
        progress(len(wanted), len(wanted))
    layers, edges = [], []
    counted: Set[str] = set()
    for index, node in enumerate(nodes):
        name = node["name"]
        size = _bytes(graph, name)
        if node["op"] == "null":
            if graph["variables"].get(name, {}).get("role") == "input":
                layers.append(Layer(name, "Input", 0.0, 0.0, size, 0.0))
            continue
        parameters = 0.0
        sources = []
        for source, *_ in node["inputs"]:
            read = nodes[source]
            role = graph["variables"].get(read["name"], {}).get("role") if read["op"] == "null" else None
            if role == "parameter" and read["name"] not in counted:
                counted.add(read["name"])
                parameters += _bytes(graph, read["name"])
            elif role == "input" or read["op"] != "null":
                sources.append(read["name"])
        measured = times[operators[index].key()]
        layers.append(Layer(name, _description(node), measured.forward, measured.backward, size, parameters))
        edges += [(source, name) for source in dict.fromkeys(sources)]
    return MeasuredModel(Profile(tuple(layers), tuple(edges)), len(wanted))


def seconds_of_operators(symbol: mx.sym.Symbol, inputs: Mapping[str, Tuple[Shape, Any]],
                         parameters: Mapping[str, Tuple[Shape, Any]], trained: Set[str],
                         context: mx.Context) -> Dict[str, float]:
    """What each operator of a network takes for a minibatch, with the update of its weights by SGD with momentum.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
        The network.
    inputs, parameters : mapping of str to (tuple of int, numpy type)
        Shape and type of each input, and of each parameter and auxiliary state.
    trained : set of str
        The parameters that are trained.
    context : mxnet.Context
        The device.

    Returns
    -------
    dict of str to float
        Seconds by the operators' names; the least of five, for stages of a busy machine are to be balanced too.

    Raises
    ------
    ProfileError
        When an operator cannot be run on its own.
    """
    graph = describe(symbol, inputs, parameters, trained, True)
    shapes = {name: shape for name, (shape, _) in inputs.items()}
    dtype = next(iter(inputs.values()))[1]
    profile = measure(graph, shapes, np.dtype(dtype).name, 5, context=context, counts=min).profile
    rate = _update_seconds_per_byte(context)
    return {layer.name: layer.forward_seconds + layer.backward_seconds + rate * layer.parameter_bytes
            for layer in profile.layers}


def _update_seconds_per_byte(context: mx.Context) -> float:
    weight, gradient, state, new = (mx.nd.ones((1 << 22,), context) for _ in range(4))
    times = []
    for _ in range(4):
        start = time.perf_counter()
        mx.nd.sgd_mom_update(weight, gradient, state, out=new, lr=0.0, momentum=0.9)
        new.wait_to_read()
        times.append(time.perf_counter() - start)
    return min(times[1:]) / (4 * weight.size)


def _bytes(graph: Mapping[str, Any], name: str) -> float:
    """The size of all outputs of a node."""
    return float(sum(int(np.prod(shape, dtype=np.int64)) * size
                     for shape, size in zip(graph["shapes"].get(name, ()), graph["itemsizes"].get(name, ()))))


def _description(node: Mapping[str, Any]) -> str:
    attributes = {name: value for name, value in node.get("attrs", {}).items()
                  if name not in _TUNING and not name.startswith("__")}
    return f"{node['op']}({', '.join(f'{name}={value}' for name, value in attributes.items())})"


def _types(graph: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]], known: Mapping[str, Any]) -> Dict[Tensor, str]:
    """The numpy type of every tensor. The graph knows its size alone: where MXNet infers none, floats of that size."""
    symbol = mx.sym.load_json(graph["symbol"])
    internals = symbol.get_internals()
    names = set(symbol.list_inputs())
    given = {name: np.dtype(dtype) for name, dtype in known.items() if name in names}
    _, inferred, _ = internals.infer_type_partial(**given)
    found: Dict[Tensor, str] = {}
    heads = json.loads(internals.tojson())["heads"]
    for position, (node, output, *_) in enumerate(heads):
        sizes = graph["itemsizes"].get(nodes[node]["name"], ())
        if output >= len(sizes):
            continue
        guess = inferred[position] if inferred else None
        kind = None if guess is None else np.dtype(guess)
        if kind is None or kind.itemsize != sizes[output]:
            kind = _FLOATS.get(sizes[output], np.dtype("int8"))
        found[node, output] = kind.name
    return found


def _operators(graph: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]],
               types: Mapping[Tensor, str]) -> Dict[int, Operator]:
    depends: List[bool] = []  # whether each node has a gradient: depends on a variable that has one
    found: Dict[int, Operator] = {}
    for index, node in enumerate(nodes):
        if node["op"] == "null":
            depends.append(bool(graph["variables"].get(node["name"], {}).get("requires_grad")))
            continue
        reads = [(source, output) for source, output, *_ in node["inputs"]]
        depends.append(any(depends[source] for source, _ in reads))
        if not reads and "shape" in node.get("attrs", {}):  # which may follow from who reads it, here nobody
            shape = tuple(graph["shapes"][node["name"]][0])
            node = {**node, "attrs": {**node["attrs"], "shape": str(shape)}}
        found[index] = Operator(
            node, tuple(tuple(graph["shapes"][nodes[source]["name"]][output]) for source, output in reads),
            tuple(types[tensor] for tensor in reads),
            tuple(depends[source] and np.dtype(types[source, output]).kind == "f" for source, output in reads),
            len(graph["shapes"][node["name"]]))
    return found


def _alone(operator: Operator) -> mx.sym.Symbol:
    """The operator as a symbol that has a variable for each of its inputs."""
    count = len(operator.shapes)
    variables = [{"op": "null", "name": f"in{number}", "inputs": []} for number in range(count)]
    node = {**operator.node, "name": "operator", "inputs": [[number, 0, 0] for number in range(count)]}
    return mx.sym.load_json(json.dumps({
        "nodes": [*variables, node], "arg_nodes": list(range(count)), "node_row_ptr": list(range(count + 2)),
        "heads": [[count, output, 0] for output in range(operator.outputs)],
        "attrs": json.loads(mx.sym.var("x").tojson())["attrs"]}))  # the version


def operators_of(graph: Mapping[str, Any], types: Mapping[str, Any]) -> Dict[str, Operator]:
    """The operators of a network by name.

    Parameters
    ----------
    graph : mapping
        The network, as :func:`measure` takes it.
    types : mapping of str to numpy type
        Of its variables.
    """
    nodes = json.loads(graph["symbol"])["nodes"]
    found = _operators(graph, nodes, _types(graph, nodes, types))
    return {nodes[index]["name"]: operator for index, operator in found.items()}


def _time(operator: Operator, repeats: int, context: mx.Context,
          counts: Callable[[Sequence[float]], float]) -> Measurement:
    try:
        executor, heads = bind_alone(operator, any(operator.gradients), context)
        forward, backward = [], []
        for _ in range(repeats + 1):  # the first run allocates, and chooses oneDNN's layouts
            start = time.perf_counter()
            for output in executor.forward(is_train=True):
                output.wait_to_read()
            between = time.perf_counter()
            if heads:
                executor.backward(heads)
                for gradient in executor.grad_arrays:
                    if gradient is not None:
                        gradient.wait_to_read()
            forward.append(between - start)
            backward.append(time.perf_counter() - between)
    except mx.MXNetError as error:
        raise refusal(operator, error) from None
    return Measurement(counts(forward[1:]), counts(backward[1:]) if heads else 0.0)


def refusal(operator: Operator, error: Exception) -> ProfileError:
    """Why an operator cannot be run on its own."""
    said = [line.strip() for line in str(error).splitlines()]
    reason = next((line for line in reversed(said) if line), type(error).__name__)
    return ProfileError(f"The operator {operator.node['name']} ({operator.node['op']}) cannot be run on its own "
                        f"({reason}): profile a model without it.")


def bind_alone(operator: Operator, training: bool, context: mx.Context):
    """An executor of the operator alone, and the gradients of its outputs (none where it has no backward pass)."""
    symbol = _alone(operator)
    names = [f"in{number}" for number in range(len(operator.shapes))]
    arrays = {name: _values(shape, dtype).as_in_context(context)
              for name, shape, dtype in zip(names, operator.shapes, operator.types)}
    auxiliary = {name: arrays.pop(name) for name in symbol.list_auxiliary_states()}
    gradients = {name: mx.nd.zeros_like(arrays[name]) for name, wanted in zip(names, operator.gradients)
                 if training and wanted and name in arrays}
    with _quiet():
        executor = symbol.bind(context, arrays, args_grad=gradients, aux_states=auxiliary,
                               grad_req={name: "write" if name in gradients else "null" for name in arrays})
    heads = []
    if gradients:
        heads = [mx.nd.ones(output.shape, context, output.dtype) for output in executor.forward(is_train=True)]
    mx.nd.waitall()
    return executor, heads


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the line that MXNet prints about oneDNN for every executor."""
    name = "MXNET_SUBGRAPH_VERBOSE"
    before = os.environ.get(name)
    os.environ[name] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _values(shape: Shape, dtype: str) -> mx.nd.NDArray:
    """Numbers from 0.1 to 1, of which logarithms and roots are defined and which index the first item; or zeros."""
    if np.dtype(dtype).kind != "f":
        return mx.nd.zeros(shape, dtype=dtype)
    return mx.nd.random.uniform(0.1, 1.0, shape).astype(dtype)
