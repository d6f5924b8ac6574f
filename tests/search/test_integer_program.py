"""The planner against the integer programme (integer_program.py) on whole networks.

`python -m tests.search.test_integer_program` prints the table of docs/planner.md.
"""
from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from soybean_mx import core
from tests.search.brute_force import optimal_bytes
from tests.search.integer_program import CostNetwork, integer_optimum
from tests.search.networks import NETWORKS, graph_of_network
from tests.search.programs import mlp, residual, siamese, two_heads

RUNS = tuple((name, devices) for name in NETWORKS for devices in (2, 4, 8))


@pytest.mark.parametrize("name, devices", RUNS)
def test_networks(name, devices):
    graph = graph_of_network(name)
    plan = core.plan(graph, {"devices": devices, "spatial": "no"})
    least = integer_optimum(graph, devices)
    assert plan["exact"]
    assert plan["bytes"]["total"] == least.total
    assert least.bound == pytest.approx(least.total, rel=1e-9)


@pytest.mark.parametrize("devices", (2, 4, 6, 8, 12, 16))
@pytest.mark.parametrize("kind", ("mlp", "residual", "two heads", "shared weight"))
def test_small_programs_on_more_devices(kind, devices):
    graph = {
        "mlp": mlp(96, [48, 96, 48, 192], bias=True, activation=True), "residual": residual(48, 96),
        "two heads": two_heads(96, 48, 96, 48), "shared weight": siamese(48, 96),
    }[kind]
    plan = core.plan(graph, {"devices": devices, "spatial": "no"})
    least = integer_optimum(graph, devices)
    assert plan["lower_bound_bytes"] <= plan["bytes"]["total"]
    assert least.total <= plan["bytes"]["total"], "no plan moves less than the bound"
    if len(set(core.space(graph, {"devices": devices})["cuts"])) == 1:
        assert plan["bytes"]["total"] == least.total


def test_reducing_leaves_the_optimum():
    rs = np.random.RandomState(3)
    for _ in range(40):
        sizes = [int(n) for n in rs.randint(1, 4, 5)]
        network = CostNetwork(sizes)
        for u, v in ((0, 1), (1, 2), (2, 3), (3, 0), (1, 3), (3, 4)):
            network.add(u, v, rs.randint(0, 6, (sizes[u], sizes[v])))
        tables = dict(network.pairs)
        least = min(
            sum(int(table[chosen[u], chosen[v]]) for (u, v), table in tables.items()) for chosen in np.ndindex(*sizes)
        )
        network.reduce()
        assert network.minimise().total == least


def main() -> int:
    """Print what each network moves by the planner and by the integer programme."""
    print("| network | devices | integer programme | choices | pairs | seconds | all arrangements | seconds | plan |")
    print("|---|---|---|---|---|---|---|---|---|")
    different = 0
    for name, devices in RUNS:
        graph = graph_of_network(name)
        plan = core.plan(graph, {"devices": devices, "spatial": "no"})["bytes"]["total"]
        start = time.process_time()
        least = integer_optimum(graph, devices)
        middle = time.process_time()
        arranged = optimal_bytes(graph, devices)
        end = time.process_time()
        different += plan != arranged
        print(f"| {name} | {devices} | {least.total:,} | {least.binaries:,} | {least.pairs:,} | {middle - start:.1f} | "
              f"{arranged:,} | {end - middle:.1f} | {plan:,} |", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
