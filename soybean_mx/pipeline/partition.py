"""Cuts a symbol into stages: symbols of their own, joined by the tensors that cross from one to another.

A tensor that a later stage uses goes straight to it, however many stages lie between. A parameter is an input of every
stage that uses it; the first of them owns it (:class:`soybean_mx.pipeline.trainer.PipelineTrainer` sums the gradients
there). An auxiliary state is changed by the operator that reads it, so it belongs to one stage.
"""
from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx

from soybean_mx.pipeline.symbol_parts import Tensor, cut_out

# A number that is moved takes as long as so many multiplications: 4 bytes at 10 GB/s, 50 Gflop/s of a CPU's core.
PER_NUMBER = 10



class PartitionError(ValueError):
    """Stages that a network cannot be cut into; the message says what to do."""


class StageGraph(NamedTuple):
    """One stage: what it computes, from which tensors of other stages, to which of its own.

    ``inputs`` are the names of the symbol's variables that the caller feeds, ``received`` maps those that stand for
    other stages' tensors to these, and ``outputs`` are the tensors that it computes for others, in the symbol's order.
    """

    symbol: mx.sym.Symbol
    inputs: List[str]
    received: Dict[str, Tensor]
    parameters: List[str]
    auxiliary: List[str]
    outputs: List[Tensor]


def operator_names(symbol: mx.sym.Symbol) -> List[str]:
    """The names of a symbol's operators, in topological order."""
    return [node["name"] for node in json.loads(symbol.tojson())["nodes"] if node["op"] != "null"]


def balanced(symbol: mx.sym.Symbol, shapes: Mapping[str, Sequence[int]], count: int,
             seconds: Optional[Mapping[str, float]] = None) -> List[List[str]]:
    """Consecutive operators, in topological order, so that the slowest stage is as fast as it can be.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
        The network.
    shapes : mapping of str to sequence of int
        Of its inputs.
    count : int
        The number of stages.
    seconds : mapping of str to float, optional
        What each operator takes for a minibatch, with the update of its weights; :func:`estimated_costs` unless given.

    Returns
    -------
    list of list of str
        The names of each stage's operators.

    Raises
    ------
    PartitionError
        When there are fewer operators than stages.
    """
    costs = dict(seconds) if seconds is not None else estimated_costs(symbol, shapes)
    names = operator_names(symbol)
    if len(names) < count:
        raise PartitionError(f"The network has {len(names)} operators and was to be cut into {count} stages: give at "
                             "most as many stages as operators.")
    ends = _ends([costs[name] for name in names], count)
    return [names[start:end] for start, end in zip([0, *ends], ends)]


