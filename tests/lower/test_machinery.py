"""The tests' own machinery: a right lowering passes, and each of several wrong ones is found."""
from __future__ import annotations

import json
from typing import Callable, Dict, List, Optional

import mxnet as mx
import numpy as np
import pytest

from tests.child import run_child
from tests.lower.byte_count import count_bytes
from tests.lower.execution import graph_of, head_gradients, run_serial
from tests.lower.fan_out import limit_consumers
from tests.lower.random_graphs import Program, Variable, random_program
from tests.lower.random_plans import Case, Verdict, check_case, draw_case
from tests.lower.reference_lowering import ReferenceCore


def test_reference_lowering_passes():
    run_child("tests.lower.random_plans", ["--reference", "--seeds", "0-200"])


def test_a_seed_gives_the_same_program_again():
    first, second = random_program(5, 10), random_program(5, 10)
    assert first.symbol.tojson() == second.symbol.tojson()
    assert all(np.array_equal(v.value, second.variables[n].value) for n, v in first.variables.items())


def test_noise_changes_values_only():
    for seed in range(20):
        plain, noisy = random_program(seed, 10), random_program(seed, 10, noise=1e-12)
        head_grads = head_gradients(plain, seed)
        ours, theirs = run_serial(plain, head_grads).outputs, run_serial(noisy, head_grads).outputs
        assert all(np.allclose(a, b, rtol=0, atol=1e-6 * np.abs(a).max()) for a, b in zip(ours, theirs))


# -- wrong lowerings: each changes a lowered graph, and returns None where it cannot -----------------------------------
Break = Callable[[Dict], Optional[Dict]]


def _with_nodes(lowered: Dict, change: Callable[[List[Dict]], bool]) -> Optional[Dict]:
    symbol = json.loads(lowered["symbol"])
    if not change(symbol["nodes"]):
        return None
    return {**lowered, "symbol": json.dumps(symbol)}


def swap_two_tiles(lowered: Dict) -> Optional[Dict]:
    for i, a in enumerate(lowered["variables"]):
        for j, b in enumerate(lowered["variables"][:i]):
            extents = [np.subtract(v["end"], v["begin"]).tolist() for v in (a, b)]
            if a["source"] == b["source"] and a["begin"] != b["begin"] and extents[0] == extents[1]:
                changed = list(lowered["variables"])
                changed[i] = {**a, "begin": b["begin"], "end": b["end"]}
                changed[j] = {**b, "begin": a["begin"], "end": a["end"]}
                return {**lowered, "variables": changed}
    return None


def subtract_instead_of_add(lowered: Dict) -> Optional[Dict]:
    def change(nodes: List[Dict]) -> bool:
        added = [n for n in nodes if n["op"] == "elemwise_add"]
        for node in added[:1]:
            node["op"] = "elemwise_sub"
        return bool(added)

    return _with_nodes(lowered, change)


def lose_a_gradient(lowered: Dict) -> Optional[Dict]:
    def change(nodes: List[Dict]) -> bool:
        reads = [n for n in nodes if n["op"] == "_copy" and n["name"].startswith("w")]
        for node in reads[:1]:
            node["op"] = "BlockGrad"
        return bool(reads)

    return _with_nodes(lowered, change)


def forget_an_output_tile(lowered: Dict) -> Optional[Dict]:
    outputs = [{**o} for o in lowered["outputs"]]
    for item in outputs:
        if item["end"][0] - item["begin"][0] > 1:
            item["end"] = [item["end"][0] - 1, *item["end"][1:]]
            return {**lowered, "outputs": outputs}
    return None


def name_another_device(lowered: Dict) -> Optional[Dict]:
    first = lowered["outputs"][0]
    return {**lowered, "outputs": [{**first, "device": 1 - min(1, first["device"])}, *lowered["outputs"][1:]]}


def swap_mean_and_variance(lowered: Dict) -> Optional[Dict]:
    states = [v for v in lowered["variables"] if v["source"].startswith("s")]
    if not states:
        return None
    a, b = states[0]["source"], states[1]["source"]
    swap = {a: b, b: a}
    changed = [{**v, "source": swap.get(v["source"], v["source"])} for v in lowered["variables"]]
    return {**lowered, "variables": changed}


class BrokenCore(ReferenceCore):
    """The reference lowering, with a fault put in."""

    def __init__(self, fault: Break) -> None:
        super().__init__()
        self.fault, self.applied = fault, False

    def lower(self, graph: Dict, plan: Dict) -> Dict:
        lowered = super().lower(graph, plan)
        changed = self.fault(lowered)
        self.applied = changed is not None
        return changed if self.applied else lowered


