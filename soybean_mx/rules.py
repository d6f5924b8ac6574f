"""Rules of operators of your own: along what each may be cut, so that it is tiled like MXNet's.

A rule names every dim of every operand, as in einsum::

    data[n,c] weight[m,c] bias[m]+ -> out[n,m]

- A name is a *factor*: dims of one name have one extent, and are cut together.
- A factor that outputs carry splits them; one that only inputs carry (``c``) leaves each device a term of the
  outputs, which are summed.
- ``*`` is a dim that is never cut. ``...`` are any number of further dims, each a factor of its own.
- ``+`` behind an operand: it is added to the outputs once. Where outputs are sums, one device has it, and the others
  zeros.

The rule is a promise: that the operator, run on the parts, gives the parts. :func:`check` puts it to the test.
Importing this module imports neither MXNet nor anything heavy.
"""
from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

WHOLE, FURTHER = "*", "..."
JOINS = ("sum", "mean", "max", "min")

_OPERAND = re.compile(r"\s*(\w+)\s*\[([^\[\]]*)\](\+?)")
_FACTOR = re.compile(r"[A-Za-z]\w*")
_RESERVED = re.compile(r"owner|replicated|split|further\d*")  # words of plans
_EXTENT = re.compile(r"\s*(?:(\d+)\s*\*\s*)?([A-Za-z]\w*)\s*")


class RuleError(ValueError):
    """A rule that cannot be read, or that :func:`check` found to be wrong; one sentence for the user."""


@dataclass(frozen=True)
class Operand:
    """An input or output in a rule.

    Attributes
    ----------
    name : str
        As the rule calls it.
    dims : tuple of str
        A factor for each dim, ``*`` or ``...``.
    addend : bool
        Whether it is added to the outputs once.
    """

    name: str
    dims: Tuple[str, ...]
    addend: bool = False


@dataclass(frozen=True)
class Rule:
    """How an operator may be cut; see :func:`register` for the attributes.

    Raises
    ------
    RuleError
        When the parts contradict.
    """

    op: str
    text: str
    inputs: Tuple[Operand, ...]
    outputs: Tuple[Operand, ...]
    extents: Mapping[str, Tuple[str, int]]
    shapes: Mapping[str, str]
    constants: Tuple[str, ...]
    join: str
    once: bool

    def __post_init__(self) -> None:
        _check_names(self)
        _check_outputs(self)
        _check_addends(self)
        _check_attributes(self)

    @property
    def reduced(self) -> Set[str]:
        """The factors that only inputs carry."""
        return _carried(self.inputs) - _carried(self.outputs)

    def to_json(self) -> Dict[str, Any]:
        """The form that travels with a graph (docs/interface.md)."""
        def operands(items: Sequence[Operand]) -> List[Dict[str, Any]]:
            return [{"name": o.name, "dims": list(o.dims), "addend": o.addend} for o in items]

        return {"op": self.op, "text": self.text, "inputs": operands(self.inputs), "outputs": operands(self.outputs),
                "extents": {name: {"factor": factor, "block": block}
                            for name, (factor, block) in self.extents.items()},
                "shapes": dict(self.shapes), "constants": list(self.constants), "join": self.join, "once": self.once}


_rules: Dict[str, Rule] = {}


def register(op: str, rule: str, *, extents: Optional[Mapping[str, str]] = None,
             shapes: Optional[Mapping[str, str]] = None, constants: Sequence[str] = (), join: str = "sum",
             once: bool = False, check: Optional[Mapping[str, Any]] = None) -> Rule:
    """Say how an operator may be cut, before the blocks that use it are first called.

    Parameters
    ----------
    op : str
        The ``op_type`` of a ``mx.operator.CustomOp``, or the name of an operator of a library that
        ``mx.library.load`` has loaded. The operators of MXNet keep their own rules: of two of one name, this is the
        Custom one. A later rule of the same operator replaces this one.
    rule : str
        What runs along the dims of its inputs and outputs, in the order in which the operator has them.
    extents : mapping of str to str, optional
        Attributes that state how long a factor is, such as ``{"num_hidden": "m"}``, or a multiple of it
        (``"4*m"``). Each device's operator is given its own.
    shapes : mapping of str to str, optional
        Attributes that state the shape of an output, by its name in the rule.
    constants : sequence of str, optional
        Attributes that hold whole numbers and are the same for every part, such as an axis. Every attribute with a
        whole number must be in one of the three, as one that is an extent must not go to the parts unchanged.
    join : str
        What the outputs are over the factors that only inputs carry: ``sum``, ``mean``, ``max`` or ``min``.
    once : bool
        Whether no two devices may compute the same elements: the operator draws random numbers, or makes a gradient
        whatever it is given, as a loss does. Otherwise several may, where that is cheaper than sending.
    check : mapping, optional
        Arguments of :func:`check`, which is then run; a rule that fails it is not kept.

    Returns
    -------
    Rule
        The rule.

    Raises
    ------
    RuleError
        When the rule cannot be read, contradicts itself or fails the check.
    """
    inputs, outputs = _parse(rule)
    made = Rule(op, " ".join(rule.split()), inputs, outputs, _parse_extents(rule, extents or {}), dict(shapes or {}),
                tuple(constants), join, bool(once))
    before = _rules.get(op)
    _rules[op] = made
    if check is not None:
        try:
            _check(made, **check)
        except Exception:
            _rules.pop(op)
            if before is not None:
                _rules[op] = before
            raise
    return made


