"""Every rule against MXNet itself: the parts of a cut operator give what the whole one gives."""
from __future__ import annotations

import dataclasses
from typing import Dict, List

import numpy as np
import pytest

from tests.rules.cases import CASES, READ, UNKNOWN
from tests.rules.cutting import Case, check_rule, draw_inputs, real, rule_of, run, run_whole, visible_outputs

OWN_GRADIENT = ("SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput",
                "SVMOutput", "MakeLoss", "make_loss", "IdentityAttachKLSparseReg")

GARBAGE = ("", " ", "garbage", "-1", "99999999999999999999", "9223372036854775807", "-9223372036854775808", "(1", "1)",
           "(,)", "(1, 2, 3, 4, 5, 6, 7, 8, 9)", "((1, 2), (3, 4))", "()", "[None]", "None", "True", "2.5", "(0, 0)",
           "NHWC", "ij,jk->ik", "->", "\u00e9")

# Shapes that no case has: scalars, huge extents, many dims.
ODD_SHAPES = ([], [1], [4, 1], [2 ** 40], [2 ** 20, 2 ** 20], [1] * 9, [3, 5, 7], [2, 2, 2, 2])


def texts(case: Case) -> Dict[str, str]:
    """Return the attributes of a case as MXNet writes them."""
    return {k: str(v) for k, v in case.attrs.items()}


def output_shapes(case: Case) -> List[List[int]]:
    """Ask MXNet for the shapes of a case's outputs."""
    attrs = texts(case)
    arrays = draw_inputs(case, 0)
    outputs = visible_outputs(case.op, attrs, len(arrays))
    return [list(o.shape) for o in run(case, attrs, arrays, case.inputs, outputs, None).outputs]


def whole_rule(case: Case) -> Dict:
    """Return the rule of a case."""
    return rule_of(case, texts(case), [o.shape for o in case.inputs], output_shapes(case))


