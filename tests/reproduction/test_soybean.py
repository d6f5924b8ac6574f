"""SoyBean's evaluation: the paper's printed digits, and that the committed page says what is estimated now."""
from __future__ import annotations

import json

import pytest

from soybean_mx import cli
from soybean_mx.reproduction import pages, soybean
from tests.child import ROOT, run_child

PAGE = ROOT / "docs" / "reproduction" / "soybean.md"


@pytest.fixture(scope="module")
def quick():
    """The smallest and the largest batch of each network."""
    return soybean.estimated([soybean.quick(network) for network in soybean.NETWORKS])


def test_traffic_and_example_have_the_digits_of_the_paper(quick):
    assert [row["batch_size"] for row in quick["traffic"]] == [512, 1024, 2048, 4096, 8192]
    for row in quick["traffic"]:
        assert [f"{row[kind] / 1e9:.2f}" for kind in ("data", "model", "k_cut")] == [
            f"{printed:.2f}" for printed in row["printed_gigabytes"]]
        assert row["soybean_mx"] <= row["k_cut"] * 24 / 22 + 1
    counted = quick["example"]["counted"]
    assert {name: item["bytes"] / 1e6 for name, item in counted.items()} == {
        "data": 57.6, "model": 76.8, "4 groups of 4": 33.6}


def test_the_page_says_what_is_estimated_now(quick):
    text = PAGE.read_text()
    for section in (pages._traffic(quick), pages._example(quick)):
        assert section in text
    for network in quick["networks"]:
        for line in (*pages._network(network).splitlines(), *pages._shares({"networks": [network]}).splitlines()):
            if line.startswith("|"):
                assert line in text, line


def test_the_page_s_claims_follow_from_its_rows():
    """The verdict's batches are those with a speedup of 1.5 or more in the page's own tables."""
    text = PAGE.read_text()
    claims = text[text.index("## The claim"):]
    for network in soybean.NETWORKS:
        section = claims[claims.index(f"## {network.title}"):].split("\n## ")[0]
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
        assert [int(row[0]) for row in rows] == list(network.batches)
        verdict = next(line for line in claims.splitlines() if line.startswith(f"| {network.title} |"))
        cells = verdict.strip("| ").split(" | ")
        for column, (spread, met) in ((7, cells[2:4]), (8, cells[4:6]), (9, cells[6:8])):
            speedups = [float(row[column]) for row in rows]
            assert spread == f"{min(speedups):.2f} to {max(speedups):.2f}"
            found = [row[0] for row, speedup in zip(rows, speedups) if speedup >= soybean.CLAIM[0]]
            assert met == ("all" if len(found) == len(rows) else ", ".join(found) or "none")


def test_speedups_are_of_the_seconds(quick):
    for network in quick["networks"]:
        for row in network["rows"]:
            for base in soybean.BASES:
                assert row[f"speedup_over_{base}"] == pytest.approx(row[base]["seconds"] / row["soybean_mx"]["seconds"])
            assert row["overlapped"]["seconds"] <= min(row[kind]["seconds"] for kind in ("mxnet", "data"))
            # Of all plans the one of least predicted time is taken, in which exchanges are not overlapped.
            assert row["soybean_mx"]["seconds"] <= 1.03 * min(row[kind]["seconds"] for kind in ("data", "model"))


def test_the_command(tmp_path, monkeypatch, capsys):
    small = soybean.Table1(width=32, batches=(4,), tiles=(1, 4), rounds=1, repeat=1, warmup=0)
    monkeypatch.setattr(soybean, "QUICK_TABLE1", small)
    monkeypatch.setattr(soybean, "NETWORKS", soybean.NETWORKS[3:4])
    assert cli.main(["reproduce", "soybean", "--quick", "--output", str(tmp_path / "out"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (row,) = report["partitioning"]["batches"]
    plain, one, four = row["contenders"]
    assert plain["ratio"] == 1.0 and one["bytes_exchanged"] == 0 < four["bytes_exchanged"]
    assert report["partitioning"]["machine"]["mxnet"] == "1.9.1"
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"soybean.md", *(f"soybean_{plot}.{ending}" for ending in ("png", "svg") for plot in (
        "speedup", "communication", "traffic", "partitioning"))}
    page = (tmp_path / "out" / "soybean.md").read_text()
    assert f"soybean-mx reproduce soybean --output {tmp_path / 'out'} --quick" in page
    assert "Measured on this machine" in page and "estimated" in page
    for name in names - {"soybean.md"}:
        content = (tmp_path / "out" / name).read_bytes()
        assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml") and len(content) < 100_000


def test_without_matplotlib(tmp_path):
    program = ("import sys\nsys.modules['matplotlib'] = None\nfrom soybean_mx import cli\n"
               "sys.stderr = sys.stdout\nprint(cli.main(['reproduce', 'pipedream', '-o', sys.argv[1]]))")
    out = run_child(program, [str(tmp_path / "none")])
    assert "pip install soybean_mx[reproduce]" in out and out.splitlines()[-1] == "2" and len(out.splitlines()) == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("paper", ["soybean", "pipedream"])
def test_a_folder_that_cannot_be_made(tmp_path, capsys, paper):
    (tmp_path / "file").write_text("")
    assert cli.main(["reproduce", paper, "-o", str(tmp_path / "file" / "x")]) == 2
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 1 and "cannot be made" in err
