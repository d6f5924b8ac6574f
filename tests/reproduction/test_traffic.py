"""The paper's table and example, to the digits that are printed."""
from __future__ import annotations

import pytest

from soybean_mx.reproduction import traffic


def gigabytes(n: int) -> str:
    return f"{n / 1e9:.2f}"


@pytest.mark.parametrize(
    "batch, model", ((512, "0.94"), (1024, "1.88"), (2048, "3.76"), (4096, "7.52"), (8192, "15.03"))
)
def test_data_and_model_parallelism(batch, model):
    assert gigabytes(traffic.data_bytes(8192, 4, 8)) == "15.03"
    assert gigabytes(traffic.model_bytes(batch, 8192, 4, 8)) == model


@pytest.mark.parametrize(
    "batch, printed", ((512, "0.37"), (1024, "0.74"), (2048, "1.48"), (4096, "2.95"), (8192, "5.37"))
)
def test_recursion(batch, printed):
    assert gigabytes(traffic.recursive_bytes(batch, 8192, 4, 3)) == printed


@pytest.mark.parametrize("groups, megabytes", ((16, 57.6), (1, 76.8), (4, 33.6)))
def test_the_example(groups, megabytes):
    assert traffic.example_bytes(400, 300, 5, groups, 16) == megabytes * 1e6
