"""A wheel built from the source distribution works where it is installed, start-up hook included."""
from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import mxnet as mx
import pytest

from tests.child import ROOT

# The build commands as pip calls them, without pip's isolation, which would download MXNet again.
BUILD = "import sys, setuptools.build_meta as backend; print(getattr(backend, sys.argv[1])(sys.argv[2]))"


def build(what: str, source: Path, target: Path) -> Path:
    target.mkdir(exist_ok=True)
    result = subprocess.run([sys.executable, "-c", BUILD, what, str(target)], cwd=str(source), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, universal_newlines=True, timeout=600)
    assert result.returncode == 0, result.stdout[-4000:]
    return target / result.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    return build("build_sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(str(sdist)) as archive:
        archive.extractall(str(folder))
    source, = folder.iterdir()
    return build("build_wheel", source, folder / "dist")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The Python of an environment that holds the wheel, and this environment's MXNet."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site, = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(str(wheel)) as archive:
        archive.extractall(str(site))
    # A path only: the .pth files of that folder are not read.
    (site / "with_mxnet.pth").write_text(str(Path(mx.__file__).parent.parent) + "\n")
    return folder / "bin" / "python"


def run(python: Path, source: str, folder: Path, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SOYBEAN_MX", "PYTHON"))}
    result = subprocess.run([str(python), "-c", source], cwd=str(folder), env={**environment, **variables},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=120)
    assert result.returncode == 0, result.stdout
    return result.stdout


def test_the_source_distribution_holds_no_build_products(sdist):
    with tarfile.open(str(sdist)) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
    assert {"LICENSE", "README.md", "CMakeLists.txt", "Makefile", "csrc/exports.map", "soybean_mx.pth"} <= set(names)
    assert not [name for name in names if name.startswith("build") or name.endswith((".so", ".pyc", "/libraries.js"))]


def test_the_wheel_is_for_any_python_and_has_the_hook_at_its_root(wheel):
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(str(wheel)) as archive:
        names = archive.namelist()
    page = {f"soybean_mx/explorer/{path.name}" for path in (ROOT / "soybean_mx" / "explorer").iterdir()
            if path.suffix in (".js", ".css", ".html")}  # with libraries.js, where npm is there
    assert page | {"soybean_mx.pth", "soybean_mx/libsoybean_mx.so", "soybean_mx/libsoybean_mx_copies.so",
                   "soybean_mx/startup.py", "soybean_mx/operator_calls.json",
                   "soybean_mx/pipeline/profiles/vgg16.graph.txt",
                   "soybean_mx/pipeline/profiles/README.md"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "csrc", "scripts"))]


def test_the_installed_hook_is_silent_without_the_variable(installed, tmp_path):
    source = "import sys\nprint([name for name in sys.modules if 'soybean' in name or name in ('mxnet', 'numpy')])"
    assert run(installed, source, tmp_path) == "[]\n"
    assert run(installed, source, tmp_path, SOYBEAN_MX="0") == "[]\n"


def test_the_installed_hook_is_there_with_the_variable(installed, tmp_path):
    source = "import sys\nprint('soybean_mx.startup' in sys.modules, 'mxnet' in sys.modules)"
    assert run(installed, source, tmp_path, SOYBEAN_MX="1") == "True False\n"


def test_the_installed_library_loads_into_mxnet(installed, tmp_path):
    source = ("import mxnet, soybean_mx\nmxnet.library.load(soybean_mx.library_path(), verbose=False)\n"
              "print(soybean_mx.__file__)")
    assert str(installed.parent.parent) in run(installed, source, tmp_path)
