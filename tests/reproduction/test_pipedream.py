"""PipeDream's tables: the released optimizer's digits, and that the committed page and plots are what is found now."""
from __future__ import annotations

import json

import pytest

from soybean_mx import cli
from soybean_mx.reproduction import figures, pages, pipedream
from tests.child import ROOT

FOLDER = ROOT / "docs" / "reproduction"


@pytest.fixture(scope="module")
def report():
    return pipedream.estimated()


def test_all_rows_of_the_released_optimizer_are_the_same(report):
    assert len(report["released"]) == 11
    assert all(row["same"] for row in report["released"])


def test_a_row_that_differs_is_told():
    row = pipedream.RELEASED[0]
    for change in ({"config": "4"}, {"stage_ms": 205.522}, {"over_data": 2.839}, {"first_layers": 16}):
        other = pipedream.ReleasedRow(**{**row.__dict__, **change})
        assert not pipedream.released_row(other)["same"]


def test_claims(report):
    claims = {(claim["source"], claim["network"], claim["machines"]): claim for claim in report["claims"]}
    assert len(claims) == len(pipedream.CLAIMS)
    resnet = [claim for claim in report["claims"] if claim["network"] == "ResNet-50"]
    assert all(claim["predicted"]["config"] == "16" and claim["met"] == pipedream.REACHED for claim in resnet)
    for claim in report["claims"]:
        predicted = claim["predicted"]
        if predicted is None:
            assert claim["met"] is None and claim["why"]
            continue
        # Exchanges that are overlapped take no longer.
        assert predicted["over_overlapped"] <= predicted["over_plain"]
        assert (claim["met"] == pipedream.REACHED) == (predicted["over_overlapped"] >= claim["published"])
        assert bool(claim["why"]) == (claim["met"] != pipedream.REACHED)


def test_the_device_speed_is_where_the_claim_is_reached():
    claim = next(claim for claim in pipedream.CLAIMS if claim.published == 5.12)
    speed = pipedream.device_speed(claim)
    assert speed > 1

    def reached(times):
        found = pipedream._planned("vgg16", "8", "10Gb/s", "overlap", times)
        return found["speedup_over_overlapped_data_parallel"] >= claim.published

    assert reached(speed) and not reached(speed - 0.02)


def test_the_page_says_what_is_found_now(report):
    command = "soybean-mx reproduce pipedream --output docs/reproduction"
    assert (FOLDER / "pipedream.md").read_text() == pages.pipedream(report, command)


def test_the_command(tmp_path, capsys, report):
    assert cli.main(["reproduce", "pipedream", "--output", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(report))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["pipedream.md", "pipedream_bandwidth.png", "pipedream_bandwidth.svg", "pipedream_claims.png",
                     "pipedream_claims.svg"]
    for name in names:
        assert 0 < (tmp_path / name).stat().st_size < 100_000
    drawn = (tmp_path / "pipedream_claims.svg").read_text()
    assert "speedup over data parallelism (times)" in drawn and "5.28" in drawn


def test_plots_are_the_same_each_time(report):
    assert figures.pipedream(report) == figures.pipedream(report)


def test_quick_is_soybean_s(tmp_path, capsys):
    assert cli.main(["reproduce", "pipedream", "--quick", "-o", str(tmp_path / "out")]) == 2
    assert "--quick was given for pipedream" in capsys.readouterr().err and not (tmp_path / "out").exists()
