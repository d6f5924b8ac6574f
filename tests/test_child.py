"""The child runner reports a crash, a failure and a timeout, and passes output and environment through."""
from __future__ import annotations

import pytest

from tests.child import ChildFailure, run_child, run_each


def test_output_arguments_and_environment():
    code = "import os, sys\nprint(sys.argv[1], os.environ['A'], 'PWD' in os.environ)"
    assert run_child(code, ["x"], env={"A": "1", "PWD": None}) == "x 1 False\n"


def test_segmentation_fault_is_reported_with_the_place():
    code = "import ctypes, sys\nprint('case 7', file=sys.stderr, flush=True)\nctypes.string_at(0)"
    with pytest.raises(ChildFailure, match="SIGSEGV") as failure:
        run_child(code)
    assert "case 7" in str(failure.value) and "string_at" in str(failure.value)


def test_exception_is_reported():
    with pytest.raises(ChildFailure, match="exit status 1") as failure:
        run_child("raise ValueError('the reason')\n")
    assert "the reason" in str(failure.value)


def test_timeout_is_reported():
    with pytest.raises(ChildFailure, match="not done after 0.5 s"):
        run_child("import time\ntime.sleep(30)", timeout=0.5)


def test_those_after_a_crash_go_on_in_another_child(tmp_path):
    code = """
import os, pathlib, sys
for name in sys.argv[2:]:
    if name.startswith("crash"):
        os.abort()
    pathlib.Path(sys.argv[1], name + ".out").touch()
"""
    failures = run_each(code, tmp_path, ["a", "crash", "b", "crash again", "c"], ".out", 60)
    assert sorted(failures) == ["crash", "crash again"] and "SIGABRT" in failures["crash"]
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_child_that_fails_when_all_is_done_is_reported(tmp_path):
    code = "import pathlib, sys\npathlib.Path(sys.argv[1], 'a.out').touch()\nsys.exit(3)"
    assert "exit status 3" in run_each(code, tmp_path, ["a"], ".out", 60)["a"]
