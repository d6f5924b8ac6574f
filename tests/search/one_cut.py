"""The optimal bytes of an MLP over one cut into p groups, by force and independently of the core.

A tensor of A elements, cut into p groups, is split on dim 0 or 1 (``S0``, ``S1``), replicated (``R``), held by the
first group only (``O``), or, between operators, a partial sum (``P``). Turning one into another moves, in elements and
of all groups together:

    S_i -> S_j  A(p-1)/p    S -> R  A(p-1)    S -> O  A(p-1)/p
    O   -> S    A(p-1)/p    O -> R  A(p-1)
    P   -> S    A(p-1)      P -> R  2A(p-1)   P -> O  A(p-1)        R -> anything  0

The gradient of a conversion X -> Y is the conversion Y* -> X*, where * keeps S and O and exchanges R and P. A term of a
sum can be padded with zeros, so S -> P and O -> P move nothing. A tensor that requires no gradient has no backward.
"""
from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Dict, Iterable, Sequence, Tuple

AT_REST = ("S0", "S1", "R", "O")
PARAMETER = ("S0", "S1")  # every element of a parameter is kept once, and its memory is spread
ADJOINT = {"R": "P", "P": "R"}

# What each way to compute a fully connected layer needs: data, weight, bias -> output.
LAYER_FORMS = {
    "n": ("S0", "R", "R", "S0"),
    "m": ("R", "S0", "S0", "S1"),
    "k": ("S1", "S1", "O", "P"),  # the bias is added by the first group alone
}
ELEMENTWISE_FORMS = (("S0", "S0"), ("S1", "S1"))
# (To compute everything on one device moves nothing: an operator that can be cut must be.)


def moved(x: str, y: str, p: int) -> Fraction:
    """Return what X -> Y moves, as a multiple of the tensor's size."""
    if x == y or x == "R" or y == "P":
        return Fraction(0)
    if x == "P":
        return Fraction(2 * (p - 1) if y == "R" else p - 1)
    return Fraction(p - 1) if y == "R" else Fraction(p - 1, p)


def conversion(x: str, y: str, p: int, requires_grad: bool) -> Fraction:
    """Return what X -> Y and its gradient move, as a multiple of the tensor's size."""
    forward = moved(x, y, p)
    if not requires_grad:
        return forward
    return forward + moved(ADJOINT.get(y, y), ADJOINT.get(x, x), p)


def _parameter(tilings: Sequence[str], need: str, p: int) -> Fraction:
    return min(conversion(tiling, need, p, True) for tiling in tilings)


def _layer(batch: int, k: int, m: int, bias: Sequence[str], p: int, data_grad: bool) -> Dict[Tuple[str, str], Fraction]:
    """Return the elements that a layer moves, for every tiling of its data and of its output."""
    costs = {}
    for data, out in itertools.product(AT_REST, AT_REST):
        choices = []
        for need_data, need_weight, need_bias, made in LAYER_FORMS.values():
            cost = conversion(data, need_data, p, data_grad) * batch * k
            cost += _parameter(PARAMETER, need_weight, p) * k * m
            cost += _parameter(bias, need_bias, p) * m if bias else 0
            choices.append(cost + conversion(made, out, p, True) * batch * m)
        costs[data, out] = min(choices)
    return costs


def _elementwise(elements: int, p: int) -> Dict[Tuple[str, str], Fraction]:
    return {
        (x, y): min(conversion(x, a, p, True) + conversion(b, y, p, True) for a, b in ELEMENTWISE_FORMS) * elements
        for x, y in itertools.product(AT_REST, AT_REST)
    }


def _chain(stages: Iterable[Dict[Tuple[str, str], Fraction]]) -> Fraction:
    best = dict.fromkeys(AT_REST, Fraction(0))
    for costs in stages:
        best = {y: min(best[x] + costs[x, y] for x in AT_REST) for y in AT_REST}
    return min(best.values())


def optimal_elements(batch: int, widths: Sequence[int], p: int, bias: Sequence[str], activation: bool) -> Fraction:
    """Return the fewest elements that one step of the MLP moves; all dims must be multiples of p.

    `bias` are the tilings that a bias may rest in; without any there is no bias.
    """
    stages = []
    for i, (k, m) in enumerate(zip(widths, widths[1:])):
        stages.append(_layer(batch, k, m, bias, p, data_grad=i > 0))
        if activation and i + 2 < len(widths):
            stages.append(_elementwise(batch * m, p))
    return _chain(stages)
