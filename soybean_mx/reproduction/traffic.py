"""What the SoyBean paper (1805.04170) counts for its perceptron and its example.

The perceptron: layers of N x N, a batch of B, forward, backward and weight gradients as three products of matrices.

Pure data parallelism adds up every weight gradient over all devices, 2 (p - 1) times its size; pure model parallelism
gathers every layer's output and adds up its gradient, 2 (p - 1) times its size. SoyBean's recursion cuts the devices in
two, chooses a form for every product and how every activation rests (rows, columns or replicated) so that the
conversions cost the least, halves what is split, and goes on: the total is the sum of 2^i times the cost of cut i. The
forward products are cut; each conversion is made again by the gradient on its way back, and the products of the
gradients are then aligned without more. Inputs and weights start in any tiling at no cost; the output is left in one,
and its gradient comes in that. Of equal costs the one with more copies is taken, from the output backwards, then rows.
The example counts p where p - 1 copies move.
"""
from __future__ import annotations

import itertools
from fractions import Fraction
from typing import List, NamedTuple, Sequence, Tuple

BYTES = 4
BATCHES = (512, 1024, 2048, 4096, 8192)
ROWS, COLUMNS, REPLICATED, SUM = "rows", "columns", "replicated", "sum"
RESTS = (REPLICATED, ROWS, COLUMNS)  # the first of equal ones is taken
# The aligned forms of a layer's product: how it takes its input and leaves its output, and how its weight is cut.
FORMS = ((ROWS, ROWS, REPLICATED), (REPLICATED, COLUMNS, COLUMNS), (COLUMNS, SUM, ROWS))
MOST_LAYERS = 8  # all forms of all layers are tried

Shape = Tuple[Fraction, Fraction]


def conversion(before: str, after: str, shape: Shape) -> Fraction:
    """Return the elements that a conversion between two groups moves."""
    size = shape[0] * shape[1]
    if before in (after, REPLICATED):
        return Fraction(0)
    if before == SUM:
        return 2 * size if after == REPLICATED else size
    return size if after == REPLICATED else size / 2


class Cut(NamedTuple):
    """How a cut leaves every matrix: activations (layers + 1, the input first) and weights."""

    activations: Tuple[str, ...]
    weights: Tuple[str, ...]


def resting(made: str, needed: str, shape: Shape) -> Tuple[Fraction, int]:
    """Return what an activation moves forward between two products, and how it best rests: a number of RESTS."""
    return min(
        (conversion(made, rest, shape) + conversion(rest, needed, shape), number) for number, rest in enumerate(RESTS)
    )


def one_cut(activations: Sequence[Shape], weights: Sequence[Shape]) -> Tuple[Fraction, Cut]:
    """Return the least that the best cut into two groups moves, and how every matrix rests then."""
    def tried(forms: Tuple[int, ...]) -> Tuple[Fraction, List[int], List[int], Cut]:
        made = [FORMS[form][1] for form in forms]
        needed = [FORMS[form][0] for form in forms[1:]]
        between = [resting(m, n, shape) for m, n, shape in zip(made, needed, activations[1:])]
        between.append(min((conversion(made[-1], rest, activations[-1]), n) for n, rest in enumerate(RESTS)))
        cost = 2 * sum((moved for moved, _ in between), Fraction(0))
        # A replicated weight is gathered from where it rests, and its gradient added up there.
        cost += sum((2 * w[0] * w[1] for form, w in zip(forms, weights) if FORMS[form][2] == REPLICATED), Fraction(0))
        rests = [number for _, number in between]
        cut = Cut((FORMS[forms[0]][0], *(RESTS[n] for n in rests)), tuple(FORMS[form][2] for form in forms))
        return cost, rests[::-1], list(forms[::-1]), cut

    best = min(tried(forms) for forms in itertools.product(range(len(FORMS)), repeat=len(weights)))
    return best[0], best[3]


def _halved(shape: Shape, rest: str) -> Shape:
    return (shape[0] / (2 if rest == ROWS else 1), shape[1] / (2 if rest == COLUMNS else 1))


def recursive_bytes(batch: int, width: int, layers: int, cuts: int) -> int:
    """Return what SoyBean's recursion over 2 ** cuts devices moves; at most MOST_LAYERS layers."""
    activations = [(Fraction(batch), Fraction(width))] * (layers + 1)
    weights = [(Fraction(width), Fraction(width))] * layers
    total = Fraction(0)
    for number in range(cuts):
        cost, cut = one_cut(activations, weights)
        total += 2 ** number * cost
        activations = list(map(_halved, activations, cut.activations))
        weights = list(map(_halved, weights, cut.weights))
    return int(total * BYTES)


def data_bytes(width: int, layers: int, devices: int) -> int:
    """Return what pure data parallelism moves."""
    return 2 * (devices - 1) * layers * width * width * BYTES


def model_bytes(batch: int, width: int, layers: int, devices: int) -> int:
    """Return what pure model parallelism moves."""
    return 2 * (devices - 1) * layers * batch * width * BYTES


def example_bytes(batch: int, width: int, layers: int, groups: int, devices: int) -> int:
    """Return what data parallelism over groups, with model parallelism inside of each, moves as the example counts it.

    One group is pure model parallelism, as many as devices pure data parallelism.
    """
    inside = devices // groups
    weights = 2 * groups * layers * width * width * BYTES if groups > 1 else 0
    activations = 2 * inside * layers * batch * width * BYTES if inside > 1 else 0
    return weights + activations