def unregister(op: str) -> None:
    """Take a rule back: blocks that have not been called yet compute the operator whole, on one device.

    Raises
    ------
    RuleError
        When the operator has no rule.
    """
    if _rules.pop(op, None) is None:
        raise RuleError(f"The operator {op!r} has no rule to take back: rules are registered for "
                        f"{sorted(_rules) or 'no operator'}.")


def registered() -> Dict[str, Rule]:
    """The rules, by operator."""
    return dict(_rules)


def check(op: str, inputs: Sequence[Any], attributes: Optional[Mapping[str, Any]] = None,
          without_gradient: Sequence[str] = (), tolerance: float = 1e-4, seed: int = 0) -> List[str]:
    """Run a registered operator whole and in tiles, forward and backward, and compare.

    Each factor is cut into 2 and 3 parts and each pair of factors into 2 by 2, on CPU contexts, by the same planner
    and lowering as in training. What an operator does only for other shapes or attributes is not seen.

    Parameters
    ----------
    op : str
        An operator with a rule. One that draws random numbers cannot be checked so.
    inputs : sequence of tuple of int or numpy.ndarray
        For each input its shape, to be filled with normally distributed numbers, or its values. A factor shorter
        than 2 is not cut.
    attributes : mapping of str to Any, optional
        The operator's attributes.
    without_gradient : sequence of str
        Inputs, by their names in the rule, that get no gradient, such as labels.
    tolerance : float
        The largest difference, relative to the largest element of the whole result.
    seed : int
        Of the numbers.

    Returns
    -------
    list of str
        The cuts that were compared, such as ``"n into 2"``.

    Raises
    ------
    RuleError
        When the operator has no rule, the rule does not fit the shapes, no factor can be cut, or results differ.
    """
    if op not in _rules:
        raise RuleError(f"The operator {op!r} has no rule to check: register one first.")
    return _check(_rules[op], inputs, attributes, without_gradient, tolerance, seed)


