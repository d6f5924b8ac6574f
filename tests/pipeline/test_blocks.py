"""Unmodified programs whose blocks run in stages."""
from __future__ import annotations

import pytest

from tests.child import run_child
from tests.parity.test_script import DEFAULT_TOLERANCE, SCRIPT, SECTIONS, assert_same, parse, run_plain


@pytest.mark.parametrize("name", ["networks", "statistics_of_microbatches", "uses", "tied_sums", "checkpoints",
                                  "other_blocks", "shared_by_blocks", "refused"])
def test_a_block_in_stages_is_as_on_one_device(name, tmp_path):
    files = [str(tmp_path / "net.params")] if name == "checkpoints" else []
    assert f"done {name}" in run_child("tests.pipeline.blocks", [name, *files])


# Says at the end whether any block ran in stages; if not, agreement is no surprise.
STAGED = """
import sys
from soybean_mx import cli
cli.main(["run", "--devices", "cpu:2", *sys.argv[1:]])
print("graphs", int("soybean_mx.pipeline.blocks" in sys.modules))
"""


def test_a_script_in_stages_prints_what_one_device_does(tmp_path):
    sections = [name for name in SECTIONS if name != "clip_global_norm"]
    printed = run_child(STAGED, [str(SCRIPT), str(tmp_path), *sections], env={
        "SOYBEAN_MX_PARALLEL": "pipeline", "SOYBEAN_MX_MICROBATCHES": "1"})
    assert printed.split()[-1] == "1"
    staged, plain = parse(printed), run_plain(tmp_path, *sections)
    for name in sections:
        assert_same(plain[name], staged[name], DEFAULT_TOLERANCE)
