"""The progress bar is for terminals only, and on the standard error."""
from __future__ import annotations

import io
import sys

from soybean_mx import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nobody_watches(monkeypatch, capsys):
    with progress.bar("things") as advance:
        assert advance is None
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.bar("things") as advance:
        advance(3, 4)
    assert "things" in terminal.getvalue() and "3/4" in terminal.getvalue()
    assert capsys.readouterr().out == ""
