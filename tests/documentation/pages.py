"""The pages of the documentation, as blocks of code and links.

A block that is not run says why in a comment before it, in the page's source::

    <!-- not run: needs GPUs -->

Commands that install or build (``pip``, ``apt-get``, ``make``) are never run.

A block that is run in another form than it is shown, so that a test need not take minutes, says what is exchanged::

    <!-- run with "--batch-size 64" as "--input-shape 1,3,32,32 --repeats 1" -->

Names that a block of Python needs and a reader has anyway are made in a comment before it::

    <!-- setup
    net = ...
    -->

A block of Python whose first line is ``# NAME.py`` is that file, for the commands behind it. A ``text`` block behind a
block that is run is what that prints; ``...`` in it stands for anything.
"""
from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Tuple

from tests.child import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = ("sh", "python", "json", "text", "")

# Pages whose blocks another test runs.
ELSEWHERE = {"docs/mxnet_bugs.md": "tests/test_mxnet_bugs.py"}

_BLOCK = re.compile(r"((?:^<!--(?:(?!-->).)*-->\n)*)^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--((?:(?!-->).)*)-->", re.DOTALL)
_EXCHANGE = re.compile(r'"([^"]*)" as "([^"]*)"')
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes
    ----------
    language : str
        What stands behind its backquotes.
    text : str
        The code as it is shown.
    place : str
        Page and line.
    not_run : str
        Why it is not run; empty if it is.
    exchanges : tuple of (str, str)
        What is exchanged in it before it is run.
    setup : str
        Python that is run before it.
    """

    language: str
    text: str
    place: str
    not_run: str
    exchanges: Tuple[Tuple[str, str], ...]
    setup: str

    @property
    def is_file(self) -> str:
        """The name of the file that it is; empty for another block."""
        match = re.match(r"# (\w+\.py)\n", self.text) if self.language == "python" else None
        return match.group(1) if match else ""

    def run_text(self) -> str:
        """The code as it is run."""
        text = self.text
        for old, new in self.exchanges:
            if old not in text:
                raise AssertionError(f"{self.place}: {old!r} is not in the block")
            text = text.replace(old, new)
        return text

    def commands(self, text: str = "") -> List[str]:
        """The commands of a block of shell, each on one line, without comments."""
        joined = re.sub(r"\\\n\s*", " ", text or self.text)
        return [line for line in joined.splitlines() if shlex.split(line, comments=True)]


def name_of(page: Path) -> str:
    """A page's path, from the repository where it is in it."""
    return str(page.relative_to(ROOT)) if ROOT in page.parents else str(page)


def blocks(page: Path) -> List[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        comments, language, code = match.groups()
        not_run, setup, exchanges = "", "", []
        for comment in _COMMENT.findall(comments):
            kind, _, rest = comment.strip().partition(" ")
            if comment.strip().startswith("not run: "):
                not_run = comment.strip()[len("not run: "):]
            elif kind == "run":
                exchanges += _EXCHANGE.findall(comment)
            elif comment.strip().startswith("setup"):
                setup += comment.strip()[len("setup"):].strip("\n") + "\n"
        line = text.count("\n", 0, match.start(2)) + 1
        found.append(Block(language.strip(), code, f"{name_of(page)}:{line}", not_run, tuple(exchanges), setup))
    return found


def without_code(text: str) -> str:
    """A page's text without its blocks, code in lines and comments."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "`code`", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))


def links(page: Path) -> List[str]:
    """The targets of a page's links and pictures that are no addresses of the web."""
    found = _LINK.findall(without_code(page.read_text(encoding="utf-8")))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> Dict[str, str]:
    """The headings of a page, by the anchor that GitHub makes of each."""
    found: Dict[str, str] = {}
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = sum(key == anchor or re.fullmatch(re.escape(anchor) + r"-\d+", key) is not None for key in found)
        found[f"{anchor}-{number}" if number else anchor] = heading
    return found
