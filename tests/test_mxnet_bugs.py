"""MXNet still has the faults that docs/mxnet_bugs.md lists, and the page is what the scripts say."""
from __future__ import annotations

import pytest

from tests.mxnet_bugs import page

TEXT = page.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("script", page.scripts(), ids=lambda path: path.stem)
def test_a_script_is_on_the_page_and_ends_as_it_says(script):
    assert page.section(script, page.ending(script)) in TEXT


def test_the_page_has_nothing_else():
    assert TEXT.startswith(page.HEAD) and TEXT.count("\n## ") == len(page.scripts())


@pytest.mark.parametrize("script", page.scripts(), ids=lambda path: path.stem)
def test_a_script_says_what_is_to_be_said(script):
    said = script.read_text(encoding="utf-8").split('"""')[1]
    for word in ("What:", "Expected:", "Seen:", "How the project avoids it:"):
        assert said.count(f"\n\n{word}") == 1, word
