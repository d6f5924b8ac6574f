"""Whether a network treats its samples one by one, so that a batch of them may be cut into microbatches.

The core's rules (csrc/rules/rule.h) say which index runs along each dim of an operator's tensors. From the inputs on,
the dim of the samples is followed through all operators: along one index of each, which no operator sums over or takes
statistics over. Whether an operator states its extent, MXNet says: the shapes of a microbatch must be those of the
batch but for this dim.
"""
from __future__ import annotations

import json
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import mxnet as mx

from soybean_mx.graph import InferenceError, draws

Tensor = Tuple[int, int]


class SampleDims(NamedTuple):
    """Where the samples are.

    ``outputs`` has the dim of each of the network's outputs; it is None where the batch cannot be cut, and ``reason``
    says why, as the end of a sentence. ``statistics`` names an operator that takes statistics of each microbatch.
    """

    outputs: Optional[List[int]]
    reason: str = ""
    statistics: Optional[str] = None


def sample_dims(graph: Mapping[str, Any], rules: Mapping[str, Any], inputs: Set[str],
                sizes: Iterable[int], described: Callable[[int], Mapping[str, Any]]) -> SampleDims:
    """Follow the samples through a network.

    An operator with a state (BatchNorm in training) takes its statistics over the samples that it is given, which is
    taken as allowed: a microbatch has statistics of its own.

    Parameters
    ----------
    graph : mapping
        What the core plans for (docs/interface.md).
    rules : mapping
        The rule of each operator, by its name: :func:`soybean_mx.core.rules`.
    inputs : set of str
        The variables whose dim 0 is the samples.
    sizes : iterable of int
        The numbers of samples of the microbatches.
    described : callable
        Gives the graph of the same network for a number of samples.

    Returns
    -------
    SampleDims
        The dim of each output, or why there is none.
    """
    text = json.loads(graph["symbol"])
    nodes = text["nodes"]
    states = {name for name, variable in graph["variables"].items() if variable["role"] == "auxiliary"}
    places: Dict[Tensor, int] = {}
    statistics: Optional[str] = None
    for index, node in enumerate(nodes):
        if node["op"] == "null":
            if node["name"] in inputs:
                places[index, 0] = 0
            continue
        sources: List[Tensor] = [(source, output) for source, output, *_ in node["inputs"]]
        if not any(source in places for source in sources):
            continue
        found = _dims_of_outputs(node, rules[node["name"]], [places.get(source) for source in sources])
        if found is None and any(nodes[source]["name"] in states for source, _ in sources):
            shapes = graph["shapes"]
            same = shapes[node["name"]][0] == shapes[nodes[sources[0][0]]["name"]][sources[0][1]]
            found = [places[sources[0]]] if same and sources[0] in places else None
            statistics = statistics or node["name"]
        if found is None:
            return SampleDims(None, f"{node['name']!r} ({node['op']}) does not treat samples one by one, as far as "
                                    "its rule says")
        places.update(((index, output), dim) for output, dim in enumerate(found))
    for size in sizes:
        try:
            shapes = described(size)["shapes"]
        except (mx.MXNetError, InferenceError) as error:
            return SampleDims(None, f"it states the number of samples: {str(error).strip().splitlines()[-1]}")
        wrong = _misshapen(nodes, places, graph["shapes"], shapes)
        if wrong is not None:
            return SampleDims(None, f"{wrong['name']!r} ({wrong['op']}) states the number of samples")
    heads: Sequence[Tensor] = [(head[0], head[1]) for head in text["heads"]]
    for head in heads:
        if head not in places:
            return SampleDims(None, f"the output {nodes[head[0]]['name']!r} does not depend on the samples")
    return SampleDims([places[head] for head in heads], statistics=statistics)


def _dims_of_outputs(node: Mapping[str, Any], rule: Mapping[str, Any],
                     given: Sequence[Optional[int]]) -> Optional[List[int]]:
    """The samples' dim of each output of an operator, from those of its inputs; None where they are mixed."""
    if not rule["known"] or len(rule["inputs"]) != len(given):
        return None
    factors = {operand["dims"][dim] for operand, dim in zip(rule["inputs"], given) if dim is not None}
    factor = factors.pop()
    if factors or factor < 0:
        return None
    # An operator that makes a gradient of its own may divide it by the number of samples.
    if rule["random"] and not draws(dict(node), training=True):
        return None
    index = rule["factors"][factor]
    if index["reduced"] or index["same"] or index["statistic"]:
        return None
    by_position = [*rule["windows"], *rule["indices"], *rule["own_operands"], *rule["start_attrs"].values()]
    if any(item["factor"] == factor for item in by_position):
        return None
    for operand, dim in zip(rule["inputs"], given):
        if [at for at, other in enumerate(operand["dims"]) if other == factor] != ([] if dim is None else [dim]):
            return None
    result = []
    for operand in rule["outputs"]:
        dims = [at for at, other in enumerate(operand["dims"]) if other == factor]
        if len(dims) != 1:
            return None
        result += dims
    return result


def _misshapen(nodes: Sequence[Mapping[str, Any]], places: Mapping[Tensor, int], whole: Mapping[str, Any],
               part: Mapping[str, Any]) -> Optional[Mapping[str, Any]]:
    """The first node of which a tensor has another shape for a microbatch than it should have."""
    first = nodes[next(iter(places))[0]]["name"]
    size, of = part[first][0][0], whole[first][0][0]
    for index, node in enumerate(nodes):
        for output, shape in enumerate(whole[node["name"]]):
            expected = list(shape)
            if (index, output) in places:
                dim = places[index, output]
                expected[dim] = expected[dim] // of * size
            if list(part[node["name"]][output]) != expected:
                return node
    return None
