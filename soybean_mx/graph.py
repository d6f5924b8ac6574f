"""A Gluon block's symbol and the shapes of one call, as the ``graph`` that the core plans for (docs/interface.md)."""
from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

import mxnet as mx
import numpy as np

from soybean_mx import control_flow, rules

Shape = Tuple[int, ...]

# Operators that draw random numbers, whatever the mode: by the start of their names, and by name.
_RANDOM_PREFIXES = ("_random_", "random_", "_sample_", "sample_", "_image_random_", "_npx__image_random_")
_RANDOM_NAMES = {"normal", "uniform", "shuffle", "_shuffle", "Custom", "_npi_bernoulli", "_npi_multinomial",
                 "_npi_normal", "_npi_normal_n", "_npi_powerd", "_npi_random_randint", "_npi_shuffle", "_npi_uniform",
                 "_npi_uniform_n", "_npi_choice", "_npi_exponential", "_npi_gamma", "_npi_gumbel", "_npi_logistic",
                 "_npi_pareto", "_npi_rayleigh", "_npi_weibull"}


# Operators that write 1 into their second input, gamma, whenever they run with fix_gamma, which is the default.
_FIX_GAMMA = {"BatchNorm", "BatchNorm_v1", "CuDNNBatchNorm", "_contrib_BatchNormWithReLU", "_contrib_SyncBatchNorm",
              "_npx_batch_norm"}


# Operators of (data, weight, bias), of which oneDNN computes no gradient of the bias without that of the weight.
_WITH_BIAS = {"FullyConnected", "Convolution", "Deconvolution", "_npx_fully_connected", "_npx_convolution",
              "_npx_deconvolution"}


class InferenceError(ValueError):
    """The shapes or types of some tensors of a block do not follow from its inputs."""


def describe(
    symbol,
    inputs: Mapping[str, Tuple[Optional[Shape], Any]],
    parameters: Mapping[str, Tuple[Optional[Shape], Any]],
    requires_grad: Set[str],
    training: bool,
    own_operators: bool = False,
) -> Dict[str, Any]:
    """Build the core's ``graph`` for one call of a block.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
        What the block computes.
    inputs, parameters : mapping of str to (tuple of int or None, numpy type)
        Shape and type of each variable that the caller feeds, and of each parameter and auxiliary state. A shape of
        None is to follow from the others.
    requires_grad : set of str
        The variables whose gradient is asked for.
    training : bool
        Whether the graph runs in training mode.
    own_operators : bool
        Whether the parallel graph may use soybean_mx's own operators (:mod:`soybean_mx.operators`).

    Returns
    -------
    dict
        The ``graph`` of docs/interface.md.

    Raises
    ------
    InferenceError
        When a shape or a type does not follow from those given.
    """
    symbol = _with_unique_names(symbol)
    known = {**parameters, **inputs}
    names = set(symbol.list_inputs())
    known = {name: known[name] for name in known if name in names}
    known_shapes = {name: shape for name, (shape, _) in known.items() if shape is not None}
    known_types = {name: np.dtype(dtype) for name, (_, dtype) in known.items()}
    if requires_grad:
        symbol = control_flow.with_sound_gradients(symbol, known_types)
    internals = symbol.get_internals()
    shapes = _infer(control_flow.internals_with_shapes(symbol), "infer_shape", known_shapes)
    types = _infer(internals, "infer_type", known_types)
    auxiliary = set(symbol.list_auxiliary_states())
    graph: Dict[str, Any] = {"symbol": symbol.tojson(), "shapes": {}, "itemsizes": {}, "variables": {},
                             "training": bool(training), "own_operators": bool(own_operators)}
    # The heads of the internals are all visible outputs of all nodes; their JSON says whose.
    text = json.loads(internals.tojson())
    for (node, _, _), shape, dtype in zip(text["heads"], shapes, types):
        name = text["nodes"][node]["name"]
        graph["shapes"].setdefault(name, []).append(list(shape))
        graph["itemsizes"].setdefault(name, []).append(np.dtype(dtype).itemsize)
    for name in symbol.list_inputs():
        role = "input" if name in inputs else "auxiliary" if name in auxiliary else "parameter"
        graph["variables"][name] = {"role": role, "requires_grad": name in requires_grad}
    graph["rules"] = rules.of_nodes(json.loads(graph["symbol"])["nodes"])
    return graph


def weights_beside_trained_biases(symbol, requires_grad: Set[str]) -> Set[str]:
    """The variables that want a gradient only because MXNet leaves out that of a bias beside a weight without one.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
        What the block computes.
    requires_grad : set of str
        The variables whose gradient is asked for.

    Returns
    -------
    set of str
        For each trained bias of a layer whose weight depends on no such variable, the variables that the weight is or
        is computed from.
    """
    nodes = json.loads(symbol.tojson())["nodes"]
    wanted: List[bool] = []  # whether each node depends on one of `requires_grad`
    for node in nodes:
        wanted.append(node["name"] in requires_grad if node["op"] == "null"
                      else any(wanted[source] for source, *_ in node["inputs"]))
    found: Set[str] = set()
    for node in nodes:
        if node["op"] in _WITH_BIAS and len(node["inputs"]) == 3:
            weight, bias = (source for source, *_ in node["inputs"][1:])
            if wanted[bias] and not wanted[weight]:
                found |= _variables_of(nodes, weight)
    return found


