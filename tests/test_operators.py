"""The list of MXNet's operators: the command, the page, and that nothing is left out of it."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from soybean_mx import cli
from soybean_mx.operator_coverage import CALLS_FILE, NOT_CUT, Factor, Reason, coverage, registered, share
from soybean_mx.operators_command import markdown, shares
from tests.rules.cases import CASES
from tests.rules.typical_calls import text, typical_calls

PAGE = Path(__file__).parent.parent / "docs" / "operators.md"
LEAST_KNOWN, LEAST_CUT = 95.0, 92.5  # percent of the operators of a trained block


@pytest.fixture(scope="module")
def operators():
    return coverage()


def test_the_calls_are_those_of_the_cases():
    """After new cases: `python -m tests.rules.typical_calls`, then write the page again."""
    assert Path(CALLS_FILE).read_text(encoding="utf-8") == text(typical_calls())


def test_the_page_is_what_the_rules_say(operators):
    assert PAGE.read_text(encoding="utf-8") == markdown(operators)


def test_each_operator_is_cut_or_there_is_a_reason(operators):
    assert {operator.name for operator in operators} == set(registered())
    assert [operator.name for operator in operators if operator.reason is Reason.NO_REASON] == []
    given = [name for names in NOT_CUT.values() for name in names]
    assert len(set(given)) == len(given)
    assert [name for name in given if name not in registered()] == []
    assert [operator.name for operator in operators if operator.is_cut and operator.name in given] == []
    assert all(operator.has_rule or not operator.is_cut for operator in operators)


def test_nearly_every_operator_of_a_block_has_a_rule(operators):
    of_blocks, of_all = shares(operators)
    assert of_blocks.known_percent >= LEAST_KNOWN and of_blocks.cut_percent >= LEAST_CUT
    assert of_blocks.known <= of_all.known and of_all.operators == len(registered())


def test_registered_operators_are_forward_ones_by_their_own_names():
    names = registered()
    assert "flatten" in names["Flatten"] and "flatten" not in names
    assert "_backward_add" not in names and not any(name.startswith("_soybean") for name in names)
    assert len(names) > 600


def test_an_operator_as_json(operators):
    found = next(operator for operator in operators if operator.name == "_linalg_gemm").to_json()
    assert found["aliases"] == ["linalg_gemm"] and found["reason"] is None and not found["draws"]
    assert {"name": "k", "sum": True, "halo": False, "statistics": False} in found["factors"]
    assert Factor("k", True, False, False) in next(o for o in operators if o.name == "dot").factors
    assert share(operators[:1]).operators == 1


def printed(capsys, *arguments: str) -> str:
    status = cli.main(["operators", *arguments])
    out, err = capsys.readouterr()
    assert status == 0 and err == "", err
    return out


def test_the_command_shows_single_operators(capsys):
    out = printed(capsys, "Flatten", "_random_u*", "Custom", "Pooling")
    assert "Flatten" in out and "_random_uniform_like" in out and ", random" in out
    assert Reason.CALLBACK.text in out and "have a rule" in out
    assert "Pooling" in printed(capsys, "_npx_pooling")


def test_the_command_as_json_and_as_page(capsys, tmp_path):
    page = tmp_path / "operators.md"
    found = json.loads(printed(capsys, "--json", "--markdown", str(page)))
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
    assert {operator["name"] for operator in found["operators"]} == set(registered())
    assert found["share_of_blocks"]["with_rule_percent"] >= LEAST_KNOWN
    assert len(json.loads(printed(capsys, "dot", "dot", "--json"))["operators"]) == 1


@pytest.mark.parametrize(("arguments", "words"), [
    (["no_such_operator"], "'no_such_operator'"),
    (["dot", "--markdown", "page.md"], "'dot'"),
    (["--markdown", "no/such/folder/page.md"], "'no/such/folder/page.md'"),
])
def test_bad_arguments_are_one_line(capsys, arguments, words):
    assert cli.main(["operators", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("soybean-mx operators: error: ") and words in err


def test_the_cases_name_operators_as_symbols_do():
    assert [case.op for case in CASES if case.op not in registered() and not case.op.startswith("_soybean_mx_")] == []
