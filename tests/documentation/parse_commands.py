"""Parses the arguments of commands that are not run: a script's, or soybean-mx's own, by their own parsers.

    python -m tests.documentation.parse_commands < COMMANDS

Reads a command on each line, and prints a line for each that is refused.
"""
from __future__ import annotations

import argparse
import contextlib
import io
import runpy
import shlex
import sys
from typing import List
from unittest import mock

from tests.child import ROOT


class Parsed(BaseException):
    """A parser took the arguments; nothing more is to be run."""


def refusal(words: List[str]) -> str:
    """Why a command's arguments are refused; empty when they are taken."""
    parse = argparse.ArgumentParser.parse_args

    def only_parse(parser, *args, **kwargs):
        parse(parser, *args, **kwargs)
        raise Parsed

    script = str(ROOT / words[1]) if words[0] == "python" else None
    with contextlib.redirect_stderr(io.StringIO()) as said, \
            mock.patch.object(argparse.ArgumentParser, "parse_args", only_parse), \
            mock.patch.object(sys, "argv", [script or "soybean-mx", *words[2 if script else 1:]]), \
            mock.patch.object(sys, "path", [str(ROOT / "scripts"), *sys.path]):
        try:
            if script:
                runpy.run_path(script, run_name="__main__")
            else:
                from soybean_mx import cli

                cli.main()
        except Parsed:
            return ""
        except SystemExit:
            return said.getvalue().strip().splitlines()[-1]
    return "it parses no arguments"


def main() -> int:
    """Parse the commands of the standard input; the status is 1 when one is refused."""
    refused = 0
    for line in sys.stdin.read().splitlines():
        words = shlex.split(line, comments=True)
        while "=" in words[0]:
            words = words[1:]
        if words[:3] == ["python", "-m", "soybean_mx"]:
            words[:3] = ["soybean-mx"]
        why = refusal(words)
        if why:
            refused += 1
            print(f"{line}: {why}")
    return min(refused, 1)


if __name__ == "__main__":
    sys.exit(main())
