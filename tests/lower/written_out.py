"""Operators that take statistics, cut along what they take them over, each compared with one device.

    python -m tests.lower.written_out

The cases are those of tests/rules whose rule has a factor with a statistic. Every such factor is cut into 2, 3, 4 and 6
parts as far as it has room, alone and with every other factor.
"""
from __future__ import annotations

import itertools
import sys
from typing import Dict, Iterator, List, Sequence, Tuple

import mxnet as mx
import numpy as np

from soybean_mx import core
from tests.lower.execution import graph_of, head_gradients, run_lowered, run_serial
from tests.lower.random_graphs import Program, Variable
from tests.lower.random_plans import compare
from tests.rules.cases import CASES
from tests.rules.cutting import NODE, Case, draw_inputs, symbol_text, visible_outputs

CUTS = ((2,), (3,), (2, 2), (2, 3))


def program_of(case: Case) -> Program:
    """Return the operator of a case as a program whose inputs are parameters."""
    attrs = {k: str(v) for k, v in case.attrs.items()}
    count = len(case.inputs)
    symbol = mx.sym.load_json(symbol_text(case.op, attrs, count, visible_outputs(case.op, attrs, count)))
    arrays = draw_inputs(case, 0)
    variables = {f"x{i}": Variable("parameter", case.training and operand.gradient, array)
                 for i, (operand, array) in enumerate(zip(case.inputs, arrays))}
    return Program(symbol, variables, case.training, "float32")


def with_statistics(cases: Sequence[Case]) -> List[Case]:
    """Return the cases whose factors tell of a statistic (tests/rules/cutting.py)."""
    return [case for case in cases if "*" in (case.factors or "")]


def pins_of(rule: Dict) -> Iterator[Tuple[Tuple[int, ...], List[str]]]:
    """Yield cuts and the factor that each of them cuts, at least one of which has a statistic."""
    factors = {f["name"]: f for f in rule["factors"]}
    for cuts in CUTS:
        for names in itertools.product(factors, repeat=len(cuts)):
            parts = {name: int(np.prod([p for p, other in zip(cuts, names) if other == name])) for name in names}
            fits = all(n <= factors[name]["size"] and not (factors[name]["even"] and factors[name]["size"] % n)
                       for name, n in parts.items())
            if fits and any(factors[name]["statistic"] for name in names):
                yield cuts, list(names)


def check(case: Case) -> Tuple[int, List[str]]:
    """Run a case under every cut; return how many there were, and a line for each tensor that differs."""
    program = program_of(case)
    graph, heads = graph_of(program), head_gradients(program, 0)
    serial = run_serial(program, heads)
    count, problems = 0, []
    rule = core.rules(graph)[NODE]
    # Where the outputs are what is left of a statistic, not every device may need it.
    joined = {f for f, factor in enumerate(rule["factors"]) if factor["statistic"]}
    everywhere = joined <= set(rule["outputs"][0]["dims"])
    for cuts, names in pins_of(rule):
        devices = int(np.prod(cuts))
        plan = core.plan(graph, {"devices": devices, "pins": {NODE: names}, "spatial": "yes"})
        lowered = core.lower(graph, plan)
        errors = compare(serial, run_lowered(program, lowered, devices, heads), "float32")
        problems += [f"{case} {names}: {n}: {e:.3g}" for n, e in errors.items()]
        moved = {k: plan["bytes"][k] for k in ("forward", "backward", "total")}
        as_planned = lowered["bytes"] == moved if everywhere else lowered["bytes"]["total"] <= moved["total"]
        if plan["bytes"]["statistics"] <= 0 or not as_planned:
            problems.append(f"{case} {names}: the plan moves {plan['bytes']}, the lowered graph {lowered['bytes']}")
        count += 1
    return count, problems


def main() -> None:
    """Check all cases."""
    failed = []
    for case in with_statistics(CASES):
        print(case, file=sys.stderr, flush=True)
        count, problems = check(case)
        print(f"{case}: {count} plans, {len(problems)} differences")
        if count == 0:
            failed.append(f"{case}: no plan")
        failed += problems
    if failed:
        sys.exit("\n".join(failed[:20]))


if __name__ == "__main__":
    main()
