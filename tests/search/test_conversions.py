"""What conversions move: the collectives by hand, chains of exchanges, and the core's conversions of random plans."""
from __future__ import annotations

import itertools

import numpy as np
import pytest

from soybean_mx import core
from tests.search.conversions import (
    OWNER,
    PARTIAL,
    REPLICATED,
    Tiling,
    chained,
    conversions,
    orders,
    text,
)
from tests.search.programs import mlp, residual, siamese, small_convnet


@pytest.mark.parametrize("p", (2, 3, 5))
def test_one_cut(p):
    a = 15 * p * p  # elements
    known = conversions((p,), (3 * p, 5 * p), (0, 1))
    expected = {
        (0, REPLICATED): (p - 1) * a, (0, 1): a * (p - 1) // p, (0, OWNER): a * (p - 1) // p, (REPLICATED, 0): 0,
        (REPLICATED, OWNER): 0, (OWNER, REPLICATED): (p - 1) * a, (OWNER, 1): a * (p - 1) // p,
        (PARTIAL, 0): (p - 1) * a, (PARTIAL, OWNER): (p - 1) * a, (PARTIAL, REPLICATED): 2 * (p - 1) * a, (1, 1): 0,
    }
    for (before, after), moved in expected.items():
        assert known.between([((before, 0),)], [((after, 0),)])[0, 0] == moved, (before, after)


def test_uneven_parts():
    # Rows 3 and 2, columns 2 and 1: the first device has 3 of the 5 rows of its 2 columns, the other 2 of its one's.
    known = conversions((2,), (5, 3), (0, 1))
    rows, columns = ((0, 0),), ((1, 0),)
    assert known.between([rows], [columns])[0, 0] == (5 * 2 - 3 * 2) + (5 * 1 - 2 * 1)


SHAPES = (
    ((2, 2), (5, 7)), ((2, 2), (2, 4)), ((2, 3), (12, 12)), ((2, 3), (7, 9)), ((2, 3), (4, 2, 3)), ((3, 3), (10, 8)),
    ((2, 2, 2), (8, 8)), ((2, 2, 2), (7, 9)), ((2, 2, 2), (3, 5)), ((2, 2, 3), (13, 7)),
)


@pytest.mark.parametrize("cuts, shape", SHAPES)
def test_one_stage_without_sums_is_enough(cuts, shape):
    """No chain of exchanges moves less than the best of two, the first of which ends all sums."""
    known = conversions(cuts, shape, tuple(range(len(shape))))
    whole = [i for t, i in known.number.items() if all(c != PARTIAL for c, _ in t)]
    short = np.minimum(known.exchanges, chained(known.exchanges[:, whole], known.exchanges[whole]))
    assert np.array_equal(short[:, whole], known.conversions[:, whole])
    assert np.array_equal(known.exchanges[np.ix_(whole, whole)], known.conversions[np.ix_(whole, whole)])


def tiling_of(texts) -> Tiling:
    """Read a tiling of a plan. Without levels, the last of the cuts of a dim divides first."""
    names = {"replicated": REPLICATED, "owner": OWNER, "partial": PARTIAL}
    choices, levels = [], []
    for item in texts:
        if not item.startswith("split"):
            choices.append(names[item])
            levels.append(0)
            continue
        dim, _, level = item[len("split ") :].partition("/")
        choices.append(int(dim))
        levels.append(int(level) if level else None)
    for dim in {c for c in choices if c >= 0}:
        own = [i for i, c in enumerate(choices) if c == dim]
        if any(levels[i] is None for i in own):
            for level, i in enumerate(reversed(own)):
                levels[i] = level
    tiling = tuple(zip(choices, levels))
    assert tiling in orders(choices)
    return tiling


@pytest.mark.parametrize("devices", (2, 3, 4, 6, 8, 9, 12))
def test_conversions_of_random_plans(devices):
    compared = 0
    for graph in (mlp(13, [4, 12, 7], activation=True), residual(6, 9), siamese(5, 8), small_convnet(7, 6)):
        space = core.space(graph, {"devices": devices})
        tensors = {node["name"]: node for node in space["nodes"]}
        for seed in range(20):
            plan = core.plan(graph, {"devices": devices, "strategy": f"random:{seed}", "spatial": "no"})
            for conversion in plan["conversions"]:
                node = tensors[conversion["tensor"]]
                shape = node["outputs"][0]["shape"]
                before, after = tiling_of(conversion["from"]), tiling_of(conversion["to"])
                if len(shape) > 2 and len(space["cuts"]) > 2:
                    continue  # too many tilings
                known = conversions(tuple(space["cuts"]), tuple(shape), tuple(range(len(shape))))
                moved = int(known.between([before], [after])[0, 0]) * 4 * (2 if node["requires_grad"] else 1)
                assert conversion["bytes"] == moved, f"{shape}: {text(before)} -> {text(after)}"
                compared += 1
    assert compared > 100


def test_orders():
    assert len(orders((0, 0, 0))) == 6
    assert len(set(itertools.chain(*(orders(c) for c in itertools.product((0, 1, REPLICATED), repeat=2))))) == 11
