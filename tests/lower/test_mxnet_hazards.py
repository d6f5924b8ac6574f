"""Faults of MXNet 1.9.1 that shape what the lowering may write, each in the smallest program that shows it.

The programs are those of docs/mxnet_bugs.md. These tests fail when MXNet no longer has the fault, and then the lowering
can be simplified. Each runs in a child process, as some of the faults are crashes.
"""
from __future__ import annotations

import pytest

from tests.child import ChildFailure, run_child
from tests.mxnet_bugs.page import HERE

WITHOUT_ONEDNN = {"MXNET_MKLDNN_ENABLED": "0", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"}


def run_bug(name: str, *args: str, env=None) -> str:
    """Run a script of tests/mxnet_bugs and return the last line that it printed."""
    return run_child(str(HERE / f"{name}.py"), args, env=env).splitlines()[-1]


def last_number(line: str) -> float:
    """Return the number that a line ends in."""
    return float(line.split()[-1])


def test_concat_on_few_channels_fails_in_backward():
    # oneDNN keeps the gradient in blocks of 8 or 16 channels and cannot take 4 out of one: a floating point exception,
    # or "could not construct a sub-memory" for 12 + 12.
    with pytest.raises(ChildFailure):
        run_bug("concat_few_channels")


def test_numpy_concatenate_on_few_channels_works():
    expected = last_number(run_bug("concat_few_channels", env=WITHOUT_ONEDNN))
    assert last_number(run_bug("concat_few_channels", "_npi_concatenate")) == pytest.approx(expected, rel=1e-5)


def test_deconvolution_of_a_computed_weight_fails():
    run_bug("deconvolution_of_a_computed_weight", "variable")
    with pytest.raises(ChildFailure, match="could not execute a primitive"):
        run_bug("deconvolution_of_a_computed_weight", "computed")


def test_bias_gradient_is_not_written_beside_a_frozen_weight():
    assert run_bug("bias_beside_a_frozen_weight").startswith("[-7.0, -7.0, -7.0],")
    assert run_bug("bias_beside_a_frozen_weight", env=WITHOUT_ONEDNN).startswith("[4.0, 4.0, 4.0],")


def test_inputs_that_are_ignored_are_converted():
    with pytest.raises(ChildFailure, match="doesn't match the requested MKLDNN memory desc"):
        run_bug("ignored_inputs")
    assert run_bug("ignored_inputs", env={"NNVM_EXEC_MATCH_RANGE": "0"}).startswith("0.0,")


def test_gradient_of_many_consumers_is_wrong_on_one_device():
    # 0 + 1 + ... + 7 from the sum, 1 from each of the others.
    assert not run_bug("many_gradients").startswith("gradient 30.0,")
    assert run_bug("many_gradients", env={"MXNET_EXEC_INPLACE_GRAD_SUM_CAP": "100"}).startswith("gradient 30.0,")


def test_operators_of_a_library_overwrite_where_they_are_to_add():
    assert run_bug("added_gradient_of_a_library").startswith("[1.0, 1.0, 1.0],")  # and not 2


def test_states_may_be_computed_but_not_behind_a_copy():
    assert run_bug("state_behind_a_copy", "first") == "(2, 3)"
    with pytest.raises(ChildFailure, match="mutable state cannot go across device"):
        run_bug("state_behind_a_copy", "behind")


def test_operators_that_mistake_a_control_dependency_are_known():
    """Of those that have a rule; tests/parity/traps.py trains a graph with them."""
    assert run_child("tests.lower.control_dependencies").split() == ["gather_nd", "scatter_nd"]
