"""Traces of pipelined training: the measured bubble against each schedule's formula."""
from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from soybean_mx.pipeline.schedule import SCHEDULES, SYNCHRONOUS, UPDATE, Operation
from tests.child import run_child

SLACK = 0.12  # on a machine that does other things too; alone it is below 0.02
LINE = re.compile(r"^(\S+) bubble (\S+) formula (\S+) of_times (\S+) utilisation (.*)$", re.MULTILINE)


def test_the_measured_bubble_is_the_formula(tmp_path):
    found = LINE.findall(run_child("tests.pipeline.traced", [str(tmp_path / "trace.json")], timeout=120))
    assert [schedule for schedule, *_ in found] == list(SCHEDULES)
    for schedule, bubble, formula, of_times, utilisation in found:
        assert float(bubble) == pytest.approx(float(formula), abs=SLACK), schedule
        assert float(of_times) == pytest.approx(float(formula), abs=SLACK), schedule
        shares = [float(share) for share in utilisation.split()]
        on_device = 2 if schedule == "interleaved" else 1
        assert all(share * on_device == pytest.approx(1 - float(formula), abs=SLACK) for share in shares), schedule


class _Stamped(NamedTuple):
    """A stamp whose time is given."""

    nanoseconds: int


class _Given:
    """A trace whose times are given."""

    def __init__(self, schedule, replicas, events):
        from soybean_mx.pipeline.trace import Trace

        self.trace = Trace(schedule, replicas, [])
        self.trace.contexts = [None] * sum(replicas)
        for kind, stage, microbatch, device, begin, end in events:
            stamps = _Stamped(begin), _Stamped(end)
            self.trace._held.append((Operation(kind, stage, microbatch, 0), 0, device, stamps))


def test_shares_of_given_times():
    # Two devices; an update runs beside the next pass, and the second device begins later and ends earlier.
    trace = _Given("1f1b", [1, 1], [
        ("forward", 0, 0, 0, 10, 30), ("forward", 1, 0, 1, 30, 50), (UPDATE, 0, 0, 0, 40, 60),
        ("forward", 0, 1, 0, 50, 70), ("backward", 1, 0, 1, 60, 80), ("backward", 0, 0, 0, 90, 110)]).trace
    assert trace.span() == pytest.approx((20e-9, 70e-9))
    assert trace.utilisation() == pytest.approx([30 / 50, 40 / 50])
    assert trace.bubble() == pytest.approx(1 - 70 / 100)
    flushed = _Given("flush", [1, 1], [
        ("forward", 0, 0, 0, 10, 20), ("forward", 1, 0, 1, 20, 30), ("backward", 1, 0, 1, 30, 50),
        ("backward", 0, 0, 0, 50, 70), (UPDATE, 0, 0, 0, 70, 90)]).trace
    assert flushed.bubble() == pytest.approx(0.5) == flushed.expected_bubble()
    assert flushed.utilisation() == pytest.approx([50 / 80, 30 / 80])


def test_a_trace_that_holds_too_little():
    from soybean_mx.pipeline.trace import TraceError

    for schedule in (SYNCHRONOUS[0], "1f1b"):
        with pytest.raises(TraceError, match="trace more steps"):
            _Given(schedule, [1, 1], []).trace.bubble()
