"""Why an operator is cut as it is: what each other way to cut it would cost, found by planning again with a pin.

A plan is the best of its strategy as a whole. The price of another cut of one operator is that of the best plan in
which that operator is cut so, all others being free to follow.
"""
from __future__ import annotations

from dataclasses import dataclass
from glob import escape
from typing import Any, Callable, Container, Dict, List, Mapping, Optional, Sequence, Tuple

from soybean_mx.core import PlanError
from soybean_mx.explorer.layers import LayerGraph, Operator, Tensor
from soybean_mx.index_notation import operand_names, rule_text

Choices = Tuple[str, ...]
Search = Callable[[Mapping[str, Any]], Dict[str, Any]]

_REPLICATED, _OWNER = -1, -2
_WORDS = {_REPLICATED: "replicated", _OWNER: "owner"}
# Searches for one operator: where it can be cut in more ways, those of the fewest different factors are tried.
MOST_ALTERNATIVES = 64


@dataclass(frozen=True)
class Alternative:
    """A way to cut the operator.

    Parameters
    ----------
    cut : tuple of str
        A factor, ``replicated`` or ``owner`` for each cut of the devices.
    bytes_moved : int, optional
        Of the best plan with this cut, by all devices in a step; None where it is refused.
    seconds : float, optional
        Its predicted time; None without a topology.
    difference_bytes, difference_seconds : optional
        To the plan that is explained.
    peak_bytes : int, optional
        On the fullest device.
    most_more : (str, int, int), optional
        The tensor for which most more is moved, in bytes: with this cut, and in the plan that is explained.
    error : str, optional
        Why it is refused.
    """

    cut: Choices
    bytes_moved: Optional[int] = None
    seconds: Optional[float] = None
    difference_bytes: Optional[int] = None
    difference_seconds: Optional[float] = None
    peak_bytes: Optional[int] = None
    most_more: Optional[Tuple[str, int, int]] = None
    error: Optional[str] = None


@dataclass(frozen=True)
class UsedTensor:
    """A tensor of the operator in the plan.

    Parameters
    ----------
    use : str
        ``reads``, ``parameter``, ``auxiliary`` or ``makes``.
    tensor : Tensor
        Which.
    tiling : tuple of str
        In which it rests.
    tile_bytes : int
        Of the largest tile.
    """

    use: str
    tensor: Tensor
    tiling: Choices
    tile_bytes: int


@dataclass(frozen=True)
class Explanation:
    """Why an operator is cut as it is.

    Parameters
    ----------
    operator : Operator
        Which.
    rule : str, optional
        Its rule in index notation; None for an operator without one, which one device computes whole.
    factors : tuple of mapping
        The rule's factors, with ``name``, ``size`` and what else the core says.
    cut : tuple of str
        How the plan cuts it, without the order in which cuts of one factor divide.
    alternatives : tuple of Alternative
        All other ways that the planner considers, cheapest first, those that are refused last.
    is_pinned : bool
        Whether the user has pinned this very operator, by its name. That pin gives way for the alternatives, which so
        say what it costs; one with a pattern does not.
    left_out : int
        Further ways, of more different factors, that were not tried.
    tensors : tuple of UsedTensor
        What it reads and makes.
    conversions : tuple of mapping
        Those of the plan that are made for it or of what it makes.
    memory : mapping of str to int
        Bytes on the fullest device for ``parameters``, their ``gradients``, ``optimizer`` and what the operator
        ``makes``.
    """

    operator: Operator
    rule: Optional[str]
    factors: Tuple[Mapping[str, Any], ...]
    cut: Choices
    alternatives: Tuple[Alternative, ...]
    is_pinned: bool
    left_out: int
    tensors: Tuple[UsedTensor, ...]
    conversions: Tuple[Mapping[str, Any], ...]
    memory: Mapping[str, int]


def ways(choices: Sequence[Sequence[int]], factors: Sequence[Mapping[str, Any]]) -> List[Choices]:
    """The ways to cut an operator as pins say them.

    Parameters
    ----------
    choices : sequence of sequence of int
        ``choices`` of a node of :func:`soybean_mx.core.space`.
    factors : sequence of mapping
        Of its rule.
    """
    return [tuple(_WORDS[choice] if choice in _WORDS else factors[choice]["name"] for choice in division)
            for division in choices]


def cut_levels(topology: Mapping[str, Any], cuts: Sequence[int]) -> List[int]:
    """The level of a topology that each cut crosses; all 0 where hosts differ, whose cuts are not those of levels.

    Parameters
    ----------
    topology : mapping
        As docs/interface.md says.
    cuts : sequence of int
        The number of groups of each cut, the outermost first.
    """
    groups = [level.get("groups") for level in topology["levels"]]
    if not all(isinstance(count, int) for count in groups):
        return [0] * len(cuts)
    found, rest = [], list(cuts)
    for level, count in enumerate(groups):
        while count > 1 and rest:
            found.append(level)
            count //= rest.pop(0)
    return found


def without_levels(choices: Sequence[str]) -> Choices:
    """Choices without the order in which those of one kind divide."""
    return tuple(choice.partition("/")[0] for choice in choices)