FAULTS = (
    swap_two_tiles,
    subtract_instead_of_add,
    lose_a_gradient,
    forget_an_output_tile,
    name_another_device,
    swap_mean_and_variance,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_wrong_lowering_is_found(fault):
    applied = found = 0
    for seed in range(150):
        case = draw_case(seed, dtype="float64", devices=4)
        core = BrokenCore(fault)
        if not case.program.training:
            continue
        verdict = check_case(case, core)
        applied += core.applied
        found += core.applied and bool(verdict.problems)
        if applied == 20:
            break
    # A fault may hide where nothing depends on it: a variable that a BlockGrad follows, a tile that is added to itself.
    assert applied >= 8 and found >= 0.85 * applied, f"found {found} of {applied}"


def test_too_many_consumers_are_found():
    verdicts: List[Verdict] = []
    for seed in range(300):
        case = draw_case(seed, dtype="float64", devices=2)
        if case.program.training and "_mul_scalar" in case.program.symbol.tojson():
            verdicts.append(check_case(case, ReferenceCore(most_consumers=100)))
    assert any("_grad_add" in p for v in verdicts for p in v.problems)


class MiscountingCore(ReferenceCore):
    """The reference lowering with a byte figure that is right, or wrong by `error`."""

    def __init__(self, program: Program, error: int) -> None:
        super().__init__()
        self.program, self.error = program, error

    def plan(self, graph: Dict, options: Dict) -> Dict:
        plan = super().plan(graph, options)
        counted, messages = count_bytes(self.program, super().lower(graph, plan))
        return {**plan, "bytes": {**counted, "total": counted["total"] + self.error}, "messages": messages}

    def lower(self, graph: Dict, plan: Dict) -> Dict:
        return {**super().lower(graph, plan), "bytes": plan["bytes"], "messages": plan["messages"]}


def test_wrong_bytes_are_found():
    case = Case(seed=3, size=8, devices=4, strategy="random:1", dtype="float64", boundary="tiled")
    assert not check_case(case, MiscountingCore(case.program, error=0)).problems
    assert "this test counts" in check_case(case, MiscountingCore(case.program, error=8)).problems[0]


def test_bytes_of_a_graph_made_by_hand():
    # x (2, 3) on d0 goes to d1 twice over one copy; its product with w (2, 3) on d1 goes back to d0.
    x, w = mx.sym.Variable("x"), mx.sym.Variable("w")
    program = Program(
        symbol=mx.sym.Group([x * w + mx.sym.tanh(x)]),
        variables={
            "x": Variable("input", False, np.ones((2, 3))),
            "w": Variable("parameter", True, np.ones((2, 3))),
        },
        training=True,
        dtype="float64",
    )
    symbol = json.loads(program.symbol.tojson())
    place = {"x": "d0", "w": "d1", "elemwise_mul": "d1", "tanh": "d1", "elemwise_add": "d0"}
    for node in symbol["nodes"]:
        node["attrs"] = {"__ctx_group__": place.get(node["op"], place.get(node["name"]))}
    variables = [{"name": n, "source": n, "device": 0, "begin": [0, 0], "end": [2, 3]} for n in ("x", "w")]
    lowered = {"symbol": json.dumps(symbol), "variables": variables}
    # Forward: x, the product, tanh(x). Backward: the product's gradient only, as x requires none.
    assert count_bytes(program, lowered) == ({"forward": 3 * 48, "backward": 48, "total": 4 * 48}, 3)


def test_limited_consumers_compute_the_same():
    x = mx.sym.Variable("x")
    symbol = mx.sym.add_n(*[x * float(i) for i in range(12)])
    limited = json.loads(limit_consumers(symbol.tojson()))
    for i in range(len(limited["nodes"])):
        consumers = sum(source == i for n in limited["nodes"] for source, *_ in n["inputs"])
        assert consumers <= 12 if limited["nodes"][i]["op"] == "add_n" else consumers <= 5
    value = np.random.RandomState(0).rand(3, 4)
    program = Program(symbol, {"x": Variable("input", True, value)}, True, "float64")
    result = run_serial(program, [np.ones((3, 4))])
    np.testing.assert_allclose(result.outputs[0], 66 * value)
    np.testing.assert_allclose(result.gradients["x"], np.full((3, 4), 66.0))


def test_graph_json_names_every_tensor():
    program = random_program(7, 12)
    graph = graph_of(program)
    names = {n["name"] for n in json.loads(graph["symbol"])["nodes"]}
    assert set(graph["shapes"]) == set(graph["itemsizes"]) == names
    assert set(graph["variables"]) == set(program.variables) <= names
