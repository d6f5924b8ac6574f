"""Binds every operator that has a rule, with a control dependency on its node, as all nodes of a tiled graph have one.

    python -m tests.lower.control_dependencies

Prints the operators that MXNet cannot bind so with gradients. The lowering must know them
(``may_follow`` in csrc/rules/gradient.cc).
"""
from __future__ import annotations

import json

import mxnet as mx

from tests.rules.cases import CASES
from tests.rules.cutting import Case, draw_inputs, symbol_text, visible_outputs


def is_bound(case: Case) -> bool:
    """Whether MXNet binds the operator of a case behind a control dependency."""
    attrs, count = {k: str(v) for k, v in case.attrs.items()}, len(case.inputs)
    graph = json.loads(symbol_text(case.op, attrs, count, visible_outputs(case.op, attrs, count)))
    graph["nodes"].insert(count, {"op": "_zeros", "name": "before", "attrs": {"shape": "(1,)"}, "inputs": []})
    graph["nodes"][-1]["control_deps"] = [count]
    graph["heads"] = [[count + 1, index, 0] for _, index, _ in graph["heads"]]
    symbol = mx.sym.load_json(json.dumps(graph))
    arrays = {f"x{i}": mx.nd.array(a, dtype=o.dtype) for i, (a, o) in enumerate(zip(draw_inputs(case, 0), case.inputs))}
    names = symbol.list_arguments()
    asked = {f"x{i}" for i, operand in enumerate(case.inputs) if operand.gradient} & set(names)
    gradients = {name: mx.nd.zeros(arrays[name].shape, dtype=arrays[name].dtype) for name in asked}
    requests = {name: "write" if name in asked else "null" for name in names}
    try:
        symbol.bind(mx.cpu(), {name: arrays[name] for name in names}, gradients, requests,
                    {name: arrays[name] for name in symbol.list_auxiliary_states()})
    except mx.MXNetError:
        return False
    return True


def main() -> None:
    """Print the operators that are not bound, each once."""
    first = {}
    for case in CASES:
        if case.training and any(operand.gradient for operand in case.inputs):
            first.setdefault(case.op, case)
    for op, case in first.items():
        with mx.util.np_shape(case.numpy):
            if not is_bound(case):
                print(op)


if __name__ == "__main__":
    main()