def estimated_costs(symbol: mx.sym.Symbol, shapes: Mapping[str, Sequence[int]]) -> Dict[str, float]:
    """An estimate of each operator's work for a minibatch, forward and backward and with its weights' update.

    In multiplications: for each matrix or filter among its parameters three times those of that with each row of the
    output (for the output and both gradients), and :data:`PER_NUMBER` for each time that a number is read or written:
    4 for one of the output, 8 for one of a parameter.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
        The network.
    shapes : mapping of str to sequence of int
        Of its inputs.

    Returns
    -------
    dict of str to float
        By the operators' names.
    """
    nodes = json.loads(symbol.tojson())["nodes"]
    sizes = _shapes(symbol, shapes)
    result = {}
    for node in nodes:
        if node["op"] == "null":
            continue
        out = _size(sizes.get(node["name"] + "_output") or sizes.get(node["name"] + "_output0") or (1,))
        held = [sizes[nodes[source]["name"]] for source, *_ in node["inputs"]
                if nodes[source]["op"] == "null" and nodes[source]["name"] not in shapes]
        products = sum(_size(shape) // max(1, shape[0]) * out for shape in held if len(shape) > 1)
        result[node["name"]] = 3.0 * products + PER_NUMBER * (4 * out + 8 * sum(map(_size, held)))
    return result


def _shapes(symbol: mx.sym.Symbol, given: Mapping[str, Sequence[int]]) -> Dict[str, Tuple[int, ...]]:
    inner = symbol.get_internals()
    known = {name: tuple(shape) for name, shape in given.items()}
    arguments, outputs, states = inner.infer_shape_partial(**known)
    result = dict(zip(inner.list_arguments(), arguments))
    result.update(zip(inner.list_outputs(), outputs))
    result.update(zip(inner.list_auxiliary_states(), states))
    return {name: tuple(shape or ()) for name, shape in result.items()}


def _size(shape: Sequence[int]) -> int:
    result = 1
    for extent in shape:
        result *= max(1, extent)
    return result


def _ends(costs: Sequence[float], count: int) -> List[int]:
    """Where each of the consecutive parts ends, so that the dearest is as cheap as can be."""
    total = [0.0]
    for cost in costs:
        total.append(total[-1] + cost)
    items = len(costs)
    best = [total[end] for end in range(items + 1)]
    choices = []
    for part in range(2, count + 1):
        row, choice = [float("inf")] * (items + 1), [0] * (items + 1)
        for end in range(part, items + 1):
            for start in range(end - 1, part - 2, -1):
                last = total[end] - total[start]
                if last >= row[end]:
                    break  # it only grows
                if max(best[start], last) < row[end]:
                    row[end], choice[end] = max(best[start], last), start
        best = row
        choices.append(choice)
    ends = [items]
    for choice in reversed(choices):
        ends.insert(0, choice[ends[0]])
    return ends


def partition(symbol: mx.sym.Symbol, stages: Sequence[Sequence[str]], inputs: Sequence[str]) -> List[StageGraph]:
    """Cut a symbol into stages.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
        The network with its loss.
    stages : sequence of sequence of str
        The names of each stage's operators. Operators behind the last that is named, such as the loss, belong to the
        last stage, as do others that are not named to the stage of the operator before them.
    inputs : sequence of str
        The variables that are no parameters.

    Returns
    -------
    list of StageGraph
        One for each stage; the symbol's outputs are the last outputs of the last stage.

    Raises
    ------
    PartitionError
        When a stage is empty, names an operator twice or one that is not there, uses a tensor of a later stage, or
        shares an auxiliary state with another.
    """
    graph = json.loads(symbol.tojson())
    stage_of = _assigned(graph["nodes"], stages)
    _check_order(graph["nodes"], stage_of)
    heads: List[Tensor] = [(head[0], head[1]) for head in graph["heads"]]
    crossing: List[List[Tensor]] = [[] for _ in stages]
    for index, stage in stage_of.items():
        for source, output, *_ in graph["nodes"][index]["inputs"]:
            if source in stage_of and stage_of[source] != stage and (source, output) not in crossing[stage_of[source]]:
                crossing[stage_of[source]].append((source, output))
    for head in heads:
        if stage_of.get(head[0]) != len(stages) - 1:
            raise PartitionError(f"The output {graph['nodes'][head[0]]['name']} of the network is not computed in the "
                                 "last stage: give stages that end with it.")
    crossing[-1] += heads
    auxiliary = set(symbol.list_auxiliary_states())
    result = [_stage(graph, stage_of, stage, crossing[stage], set(inputs), auxiliary) for stage in range(len(stages))]
    owner: Dict[str, int] = {}
    for stage, cut in enumerate(result):
        for name in cut.auxiliary:
            if owner.setdefault(name, stage) != stage:
                raise PartitionError(f"The auxiliary state {name} is used in the stages {owner[name]} and {stage}: put "
                                     "all operators that share it into one stage.")
    return result


def _assigned(nodes: Sequence[Dict[str, Any]], stages: Sequence[Sequence[str]]) -> Dict[int, int]:
    wanted: Dict[str, int] = {}
    for stage, names in enumerate(stages):
        if not names:
            raise PartitionError(f"Stage {stage} of {len(stages)} has no operator: give each stage one or more.")
        for name in names:
            if name in wanted:
                raise PartitionError(f"The operator {name} is named in the stages {wanted[name]} and {stage}: name "
                                     "each once.")
            wanted[name] = stage
    known = {node["name"] for node in nodes if node["op"] != "null"}
    missing = sorted(set(wanted) - known)
    if missing:
        raise PartitionError(f"The stages name {missing[0]}, which is no operator of the network: give names that "
                             "soybean_mx.pipeline.partition.operator_names lists.")
    result: Dict[int, int] = {}
    current = 0
    for index, node in enumerate(nodes):
        if node["op"] == "null":
            continue
        if node["name"] in wanted:
            current = wanted[node["name"]]
            result[index] = current
        else:
            result[index] = max([current, *(result[source] for source, *_ in node["inputs"] if source in result)])
    return result


def _check_order(nodes: Sequence[Dict[str, Any]], stage_of: Mapping[int, int]) -> None:
    for index, stage in stage_of.items():
        for source, *_ in nodes[index]["inputs"]:
            if stage_of.get(source, 0) > stage:
                raise PartitionError(f"The operator {nodes[index]['name']} of stage {stage} uses "
                                     f"{nodes[source]['name']} of the later stage {stage_of[source]}: give stages in "
                                     "the order of the network.")


def _stage(graph: Dict[str, Any], stage_of: Mapping[int, int], stage: int, outputs: Sequence[Tensor],
           inputs: set, auxiliary: set) -> StageGraph:
    if not outputs:
        raise PartitionError(f"Nothing that stage {stage} computes is used by another: give stages in the order of "
                             "the network.")
    part = cut_out(graph["nodes"], {index for index, at in stage_of.items() if at == stage})
    symbol = mx.sym.load_json(part.symbol_json(outputs, graph["attrs"]))
    names, received = [node["name"] for node in part.nodes if node["op"] == "null"], part.received
    return StageGraph(symbol, [name for name in names if name in inputs], received,
                      [name for name in names if name not in inputs and name not in auxiliary
                       and name not in received],
                      [name for name in names if name in auxiliary], list(outputs))
