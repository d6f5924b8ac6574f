"""What the SoyBean paper (1805.04170) counts for its perceptron and its example, beside what soybean_mx plans.

The perceptron: layers of N x N, a batch of B, forward, backward and weight gradients as three products of matrices.

Pure data parallelism adds up every weight gradient over all devices, 2 (p - 1) times its size; pure model parallelism
gathers every layer's output and adds up its gradient, 2 (p - 1) times its size. SoyBean's recursion cuts the devices in
two, chooses how every matrix rests (rows, columns or replicated) so that the conversions to and from the aligned forms
of the products cost the least, halves what is split, and goes on: the total is the sum of 2^i times the cost of cut i.
Inputs and weights start in any tiling, and the gradient of the output comes in any. The example counts p where p - 1
copies move.
"""
from __future__ import annotations

import argparse
import itertools
import os
import sys
from fractions import Fraction
from typing import Dict, List, NamedTuple, Sequence, Tuple

BYTES = 4
BATCHES = (512, 1024, 2048, 4096, 8192)
ROWS, COLUMNS, REPLICATED, SUM = "rows", "columns", "replicated", "sum"
RESTS = (ROWS, COLUMNS, REPLICATED)
TRANSPOSED = {ROWS: COLUMNS, COLUMNS: ROWS, REPLICATED: REPLICATED}
# The aligned forms of a product: left, right and result.
FORMS = ((ROWS, REPLICATED, ROWS), (REPLICATED, COLUMNS, COLUMNS), (COLUMNS, ROWS, SUM))

Shape = Tuple[Fraction, Fraction]


def conversion(before: str, after: str, shape: Shape) -> Fraction:
    """Return the elements that a conversion between two groups moves."""
    size = shape[0] * shape[1]
    if before in (after, REPLICATED):
        return Fraction(0)
    if before == SUM:
        return 2 * size if after == REPLICATED else size
    return size if after == REPLICATED else size / 2


def product(left: str, left_shape: Shape, right: str, right_shape: Shape, result: str, result_shape: Shape) -> Fraction:
    """Return the elements that a product of matrices, resting so, moves in its cheapest form."""
    return min(
        conversion(left, a, left_shape) + conversion(right, b, right_shape) + conversion(c, result, result_shape)
        for a, b, c in FORMS
    )


class Matrices(NamedTuple):
    """Something for every matrix: activations and their gradients (layers + 1 each), and weights."""

    activations: Tuple
    gradients: Tuple
    weights: Tuple


def one_cut(shapes: Matrices) -> Tuple[Fraction, Matrices]:
    """Return the least that the best cut into two groups moves, and how every matrix rests then."""
    xs, gs, ws = shapes
    best: Dict[Tuple[str, str], Tuple[Fraction, Matrices]] = {
        (x, g): (Fraction(0), Matrices((x,), (g,), ())) for x, g in itertools.product(RESTS, RESTS)
    }
    for i, weight_shape in enumerate(ws):
        after: Dict[Tuple[str, str], Tuple[Fraction, Matrices]] = {}
        for ((x, g), (cost, rests)), w, y, h in itertools.product(best.items(), RESTS, RESTS, RESTS):
            total = cost + product(x, xs[i], w, weight_shape, y, xs[i + 1])
            total += product(h, gs[i + 1], TRANSPOSED[w], weight_shape, g, gs[i])
            total += product(TRANSPOSED[x], xs[i], h, gs[i + 1], w, weight_shape)
            if (y, h) not in after or total < after[y, h][0]:
                longer = Matrices(rests.activations + (y,), rests.gradients + (h,), rests.weights + (w,))
                after[y, h] = (total, longer)
        best = after
    return min(best.values(), key=lambda item: item[0])


def _halved(shape: Shape, rest: str) -> Shape:
    return (shape[0] / (2 if rest == ROWS else 1), shape[1] / (2 if rest == COLUMNS else 1))


def recursive_bytes(batch: int, width: int, layers: int, cuts: int) -> int:
    """Return what SoyBean's recursion over 2 ** cuts devices moves."""
    activation, weight = (Fraction(batch), Fraction(width)), (Fraction(width), Fraction(width))
    shapes = Matrices((activation,) * (layers + 1), (activation,) * (layers + 1), (weight,) * layers)
    total = Fraction(0)
    for cut in range(cuts):
        cost, rests = one_cut(shapes)
        total += 2 ** cut * cost
        shapes = Matrices(*(tuple(map(_halved, own, how)) for own, how in zip(shapes, rests)))
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


def planned_bytes(batch: int, width: int, layers: int, devices: int) -> int:
    """Return what soybean_mx plans for the perceptron without biases and activations."""
    import mxnet as mx  # slow, and of no use to --help
    from soybean_mx import core

    symbol = mx.sym.Variable("x")
    shapes: Dict[str, List[List[int]]] = {"x": [[batch, width]]}
    variables = {"x": {"role": "input", "requires_grad": False}}
    for i in range(layers):
        symbol = mx.sym.FullyConnected(symbol, mx.sym.Variable(f"w{i}"), num_hidden=width, no_bias=True, name=f"fc{i}")
        shapes[f"w{i}"], shapes[f"fc{i}"] = [[width, width]], [[batch, width]]
        variables[f"w{i}"] = {"role": "parameter", "requires_grad": True}
    graph = {
        "symbol": symbol.tojson(), "shapes": shapes, "itemsizes": {name: [BYTES] for name in shapes},
        "variables": variables, "training": True,
    }
    return core.plan(graph, {"devices": devices})["bytes"]["total"]


def main(arguments: Sequence[str] = ()) -> int:
    """Print the table and the example."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=8192, metavar="N", help="of every layer (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=4, metavar="N", help="number of layers (default: %(default)s)")
    parser.add_argument("--cuts", type=int, default=3, metavar="N", help="2^N devices (default: %(default)s)")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, metavar="B", help="default: the paper's")
    args = parser.parse_args(arguments)
    if min(args.width, args.layers, args.cuts, *args.batches) < 1:
        parser.error("the width, the layers, the cuts and the batches must be 1 or more")
    devices = 2 ** args.cuts
    print(f"{args.layers} layers of {args.width} x {args.width}, {devices} devices; GB in a step of all together\n")
    print(f"{'batch':>8} {'data':>8} {'model':>8} {'k-cut':>8} {'soybean_mx':>11}")
    for batch in args.batches:
        row = (
            data_bytes(args.width, args.layers, devices), model_bytes(batch, args.width, args.layers, devices),
            recursive_bytes(batch, args.width, args.layers, args.cuts),
            planned_bytes(batch, args.width, args.layers, devices),
        )
        print("{:>8} {:>8.2f} {:>8.2f} {:>8.2f} {:>11.2f}".format(batch, *(n / 1e9 for n in row)))
    print("\n5 layers of 300 x 300, batch 400, 16 devices; MB, p counted where p - 1 copies move")
    for name, groups in (("data", 16), ("model", 1), ("4 groups of 4", 4)):
        print(f"{name:>14} {example_bytes(400, 300, 5, groups, 16) / 1e6:>6.1f}")
    print(f"{'soybean_mx':>14} {planned_bytes(400, 300, 5, 16) / 1e6:>6.1f} (what moves)")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.exit(main(sys.argv[1:]))
