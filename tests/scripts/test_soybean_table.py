"""The script prints the paper's table beside the planner's figures."""
from __future__ import annotations

import pytest

from tests.scripts.script_modules import load

table = load("soybean_table")


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
