"""Pipelined training against one device: exact where the schedule flushes, by the update rule where it does not."""
from __future__ import annotations

import re

import pytest

from tests.child import run_child

NAMES = re.compile(r"^(\w+) (.*)$", re.MULTILINE)


def said(module, arguments):
    return dict(NAMES.findall(run_child(f"tests.pipeline.{module}", arguments.split(), timeout=200)))


@pytest.mark.parametrize("case", [
    "alexnet flush 2 4", "vgg11_bn gpipe 3 2", "resnet18_v1 flush 4 4", "transformer interleaved 6 3",
    "transformer gpipe 8 4", "transformer flush 2 4 2-2", "mlp flush 3 4 2-1-1"])
def test_a_schedule_that_flushes_is_as_one_device(case):
    assert float(said("parity", case)["difference"]) < 1e-5


@pytest.mark.parametrize("case, versions", [
    ("1f1b 2", "2 1"), ("1f1b 6", "6 5 4 3 2 1"), ("1f1b-vertical-sync 3", "3 3 3"), ("2bw 4 4", "2 2 2 2"),
    ("1f1b 3 1 2-1-1", "2 2 1"), ("1f1b 2 1 4-2", "2 1"), ("1f1b 2 1 2-4", "3 1"),
    ("1f1b-vertical-sync 2 1 2-2", "3 3")])
def test_others_follow_their_update_rule(case, versions):
    result = said("simulation", case)
    assert float(result["difference"]) < 1e-13
    assert result["versions"] == versions


@pytest.mark.parametrize("case, most", [("1f1b 2 recoverable", 3), ("1f1b 4 recoverable", 5),
                                        ("1f1b 2 1 2-2 recoverable", 4)])
def test_the_last_full_update_is_kept_beside(case, most):
    """The numbers are the same; how many versions there are depends on how far the stages are apart."""
    result = said("simulation", case)
    assert float(result["difference"]) < 1e-13
    assert all(1 < int(count) <= most for count in result["versions"].split())


@pytest.mark.parametrize("name", [
    "smaller_last_batches", "other_optimizers", "adam_keeps_versions", "mid_run", "continued", "uneven_replicas",
    "tied_weights_asynchronous", "frozen_parameters", "failing_stage_unread", "failing_stage_read", "last_full_update",
    "dropped", "recomputed", "nothing_waits"])
def test_behaviour(name, tmp_path):
    result = run_child("tests.pipeline.behaviours", [name, str(tmp_path / "net.params")], timeout=120)
    assert f"done {name}" in result


def test_running_passes_again_takes_less_memory():
    kept, again = (float(re.search(r"memory (\S+)", run_child("tests.pipeline.behaviours", ["memory", how]))[1])
                   for how in ("kept", "again"))
    assert again < kept - 120  # of 16 layers' results, 16 MB each, two stages keep one layer's