def explain(operator: Operator, node: Mapping[str, Any], trained: Container[str], layers: LayerGraph,
            plan: Mapping[str, Any], options: Mapping[str, Any], search: Search,
            advance: Callable[[], None]) -> Explanation:
    """Explain how one operator is cut.

    Parameters
    ----------
    operator : Operator
        Which.
    node : mapping
        The same, as :func:`soybean_mx.core.space` gives it.
    trained : container of str
        The names of the parameters that have a gradient.
    layers : LayerGraph
        The network.
    plan : mapping
        The plan that is explained.
    options : mapping
        Those that it was found with, pins included.
    search : callable
        Plans with other options; raises PlanError where that is refused.
    advance : callable
        Called after each way to cut the operator.
    """
    cut = without_levels(plan["operators"][operator.name])
    factors = tuple(node["rule"]["factors"])
    is_time = options.get("objective") == "time"
    levels = cut_levels(options["topology"], plan["cuts"]) if is_time else [0] * len(plan["cuts"])
    kinds = list(zip(plan["cuts"], levels))
    # A choice stands for all exchanges of cuts that are alike, the plan's own among them.
    others = [way for way in ways(node["choices"], factors) if sorted(zip(kinds, way)) != sorted(zip(kinds, cut))]
    others.sort(key=lambda way: len(set(way)))
    alternatives = []
    for way in others[:MOST_ALTERNATIVES]:
        alternatives.append(_price(operator.name, way, plan, options, search))
        advance()
    alternatives.sort(key=lambda item: _rank(item, is_time))
    parameters = [layers.tensors[name].role in ("parameter", "auxiliary") for name in operator.inputs]
    tensors = _tensors(operator, layers, plan)
    return Explanation(
        operator, rule_text(node["rule"], operand_names(operator.inputs, operator.name, parameters)), factors, cut,
        tuple(alternatives), operator.name in options.get("pins", {}), max(0, len(others) - MOST_ALTERNATIVES),
        tensors, _conversions(operator, plan), _memory(tensors, options.get("optimizer_states", 0), trained))


def _rank(item: Alternative, is_time: bool) -> Tuple[bool, float, Choices]:
    cost = item.seconds if is_time else item.bytes_moved
    return (item.error is not None, 0.0 if cost is None else float(cost), item.cut)


def _price(name: str, way: Choices, plan: Mapping[str, Any], options: Mapping[str, Any], search: Search) -> Alternative:
    try:
        others = {pattern: pin for pattern, pin in options.get("pins", {}).items() if pattern != name}
        other = search({**options, "pins": {**others, escape(name): list(way)}})
    except PlanError as error:
        return Alternative(way, error=" ".join(str(error).split()))
    seconds, before = (found.get("predicted_seconds", {}).get("total") for found in (other, plan))
    return Alternative(way, other["bytes"]["total"], seconds, other["bytes"]["total"] - plan["bytes"]["total"],
                       None if seconds is None else seconds - before, other["memory"]["peak"],
                       _most_more(other, plan))


def _most_more(other: Mapping[str, Any], plan: Mapping[str, Any]) -> Optional[Tuple[str, int, int]]:
    """The tensor for which another plan moves most more."""
    mine, its = _bytes_by_tensor(plan), _bytes_by_tensor(other)
    name = max(its, key=lambda tensor: (its[tensor] - mine.get(tensor, 0), tensor), default=None)
    if name is None or its[name] <= mine.get(name, 0):
        return None
    return name, its[name], mine.get(name, 0)


def _bytes_by_tensor(plan: Mapping[str, Any]) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for item in plan["conversions"]:
        found[item["tensor"]] = found.get(item["tensor"], 0) + item["bytes"]
    return found


def largest_tile(tensor: Tensor, tiling: Sequence[str], cuts: Sequence[int]) -> int:
    """Bytes of the largest tile of a tensor.

    Parameters
    ----------
    tensor : Tensor
        Which.
    tiling : sequence of str
        One choice for each cut.
    cuts : sequence of int
        The number of groups of each.
    """
    parts = [1] * len(tensor.shape)
    for choice, groups in zip(without_levels(tiling), cuts):
        if choice.startswith("split "):
            parts[int(choice[len("split "):])] *= groups
    size = tensor.itemsize
    for extent, count in zip(tensor.shape, parts):
        size *= -(-extent // count)
    return size


def _tensors(operator: Operator, layers: LayerGraph, plan: Mapping[str, Any]) -> Tuple[UsedTensor, ...]:
    named = [(name, None) for name in dict.fromkeys(operator.inputs)] + [(name, "makes") for name in operator.outputs]
    found = []
    for name, use in named:
        tensor = layers.tensors[name]
        tiling = plan["tensors"].get(name)
        if tiling is not None:
            role = tensor.role if tensor.role in ("parameter", "auxiliary") else "reads"
            found.append(UsedTensor(use or role, tensor, tuple(tiling), largest_tile(tensor, tiling, plan["cuts"])))
    return tuple(found)


def _conversions(operator: Operator, plan: Mapping[str, Any]) -> Tuple[Mapping[str, Any], ...]:
    return tuple(item for item in plan["conversions"]
                 if item["user"] == operator.name or item["tensor"] in operator.outputs)


def _memory(tensors: Sequence[UsedTensor], optimizer_states: int, trained: Container[str]) -> Dict[str, int]:
    held = [item for item in tensors if item.use == "parameter"]
    gradients = sum(item.tile_bytes for item in held if item.tensor.name in trained)
    return {"parameters": sum(item.tile_bytes for item in held), "gradients": gradients,
            "optimizer": gradients * optimizer_states,
            "makes": sum(item.tile_bytes for item in tensors if item.use == "makes")}
