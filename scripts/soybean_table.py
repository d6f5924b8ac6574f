"""What the SoyBean paper (1805.04170) counts for its perceptron and its example, beside what soybean_mx plans.

``soybean_mx/reproduction/traffic.py`` says how; ``soybean-mx reproduce soybean`` has the same with all the rest.
"""
from __future__ import annotations

import argparse
import sys
from typing import Sequence

from soybean_mx.reproduction.traffic import (
    BATCHES,
    MOST_LAYERS,
    data_bytes,
    example_bytes,
    model_bytes,
    recursive_bytes,
)


def planned_bytes(batch: int, width: int, layers: int, devices: int) -> int:
    """Return what soybean_mx plans for the perceptron without biases and activations."""
    from soybean_mx.reproduction import networks  # MXNet is slow to import, and of no use to --help

    return networks.planned_bytes(networks.products(width, layers, batch), devices)


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
    if args.layers > MOST_LAYERS:
        parser.error(f"--layers is {args.layers}: at most {MOST_LAYERS} are possible, as all their forms are tried")
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
    sys.exit(main(sys.argv[1:]))
