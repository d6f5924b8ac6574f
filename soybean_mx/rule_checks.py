"""A rule put to the test: its operator run whole, and in tiles as in training (:func:`soybean_mx.rules.check`)."""
from __future__ import annotations

import itertools
import json
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Set, Tuple

import mxnet as mx
import numpy as np
from mxnet.base import MXNetError

from soybean_mx import core
from soybean_mx.executor import BoundGraph, Program
from soybean_mx.graph import InferenceError, describe
from soybean_mx.rules import Rule, RuleError, has_own_rule

_NODE = "checked"  # the operator's name in its symbol


class _Call(NamedTuple):
    """One call of the operator: its symbol, what goes in by name, the inputs with a gradient, and the heads' ones."""

    symbol: mx.symbol.Symbol
    arrays: Dict[str, mx.nd.NDArray]
    differentiated: Set[str]
    heads: List[mx.nd.NDArray]


def compare(rule: Rule, inputs: Sequence[Any], attributes: Mapping[str, Any], without_gradient: Set[str],
            tolerance: float, seed: int) -> List[str]:
    """As :func:`soybean_mx.rules.check`, of a rule."""
    names = [operand.name for operand in rule.inputs]
    if len(inputs) != len(names):
        raise RuleError(f"The rule {rule.text!r} has {len(names)} inputs, but {len(inputs)} were given to check it "
                        "with.")
    unknown = without_gradient - set(names)
    if unknown:
        raise RuleError(f"The rule {rule.text!r} has no input {sorted(unknown)[0]!r}: its inputs are {names}.")
    random = np.random.RandomState(seed)
    arrays = {name: mx.nd.array(_values(given, random), ctx=mx.cpu(0), dtype=_dtype(given))
              for name, given in zip(names, inputs)}
    symbol = _symbol(rule, attributes)
    differentiated = set(names) - without_gradient
    try:
        types = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        graph = describe(symbol, types, {}, differentiated, True)
        factors = core.rules(graph)[_NODE]["factors"]
    except (InferenceError, core.PlanError, MXNetError) as error:
        raise RuleError(f"The operator {rule.op!r} cannot be checked: {_last_line(error)}") from None
    heads = [mx.nd.array(random.normal(size=shape), ctx=mx.cpu(0)) for shape in graph["shapes"][_NODE]]
    call = _Call(symbol, arrays, differentiated, heads)
    whole = _run_whole(rule, call)
    compared = []
    for cuts in _possible_cuts(factors):
        what = _words(cuts)
        _assert_same(rule, what, whole, _run_tiled(rule, call, graph, cuts, what), tolerance)
        compared.append(what)
    if not compared:
        raise RuleError(f"The rule {rule.text!r} cannot be checked with these shapes: no factor is 2 or longer.")
    return compared


def _values(given: Any, random: np.random.RandomState) -> np.ndarray:
    return random.normal(size=given) if _is_shape(given) else np.asarray(given)


def _dtype(given: Any) -> Any:
    return "float32" if _is_shape(given) else np.asarray(given).dtype


def _is_shape(given: Any) -> bool:
    return isinstance(given, (tuple, list)) and all(isinstance(extent, (int, np.integer)) for extent in given)


def _symbol(rule: Rule, attributes: Mapping[str, Any]) -> mx.symbol.Symbol:
    """The operator alone: of a library if one has it, or else a Custom one of that type."""
    texts = {name: str(value) for name, value in attributes.items()}
    variables = [{"op": "null", "name": operand.name, "inputs": []} for operand in rule.inputs]
    if rule.op in mx.operator.get_all_registered_operators() and not has_own_rule(rule.op):
        node = {"op": rule.op, "attrs": texts}
    else:
        node = {"op": "Custom", "attrs": {**texts, "op_type": rule.op}}
    count = len(variables)
    node.update(name=_NODE, inputs=[[index, 0, 0] for index in range(count)])
    try:
        return mx.sym.load_json(json.dumps({
            "nodes": [*variables, node], "arg_nodes": list(range(count)),
            "heads": [[count, index, 0] for index in range(len(rule.outputs))],
            "attrs": {"mxnet_version": ["int", 10901]}}))
    except MXNetError as error:
        raise RuleError(f"The operator {rule.op!r} cannot be checked: MXNet knows no operator and no Custom operator "
                        f"of this name and these inputs ({_last_line(error)}).") from None