def _variables_of(nodes: Sequence[Dict[str, Any]], index: int) -> Set[str]:
    """The names of the variables that a node is or depends on."""
    waiting, seen = [index], {index}
    while waiting:
        for source, *_ in nodes[waiting.pop()]["inputs"]:
            if source not in seen:
                seen.add(source)
                waiting.append(source)
    return {nodes[node]["name"] for node in seen if nodes[node]["op"] == "null"}


def _with_unique_names(symbol):
    """The symbol with other names for all but the first of the operators of one name: a block that is used twice.

    Variables of one name become one: MXNet has a second one for what is used both in the body of a loop and outside.
    """
    graph = json.loads(symbol.tojson())
    names = {node["name"] for node in graph["nodes"]}
    if len(names) == len(graph["nodes"]):
        return symbol
    first: Dict[str, int] = {}
    for index, node in enumerate(graph["nodes"]):
        if node["op"] == "null":
            first.setdefault(node["name"], index)
    for node in graph["nodes"]:
        node["inputs"] = [_of_first(graph["nodes"], first, entry) for entry in node["inputs"]]
    graph["heads"] = [_of_first(graph["nodes"], first, entry) for entry in graph["heads"]]
    seen = set(first)
    for node in graph["nodes"]:
        if node["op"] == "null":
            continue
        name, count = node["name"], 1
        while node["name"] in seen or (count > 1 and node["name"] in names):
            count += 1
            node["name"] = f"{name}_{count}"
        seen.add(node["name"])
    return mx.sym.load_json(json.dumps(graph))


def _of_first(nodes: Sequence[Dict[str, Any]], first: Mapping[str, int], entry: Sequence[int]) -> Sequence[int]:
    """An input or output; where it is a variable, the first one of its name."""
    node = nodes[entry[0]]
    return [first[node["name"]], *entry[1:]] if node["op"] == "null" else entry


def _infer(internals, function: str, known: Dict[str, Any]):
    _, results, _ = getattr(internals, function)(**known)
    unknown = results is None or any(result is None or (isinstance(result, tuple) and _has_unknown(result))
                                     for result in results)
    if unknown:
        unforeseen = _unforeseen(internals, known) if function == "infer_shape" else None
        if unforeseen is not None:
            raise InferenceError(f"The shape of what {unforeseen} gives is not known before it is computed: take the "
                                 "operator out of the hybridized block.")
        given = ", ".join(f"{name}: {value}" for name, value in known.items())
        raise InferenceError(f"{function} leaves some tensors of the block unknown, given {given}: initialise all "
                             "parameters with full shapes and types.")
    return results


def _unforeseen(internals, known: Mapping[str, Any]) -> Optional[str]:
    """The first operator of a result whose shape does not follow from the operands' shapes, which are all known."""
    _, shapes, _ = internals.infer_shape_partial(**known)
    if shapes is None:
        return None
    text = json.loads(internals.tojson())
    least = 0 if mx.util.is_np_shape() else 1  # without NumPy's semantics 0 and () stand for what is not known
    is_known = {(node, index): shape is not None and (least == 0 or len(shape) > 0) and all(n >= least for n in shape)
                for (node, index, _), shape in zip(text["heads"], shapes)}
    for number, node in enumerate(text["nodes"]):
        results = [found for (head, _), found in is_known.items() if head == number]
        if node["op"] != "null" and not all(results) and all(is_known.get(tuple(e[:2]), True) for e in node["inputs"]):
            return f"{node['name']!r} ({node['op']})"
    return None


def _has_unknown(shape: Shape) -> bool:
    return any(extent < 0 for extent in shape)


def fixed_scales(graph_json: str) -> Set[str]:
    """The variables that MXNet sets to 1 in every forward pass: the gamma of a BatchNorm with ``fix_gamma``.

    Parameters
    ----------
    graph_json : str
        A symbol's ``tojson()``.

    Returns
    -------
    set of str
        Names.
    """
    nodes = json.loads(graph_json)["nodes"]
    gammas = [nodes[node["inputs"][1][0]] for node in nodes if node["op"] in _FIX_GAMMA
              and node.get("attrs", {}).get("fix_gamma", "True").lower() in ("true", "1")]
    return {gamma["name"] for gamma in gammas if gamma["op"] == "null"}


def is_random(graph_json: str, training: bool) -> bool:
    """Whether a symbol's result may differ between two runs on the same inputs.

    Parameters
    ----------
    graph_json : str
        A symbol's ``tojson()``.
    training : bool
        Whether it runs in training mode, where Dropout draws.

    Returns
    -------
    bool
        True when in doubt.
    """
    return any(draws(node, training) for node in _all_nodes(json.loads(graph_json)))


def _all_nodes(graph: Dict[str, Any]) -> Iterable[Dict[str, Any]]:
    for node in graph["nodes"]:
        yield node
        for subgraph in node.get("subgraphs", ()):
            yield from _all_nodes(subgraph)


def draws(node: Dict[str, Any], training: bool) -> bool:
    """Whether a node of a symbol's JSON draws random numbers; True when in doubt."""
    operator, attributes = node["op"], node.get("attrs", {})
    if operator in ("Dropout", "_npx_dropout"):
        return training or attributes.get("mode") == "always"
    if operator in ("LeakyReLU", "_npx_leaky_relu"):
        return training and attributes.get("act_type") == "rrelu"
    if operator in ("RNN", "_npx_rnn"):
        return training and float(attributes.get("p", 0)) > 0
    return operator in _RANDOM_NAMES or (operator.startswith(_RANDOM_PREFIXES) and "_pdf_" not in operator)
