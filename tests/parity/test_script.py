"""An unmodified serial script prints the same numbers when it runs tiled.

tests/parity/serial_script.py does, section by section, what scripts do beside a training loop. Every section runs in a
process of its own; plain MXNet's numbers come from one process.
"""
from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from tests.child import ChildFailure, run_child

SCRIPT = Path(__file__).with_name("serial_script.py")
NAMES = re.findall(r"^@section\ndef (\w+)", SCRIPT.read_text(), re.MULTILINE)
NEEDS_FILES = "resume_from_given_files"
# What a tiled block does not do, and the words of the message that says what to do instead.
REFUSED = {"autograd_grad": "autograd.grad was called .* backward"}
SECTIONS = [n for n in NAMES if n != NEEDS_FILES and n not in REFUSED]

# Runs the script as `python -m soybean_mx run` does, and says at the end how many parallel graphs were written: none
# would mean that the script ran on one device, where agreement is no surprise.
TILED = """
import sys
from soybean_mx import cli, core
written, lower = [], core.lower
core.lower = lambda *arguments: written.append(1) or lower(*arguments)
cli.main(["run", "--devices", sys.argv[1], *sys.argv[2:]])
print("graphs", len(written))
"""
TOLERANCE = {"clip_global_norm": 1e-5}  # in float32
DEFAULT_TOLERANCE = 1e-8

Lines = List[Tuple[str, List[float]]]


def parse(printed: str) -> Dict[str, Lines]:
    """Return the labelled numbers of every section."""
    sections: Dict[str, Lines] = {}
    for line in printed.splitlines():
        words = line.split()
        if words[:1] == ["section"]:
            lines = sections.setdefault(words[1], [])
        elif words[:1] != ["graphs"] and words:
            numbers = [i for i, w in enumerate(words) if re.fullmatch(r"-?(\d+(\.\d+)?(e[-+]?\d+)?|nan|inf)", w)]
            first = numbers[0] if numbers else len(words)
            lines.append((" ".join(words[:first]), [float(w) for w in words[first:]]))
    return sections


def run_plain(folder: Path, *sections: str) -> Dict[str, Lines]:
    """Run sections by plain MXNet."""
    return parse(run_child(str(SCRIPT), [str(folder), *sections], env={"SOYBEAN_MX": None}))


def run_tiled(folder: Path, devices: str, strategy: str, *sections: str) -> Dict[str, Lines]:
    """Run sections tiled."""
    env = {"SOYBEAN_MX_STRATEGY": strategy}
    printed = run_child(TILED, [devices, str(SCRIPT), str(folder), *sections], env=env)
    assert int(printed.split()[-1]) > 0, "the script was not tiled"
    return parse(printed)


def assert_same(plain: Lines, tiled: Lines, tolerance: float) -> None:
    """Compare the lines of a section; numbers relative to the largest of their line."""
    assert [label for label, _ in plain] == [label for label, _ in tiled]
    for (label, expected), (_, found) in zip(plain, tiled):
        scale = max(map(abs, expected), default=0.0)
        assert found == pytest.approx(expected, rel=0, abs=tolerance * max(scale, 1e-3)), label


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The numbers of plain MXNet, by section, and the folder of the files that it saved."""
    folder = tmp_path_factory.mktemp("plain")
    return run_plain(folder, *SECTIONS), folder


@pytest.mark.parametrize("section", SECTIONS)
def test_section_prints_the_same(plain, tmp_path, section):
    tiled = run_tiled(tmp_path, "cpu:4", "optimal", section)
    assert_same(plain[0][section], tiled[section], TOLERANCE.get(section, DEFAULT_TOLERANCE))


@pytest.mark.parametrize("devices, strategy", (("cpu:3", "data"), ("cpu:8", "model"), ("cpu:6", "optimal")))
def test_whole_script_prints_the_same(plain, tmp_path, devices, strategy):
    tiled = run_tiled(tmp_path, devices, strategy, *SECTIONS)
    for section in SECTIONS:
        assert_same(plain[0][section], tiled[section], TOLERANCE.get(section, DEFAULT_TOLERANCE))


@pytest.mark.parametrize("section", REFUSED)
def test_section_is_refused_clearly(tmp_path, section):
    with pytest.raises(ChildFailure) as failure:
        run_tiled(tmp_path, "cpu:4", "optimal", section)
    assert re.search(REFUSED[section], str(failure.value), re.DOTALL)


def test_files_go_from_one_device_to_many_and_back(plain, tmp_path):
    """What plain MXNet saved is resumed tiled, and what a tiled run saved is resumed plain and on other devices."""
    _, files = plain
    (tmp_path / "tiled").mkdir()
    run_tiled(tmp_path / "tiled", "cpu:4", "optimal", "save_and_load")
    expected = None
    for source in (files, tmp_path / "tiled"):
        folder = tmp_path / f"from_{source.name}"
        (folder / "given").mkdir(parents=True)
        for name in ("net.params", "net.states"):
            shutil.copy(str(source / name), str(folder / "given" / name))
        resumed = [run_plain(folder, NEEDS_FILES), run_tiled(folder, "cpu:3", "data", NEEDS_FILES)]
        resumed.append(run_tiled(folder, "cpu:8", "optimal", NEEDS_FILES))
        for lines in resumed:
            expected = expected or lines[NEEDS_FILES]
            assert_same(expected, lines[NEEDS_FILES], DEFAULT_TOLERANCE)


def test_a_difference_is_found(plain):
    lines = plain[0]["clip_global_norm"]
    label, numbers = lines[-1]
    wrong = lines[:-1] + [(label, [numbers[0] + 1e-4 * max(numbers)] + numbers[1:])]
    with pytest.raises(AssertionError):
        assert_same(lines, wrong, TOLERANCE["clip_global_norm"])


def test_a_failing_script_is_reported(tmp_path):
    with pytest.raises(ChildFailure, match="KeyError"):
        run_tiled(tmp_path, "cpu:2", "optimal", "no_such_section")
