"""Writes docs/command_line.md from the parsers of the commands.

    python -m tests.documentation.command_line
"""
from __future__ import annotations

import argparse
from typing import Iterator, List, Tuple

from soybean_mx import cli
from soybean_mx.files import write_text
from tests.child import ROOT

PAGE = ROOT / "docs" / "command_line.md"

HEAD = """# The command line

`soybean-mx COMMAND`, or `python -m soybean_mx COMMAND`. This page is written by
`python -m tests.documentation.command_line` from the commands' own parsers; `soybean-mx COMMAND --help` says the same.

| exit status | means |
|---|---|
| 0 | it is done |
| 1 | a plan is refused (nothing fits into a limit, say); `bench`: a contender failed; `doctor`: something is wrong |
| 2 | arguments that cannot be used: a model that does not load, a file that cannot be read or written, and so on |
| the script's own | `run` |

An error is one line on stderr: what was given, what is allowed, what to do. A file is written under another name and
renamed when it is complete.

"""


def commands() -> Iterator[Tuple[str, str, argparse.ArgumentParser]]:
    """Each command, what it is for, and its parser, in the order of the help."""
    subparsers, = (action for action in cli.make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    purposes = {choice.dest: choice.help for choice in subparsers._choices_actions}
    for name, parser in subparsers.choices.items():
        yield name, purposes[name], parser


def page() -> str:
    """The text of the page."""
    listed = list(commands())
    lines = ["| command | |", "|---|---|"]
    lines += [f"| [`{name}`](#{name}) | {purpose} |" for name, purpose, _ in listed]
    return HEAD + "\n".join(lines) + "\n" + "".join(section(name, parser) for name, _, parser in listed)


def section(name: str, parser: argparse.ArgumentParser) -> str:
    """A command's part of the page."""
    formatter = parser._get_formatter()
    rows: List[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        text = formatter._expand_help(action) if action.help else ""
        rows.append(f"| {_invocation(action)} | {_cell(text)} |")
    table = ["", "| argument | |", "|---|---|", *rows] if rows else []
    return "\n".join(["", f"## {name}", "", parser.description or "", *table, ""])


def _invocation(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else None
    value = metavar or (("|".join(map(str, action.choices)) if action.choices else action.dest.upper()))
    value = value.replace("|", "\\|")
    if not action.option_strings:
        optional = action.nargs in ("?", "*", argparse.REMAINDER)
        shown = (metavar or action.dest).replace("|", "\\|")
        more = " ..." if action.nargs in ("*", "+", argparse.REMAINDER) else ""
        return f"`[{shown}]{more}`" if optional else f"`{shown}{more}`"
    names = ", ".join(action.option_strings)
    return f"`{names}`" if action.nargs == 0 else f"`{names} {value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    write_text(str(PAGE), page())
    print(f"written to {PAGE}")