def named_factors(rule: Dict) -> List[str]:
    """Return the names of the factors that can be cut, those of sums with a + behind, those of statistics with a *."""
    return sorted(f["name"] + "+" * f["reduced"] + "*" * f["statistic"] for f in rule["factors"] if f["size"] > 1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_give_the_whole(case: Case):
    rule = check_rule(case)
    assert rule["known"]
    if case.factors is None:
        dims = rule["outputs"][0]["dims"]
        assert -1 not in dims and len(set(dims)) == len(dims)
        assert not any(f["reduced"] for f in rule["factors"])
    else:
        assert named_factors(rule) == sorted(case.factors.split())


@pytest.mark.parametrize(("case", "outputs"), UNKNOWN, ids=lambda v: str(v) if isinstance(v, Case) else "")
def test_what_cannot_be_cut_has_no_rule(case: Case, outputs):
    rule = rule_of(case, texts(case), [o.shape for o in case.inputs], outputs)
    assert not rule["known"]
    assert rule["factors"] == [] and rule["inputs"] == [] and rule["outputs"] == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_flags(case: Case):
    rule = whole_rule(case)
    drops = (case.training or case.attrs.get("mode") == "always") if case.op == "Dropout" else not case.exact
    assert rule["random"] == (drops or case.op in OWN_GRADIENT)
    pools = case.op in ("Pooling", "Pooling_v1") and "global_pool" in case.attrs
    global_average = pools and case.attrs["pool_type"] == "avg"
    assert rule["average"] == (case.op in ("mean", "_npi_mean", "Correlation") or global_average)
    names = [f["name"] for f in rule["factors"]]
    assert len(set(names)) == len(names) and not {"owner", "replicated"} & set(names)
    batch = [f for f, factor in enumerate(rule["factors"]) if factor["batch"]]
    assert len(batch) <= 1
    for f in batch:
        assert f in rule["inputs"][0]["dims"]
        assert rule["factors"][f]["reduced"] or rule["factors"][f]["same"] or rule["outputs"][0]["dims"][0] == f


@pytest.mark.parametrize("case", [
    Case("FullyConnected", {"num_hidden": 5}, [real(4, 6), real(5, 6), real(5)]),
    Case("Convolution", {"kernel": "(3, 3)", "num_filter": 5}, [real(4, 6, 7, 5), real(5, 6, 3, 3), real(5)]),
    Case("Pooling", {"kernel": "(2, 2)"}, [real(4, 6, 7, 5)]),
    Case("Flatten", {}, [real(4, 6, 7, 5)]),
    Case("softmax", {}, [real(4, 6)]),
    Case("elemwise_add", {}, [real(4, 6), real(4, 6)]),
    Case("_contrib_arange_like", {"axis": 1}, [real(4, 6)]),
    Case("mean", {"axis": 0, "exclude": True}, [real(4, 6)]),
    Case("mean", {}, [real(4)]),
], ids=str)
def test_the_sample_dim_is_the_batch(case: Case):
    assert [f["name"] for f in whole_rule(case)["factors"] if f["batch"]] == ["n"]


@pytest.mark.parametrize("op", sorted({case.op for case in CASES if case.training}))
def test_a_gradient_that_is_always_zero_is_known_to_be(op: str):
    passes = []
    for case in (case for case in CASES if case.op == op and case.training):
        whole, heads = run_whole(case, texts(case), draw_inputs(case, 0), 0)
        # What is not a floating-point number has no gradient in any operator.
        if heads is None or any(o.dtype.kind != "f" for o in whole.outputs):
            return
        passes.append(any(g is not None and g.any() for g in whole.gradients))
        if passes[-1]:
            break
    assert whole_rule(case)["stops_gradient"] != any(passes)


def test_batch_norm_in_training_has_no_batch_factor():
    case = next(c for c in CASES if c.op == "BatchNorm")
    assert not any(f["batch"] for f in whole_rule(case)["factors"])


@pytest.mark.parametrize(("case", "even"), [
    (Case("FullyConnected", {"num_hidden": 5}, [real(4, 6, 2), real(5, 12), real(5)]), {"k"}),
    (Case("FullyConnected", {"num_hidden": 5}, [real(4, 6), real(5, 6), real(5)]), set()),
    (Case("Flatten", {}, [real(4, 6, 2)]), {"d1"}),
    (Case("Convolution", {"kernel": "(3,)", "num_filter": 6, "num_group": 3}, [real(2, 3, 5), real(6, 1, 3), real(6)]),
     {"g"}),
    (Case("Convolution", {"kernel": "(3,)", "num_filter": 3, "num_group": 3}, [real(2, 3, 5), real(3, 1, 3), real(3)]),
     set()),
    (Case("repeat", {"repeats": 2, "axis": 1}, [real(4, 3)]), {"d1"}),
], ids=str)
def test_factors_with_blocks_are_even(case: Case, even):
    assert {f["name"] for f in whole_rule(case)["factors"] if f["even"]} == even


def first_case(op: str) -> Case:
    """Return the first case of an operator."""
    return next(case for case in CASES if case.op == op)


@pytest.mark.parametrize(("op", "name"), [(op, name) for op, names in READ.items() for name in names])
def test_an_attribute_that_does_not_parse_makes_the_operator_unknown(op: str, name: str):
    case = first_case(op)
    outputs = output_shapes(case)
    shapes = [o.shape for o in case.inputs]
    assert rule_of(case, texts(case), shapes, outputs)["known"]
    assert not rule_of(case, {**texts(case), name: "gar(bage"}, shapes, outputs)["known"]


@pytest.mark.parametrize("op", sorted({case.op for case in CASES} | {case.op for case, _ in UNKNOWN}))
def test_no_attribute_and_no_shape_crashes_a_rule(op: str):
    rng = np.random.RandomState(0)
    case = next((c for c in CASES if c.op == op), None) or next(c for c, _ in UNKNOWN if c.op == op)
    names = sorted({*case.attrs, *READ.get(op, ()), "axis", "shape"})
    rules = []
    for garbage in GARBAGE:
        rules += [rule_of(case, {**texts(case), name: garbage}, [o.shape for o in case.inputs], [case.inputs[0].shape]
                          if case.inputs else [[2]]) for name in names]
    for _ in range(40):
        attrs = {name: GARBAGE[rng.randint(len(GARBAGE))] for name in names if rng.rand() < 0.3}
        shapes = [ODD_SHAPES[rng.randint(len(ODD_SHAPES))] for _ in range(rng.randint(0, 6))]
        outputs = [ODD_SHAPES[rng.randint(len(ODD_SHAPES))] for _ in range(rng.randint(1, 4))]
        rules.append(rule_of(case, {**texts(case), **attrs}, shapes, outputs))
    assert all(isinstance(rule["known"], bool) for rule in rules)


def test_mean_that_is_rounded_keeps_its_dims_whole():
    case = Case("_npi_mean", {"axis": "1"}, [real(4, 6)], numpy=True)
    integer = dataclasses.replace(case, attrs={"axis": "1", "dtype": "int32"})
    assert named_factors(rule_of(case, texts(case), [(4, 6)], [(4,)])) == ["d1+", "n"]
    assert named_factors(rule_of(integer, texts(integer), [(4, 6)], [(4,)])) == ["n"]
