"""Without a browser, its tests are left out on a developer's machine, and fail in CI."""
from __future__ import annotations

import shutil

import pytest

from tests.explorer.browser import require_browser


@pytest.mark.parametrize("ci, outcome", [(None, pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_missing_browser(monkeypatch, ci, outcome):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("CI", raising=False)
    if ci:
        monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no chromium and no chromedriver"):
        require_browser()
