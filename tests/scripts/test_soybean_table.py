"""The paper's table and example, to the digits that are printed."""
from __future__ import annotations

import pytest

from tests.scripts.script_modules import load

table = load("soybean_table")


def gigabytes(n: int) -> str:
    return f"{n / 1e9:.2f}"


@pytest.mark.parametrize(
    "batch, model", ((512, "0.94"), (1024, "1.88"), (2048, "3.76"), (4096, "7.52"), (8192, "15.03"))
)
def test_data_and_model_parallelism(batch, model):
    assert gigabytes(table.data_bytes(8192, 4, 8)) == "15.03"
    assert gigabytes(table.model_bytes(batch, 8192, 4, 8)) == model


@pytest.mark.parametrize(
    "batch, printed", ((512, "0.37"), (1024, "0.74"), (2048, "1.48"), (4096, "2.95"), (8192, "5.37"))
)
def test_recursion(batch, printed):
    assert gigabytes(table.recursive_bytes(batch, 8192, 4, 3)) == printed


@pytest.mark.parametrize("groups, megabytes", ((16, 57.6), (1, 76.8), (4, 33.6)))
def test_the_example(groups, megabytes):
    assert table.example_bytes(400, 300, 5, groups, 16) == megabytes * 1e6


def test_what_is_printed(capsys):
    assert table.main(["--batches", "512"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line.split() for line in lines if line.split()[:1] == ["512"])
    assert row[:4] == ["512", "15.03", "0.94", "0.37"]
    assert float(row[4]) <= 24 * 512 * 8192 * 4 / 1e9 + 0.005
    assert any(line.split()[-1:] == ["33.6"] for line in lines)


def test_no_layers():
    for layers in ("0", "9"):
        with pytest.raises(SystemExit):
            table.main(["--layers", layers])
