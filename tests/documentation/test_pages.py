"""Every command and code block of README.md and docs/ is run, or at least parsed where the page says why it is not."""
from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

from tests.child import ROOT, run_child
from tests.documentation import api, command_line
from tests.documentation.pages import ELSEWHERE, LANGUAGES, PAGES, anchors, blocks, links, name_of

BLOCKS = [block for page in PAGES if name_of(page) not in ELSEWHERE for block in blocks(page)]
RUN = [page for page in PAGES if name_of(page) not in ELSEWHERE
       and any(block.language in ("sh", "python") and not block.not_run for block in blocks(page))]
PROGRAMS = re.compile(r"(\w+=('[^']*'|\S+) )*(soybean-mx |python -m soybean_mx |python scripts/\w+\.py\b|"
                      r"python \w+\.py\b|python -m tests\.[\w.]+|pip install |apt-get install |make \w+)")


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_blocks_run(page, tmp_path):
    for name in ("tests", "scripts", "docs", "soybean_mx"):
        (tmp_path / name).symlink_to(ROOT / name)
    program = (f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.path.insert(0, '')\n"
               f"from tests.documentation.run_page import main\nmain([{name_of(page)!r}])\n")
    run_child(program, timeout=300)


def test_blocks_are_of_a_known_kind():
    for block in BLOCKS:
        assert block.language in LANGUAGES, f"{block.place}: {block.language!r}"
        if not block.language:
            assert not re.search(r"^(python|soybean-mx|pip) ", block.text, re.MULTILINE), (
                f"{block.place}: a command in a block without a language is not run: write ```sh")


def test_no_command_stands_outside_of_a_block():
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert not re.search(r"^    (python|soybean-mx) .*$", text, re.MULTILINE), f"{name_of(page)}: write ```sh"


def test_blocks_of_json_are_json():
    for block in BLOCKS:
        if block.language == "json":
            json.loads(block.text)


def test_blocks_of_python_compile():
    for block in BLOCKS:
        if block.language == "python":
            compile(block.text, block.place, "exec")


def test_commands_are_known():
    """And what they name exists: targets of make, modules, extras of pip."""
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for block in BLOCKS:
        for command in block.commands() if block.language == "sh" else ():
            assert PROGRAMS.match(command), f"{block.place}: {command}"
            words = shlex.split(command, comments=True)
            if words[0] == "make":
                assert {word for word in words[1:] if "=" not in word} <= set(targets), f"{block.place}: {command}"
            if words[0] == "pip":
                named = re.findall(r"\[(.*)\]", command)
                assert all(extra in extras for names in named for extra in names.split(",")), f"{block.place}"
            if words[:2] == ["python", "-m"] and words[2].startswith("tests."):
                assert (ROOT / (words[2].replace(".", "/") + ".py")).exists(), f"{block.place}: {command}"


def test_commands_that_are_not_run_are_taken_by_their_parsers():
    commands = {}
    for block in BLOCKS:
        changed = block.not_run or block.exchanges
        for command in block.commands() if block.language == "sh" and changed else ():
            words = shlex.split(command, comments=True)
            if any(word.startswith("scripts/") or word in ("soybean-mx", "soybean_mx") for word in words):
                commands[command] = block.place
    result = subprocess.run([sys.executable, "-m", "tests.documentation.parse_commands"], input="\n".join(commands),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, cwd=str(ROOT),
                            timeout=300)
    assert result.returncode == 0, "\n".join(
        f"{commands.get(line.partition(':')[0], '')} {line}" for line in result.stdout.splitlines()) + result.stderr


def test_tests_that_are_named_as_running_a_block_exist():
    named = {name for block in BLOCKS for name in re.findall(r"tests/[\w/]+\.py", block.not_run)}
    for name in named | set(ELSEWHERE.values()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{name_of(page)}: {link}"


def test_the_index_lists_every_page():
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert {page.resolve() for page in PAGES} - {index.resolve()} <= listed


@pytest.mark.parametrize("module", [api, command_line], ids=["api", "command_line"])
def test_written_pages_are_current(module):
    assert module.PAGE.read_text() == module.page(), f"run python -m {module.__name__}"
