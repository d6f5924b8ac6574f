"""One typical call of each operator, of the cases whose rules are checked.

`python -m tests.rules.typical_calls` writes them into the package (`soybean_mx/operator_calls.json`).
"""
from __future__ import annotations

import json
from typing import Any, Dict, List

from soybean_mx.files import write_text
from soybean_mx.operator_coverage import CALLS_FILE, factors_of, rule_of
from tests.rules.cases import CASES
from tests.rules.cutting import Case, draw_inputs, run, visible_outputs


def call_of(case: Case) -> Dict[str, Any]:
    """Return a case as a call with the shapes of its outputs, which MXNet gives."""
    attrs = {name: str(value) for name, value in case.attrs.items()}
    arrays = draw_inputs(case, 0)
    outputs = run(case, attrs, arrays, case.inputs, visible_outputs(case.op, attrs, len(arrays)), None).outputs
    return {"op": case.op, "attrs": attrs, "inputs": [list(operand.shape) for operand in case.inputs],
            "outputs": [list(output.shape) for output in outputs], "training": case.training}


def typical_calls() -> List[Dict[str, Any]]:
    """Return, by operator, the call that can be cut along the most factors; the first of several such."""
    best: Dict[str, Dict[str, Any]] = {}
    most: Dict[str, int] = {}
    for case in CASES:
        if case.op.startswith("_soybean_mx_"):
            continue
        call = call_of(case)
        count = len(factors_of(rule_of(call)))
        if count > most.get(case.op, -1):
            best[case.op], most[case.op] = call, count
    return [best[op] for op in sorted(best)]


def text(calls: List[Dict[str, Any]]) -> str:
    """Return the file's text: one call on each line."""
    return "[\n" + ",\n".join(" " + json.dumps(call) for call in calls) + "\n]\n"


if __name__ == "__main__":
    write_text(CALLS_FILE, text(typical_calls()))