def of_nodes(nodes: Iterable[Mapping[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """The rules that travel with a graph.

    Parameters
    ----------
    nodes : iterable of mapping
        The nodes of a symbol's JSON.

    Returns
    -------
    dict
        By the name of the node.
    """
    if not _rules:
        return {}
    found = {}
    for node in nodes:
        attributes = node.get("attrs", {})
        op = attributes.get("op_type") if node["op"] == "Custom" else node["op"]
        if op in _rules and not has_own_rule(node["op"]):
            found[node["name"]] = _rules[op].to_json()
    return found


# -- reading -------------------------------------------------------------------------------------------------------


def _parse(text: str) -> Tuple[Tuple[Operand, ...], Tuple[Operand, ...]]:
    sides = text.split("->")
    if len(sides) != 2:
        raise RuleError(f"The rule {text!r} has {len(sides) - 1} arrows: write inputs, one '->' and outputs, such as "
                        "'data[n,c] weight[m,c] -> out[n,m]'.")
    inputs, outputs = (_parse_operands(text, side) for side in sides)
    if any(operand.addend for operand in outputs):
        raise RuleError(f"The rule {text!r} has a '+' behind an output: only an input can be added.")
    return inputs, outputs


def _parse_operands(text: str, side: str) -> Tuple[Operand, ...]:
    operands, position = [], 0
    while side[position:].strip():
        match = _OPERAND.match(side, position)
        if match is None:
            raise RuleError(f"The rule {text!r} cannot be read at {side[position:].strip()!r}: an operand is a name "
                            "with its dims in brackets, such as data[n,c].")
        name, listed, plus = match.groups()
        dims = tuple(dim.strip() for dim in listed.split(",")) if listed.strip() else ()
        for dim in dims:
            if dim not in (WHOLE, FURTHER) and not _FACTOR.fullmatch(dim):
                raise RuleError(f"The rule {text!r} has the dim {dim!r} in {name!r}: a dim is a name, '*' or '...'.")
        operands.append(Operand(name, dims, bool(plus)))
        position = match.end()
    if not operands:
        raise RuleError(f"The rule {text!r} has nothing on one side of its arrow: name the operator's inputs and "
                        "outputs, such as 'data[n,c] -> out[n,c]'.")
    return tuple(operands)


def _parse_extents(text: str, extents: Mapping[str, str]) -> Dict[str, Tuple[str, int]]:
    parsed = {}
    for name, value in extents.items():
        match = _EXTENT.fullmatch(str(value))
        if match is None:
            raise RuleError(f"The rule {text!r} has the extent {value!r} for attribute {name!r}: write a factor, or a "
                            "multiple of one such as '4*m'.")
        parsed[name] = (match.group(2), int(match.group(1) or 1))
    return parsed


def _carried(operands: Sequence[Operand]) -> Set[str]:
    return {dim for operand in operands for dim in operand.dims if dim != WHOLE}


def _check_names(rule: Rule) -> None:
    names = [operand.name for operand in (*rule.inputs, *rule.outputs)]
    for name in names:
        if names.count(name) > 1:
            raise RuleError(f"The rule {rule.text!r} has two operands {name!r}: give each a name of its own.")
    for operand in (*rule.inputs, *rule.outputs):
        for dim in operand.dims:
            if dim != WHOLE and operand.dims.count(dim) > 1:
                raise RuleError(f"The rule {rule.text!r} has {dim!r} twice in {operand.name!r}, where a cut would "
                                "take diagonal blocks: name one of them otherwise, or write '*' for both.")
            if _RESERVED.fullmatch(dim):
                raise RuleError(f"The rule {rule.text!r} has a factor {dim!r}, a word that plans use: name it "
                                "otherwise.")


def _check_outputs(rule: Rule) -> None:
    for operand in rule.outputs:
        for dim in operand.dims:
            if dim != WHOLE and dim not in _carried(rule.inputs):
                raise RuleError(f"The rule {rule.text!r} has {dim!r} in the output {operand.name!r}, but in no input: "
                                "write '*' for a dim that no input divides.")
    for factor in _carried(rule.outputs):
        without = [operand.name for operand in rule.outputs if factor not in operand.dims]
        if without:
            raise RuleError(f"The rule {rule.text!r} has {factor!r} in some outputs, but not in {without[0]!r}: all "
                            "outputs carry a factor, or none does.")
    if rule.join not in JOINS:
        raise RuleError(f"The rule {rule.text!r} joins by {rule.join!r}: 'sum', 'mean', 'max' or 'min' are possible.")
    if rule.join != "sum" and not rule.reduced:
        raise RuleError(f"The rule {rule.text!r} joins by {rule.join!r}, but its outputs carry all factors: there is "
                        "nothing to join.")


def _check_addends(rule: Rule) -> None:
    for operand in rule.inputs:
        if not operand.addend:
            continue
        if rule.join != "sum":
            raise RuleError(f"The rule {rule.text!r} adds {operand.name!r} to a {rule.join}: only to a sum can an "
                            "operand be added once.")
        if not rule.reduced - set(operand.dims):
            raise RuleError(f"The rule {rule.text!r} has a '+' behind {operand.name!r}, but no sum that it is added to "
                            "once: leave the '+' out.")


def _check_attributes(rule: Rule) -> None:
    for name, (factor, block) in rule.extents.items():
        if factor not in _carried(rule.inputs) or factor == FURTHER or block < 1:
            raise RuleError(f"The rule {rule.text!r} has attribute {name!r} as the extent {block}*{factor}, but no "
                            "such factor or a multiple below 1.")
    for name, output in rule.shapes.items():
        if output not in [operand.name for operand in rule.outputs]:
            raise RuleError(f"The rule {rule.text!r} has attribute {name!r} as the shape of {output!r}, which is none "
                            "of its outputs.")
    listed = [*rule.extents, *rule.shapes, *rule.constants]
    for name in listed:
        if listed.count(name) > 1:
            raise RuleError(f"The rule {rule.text!r} names attribute {name!r} twice: it is an extent, a shape or a "
                            "constant.")


def has_own_rule(op: str) -> bool:
    """Whether an operator is one of MXNet's that have a rule of their own, which is not replaced."""
    return op in _with_rules_of_their_own()


@functools.lru_cache(maxsize=None)
def _with_rules_of_their_own() -> FrozenSet[str]:
    """The operators of MXNet that the core has rules for."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "operator_calls.json")
    with open(path, encoding="utf-8") as file:
        return frozenset(call["op"] for call in json.load(file))


# -- checking ------------------------------------------------------------------------------------------------------

def _check(rule: Rule, inputs: Sequence[Any], attributes: Optional[Mapping[str, Any]] = None,
           without_gradient: Sequence[str] = (), tolerance: float = 1e-4, seed: int = 0) -> List[str]:
    from soybean_mx import rule_checks  # imports MXNet

    return rule_checks.compare(rule, inputs, attributes or {}, set(without_gradient), tolerance, seed)