def _possible_cuts(factors: Sequence[Mapping[str, Any]]) -> List[Tuple[str, ...]]:
    """Each factor into 2 and 3 parts, each pair into 2 by 2: a factor for each cut, three equal ones for 3 parts."""
    halves = [(factor["name"],) for factor in factors if factor["size"] > 1]
    thirds = [(factor["name"],) * 3 for factor in factors if factor["size"] > 2]
    return halves + thirds + [(first, second) for (first,), (second,) in itertools.combinations(halves, 2)]


def _words(cuts: Sequence[str]) -> str:
    if len(cuts) == 3:
        return f"{cuts[0]} into 3"
    return " and ".join(f"{name} into 2" for name in cuts)


def _run_whole(rule: Rule, call: _Call) -> Dict[str, np.ndarray]:
    """Outputs and gradients, by what they are, as MXNet computes them on one device."""
    gradients = {name: mx.nd.zeros_like(array) for name, array in call.arrays.items() if name in call.differentiated}
    try:
        executor = call.symbol.bind(
            mx.cpu(0), call.arrays, gradients,
            {name: "write" if name in gradients else "null" for name in call.arrays})
        outputs = executor.forward(is_train=True)
        if gradients:
            executor.backward([head.astype(output.dtype) for head, output in zip(call.heads, outputs)])
        return _named(rule, outputs, gradients)
    except MXNetError as error:
        raise RuleError(f"The operator {rule.op!r} cannot be checked: it fails as a whole "
                        f"({_last_line(error)}).") from None


def _run_tiled(rule: Rule, call: _Call, graph: Dict[str, Any], cuts: Tuple[str, ...], what: str
               ) -> Dict[str, np.ndarray]:
    devices = 3 if len(cuts) == 3 else 2 ** len(cuts)
    pin = cuts[0] if len(set(cuts)) == 1 else list(cuts)
    try:
        plan = core.plan(graph, {"devices": devices, "pins": {_NODE: pin}})
        contexts = [mx.cpu(index) for index in range(devices)]
        program = Program(core.lower(graph, plan), contexts, True, call.differentiated)
        bound = BoundGraph(program, {name: (array.shape, array.dtype) for name, array in call.arrays.items()}, {})
        bound.feed(call.arrays)
        bound.forward()
        outputs = bound.gather_outputs([head.shape for head in call.heads], contexts[0])
        gradients = {}
        if call.differentiated:
            bound.backward([head.astype(output.dtype) for head, output in zip(call.heads, outputs)], True)
            gradients = {name: bound.input_gradient(name, call.arrays[name].shape, contexts[0])
                         for name in call.differentiated}
        return _named(rule, outputs, gradients)
    except MXNetError as error:
        raise RuleError(f"The rule {rule.text!r} of {rule.op!r} is wrong: with {what} parts the operator fails "
                        f"({_last_line(error)}).") from None


def _named(rule: Rule, outputs: Sequence[mx.nd.NDArray], gradients: Mapping[str, mx.nd.NDArray]
           ) -> Dict[str, np.ndarray]:
    found = {f"output {operand.name!r}": output.asnumpy() for operand, output in zip(rule.outputs, outputs)}
    found.update({f"the gradient of {name!r}": array.asnumpy() for name, array in gradients.items()})
    return found


def _assert_same(rule: Rule, what: str, whole: Dict[str, np.ndarray], tiled: Dict[str, np.ndarray], tolerance: float
                 ) -> None:
    for name, expected in whole.items():
        expected, found = expected.astype("float64"), tiled[name].astype("float64")
        largest = float(np.max(np.abs(expected), initial=0.0)) or 1.0
        error = float(np.max(np.abs(found - expected), initial=0.0)) / largest
        if not error <= tolerance:  # a NaN is no agreement
            raise RuleError(f"The rule {rule.text!r} of {rule.op!r} is wrong: with {what} parts, {name} differs from "
                            f"the whole operator's by {error:.2g} of its largest element.")


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
