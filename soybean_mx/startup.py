"""The start-up hook: patches Gluon when MXNet is first imported.

Importing :mod:`soybean_mx` calls :func:`install`; so does ``soybean_mx.pth`` in site-packages, at the start of every
Python process in whose environment ``SOYBEAN_MX`` is set. Nothing is imported but the standard library until the
program imports MXNet. Then, in this order,

1. before MXNet loads, ``SOYBEAN_MX_DEVICES`` is parsed, the environment variables that MXNet reads once at its start
   are given values where the user has set none, NVIDIA's libraries are loaded for MXNet's CUDA build, and the one that
   repairs copies between CPU contexts;
2. after it has loaded, ``soybean_mx.gluon_front.install(contexts)`` patches Gluon. Without ``SOYBEAN_MX`` there are no
   contexts, and only the blocks that are hybridized with ``backend="soybean_mx"`` are concerned.

A device list that cannot be used ends the program with one sentence, at its ``import mxnet``: a program that never
imports MXNet is not disturbed.
"""
from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import warnings
from typing import List, Optional, Set

from soybean_mx import clean_copies, cuda_libraries
from soybean_mx.devices import VARIABLE, Device, DeviceError, contexts, devices_from_environment

# Modules of this package that do not import MXNet, so may be imported before it and at any time.
_LIGHT = {"soybean_mx." + name for name in (
    "startup", "core", "devices", "input_errors", "cuda_libraries", "clean_copies", "cli", "__main__", "doctor",
    "files", "pins", "plan_command", "plan_report", "rules", "topology", "topology_command", "progress",
    "reproduce_command", "bench_command", "benchmark", "benchmark.contender", "benchmark.contenders")}


def install() -> None:
    """Arrange for Gluon to be patched: when MXNet is imported, or at once if it already is.

    That is too late for some settings, and a warning says so where ``SOYBEAN_MX`` is set. A second call does nothing.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    if "mxnet" in sys.modules:
        if is_on():
            warnings.warn("soybean_mx came after MXNet had been imported, so settings that MXNet reads at its start "
                          "(MXNET_CPU_TEMP_COPY) could not be made: start the program through "
                          "`python -m soybean_mx run`, or import soybean_mx first.", RuntimeWarning, stacklevel=2)
        finder.prepare()
        finder.patch_when_ready()


def remove() -> None:
    """Take back what :func:`install` arranged, before MXNet is imported: for programs that measure plain MXNet."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]


def is_on() -> bool:
    """Whether ``SOYBEAN_MX`` asks for every hybridized block to be tiled."""
    return os.environ.get("SOYBEAN_MX", "0") not in ("", "0")


def set_environment(devices: Optional[List[Device]]) -> None:
    """Give values to variables that MXNet reads once, at its start, and that the user has not set.

    On the CPU, operators share four pieces of temporary space among all contexts, which then wait for each other;
    each context gets its own here. And each context runs its operators on as many threads as there are cores, unless
    told otherwise: here they share the cores. (MXNET_CPU_PARALLEL_RAND_COPY, the same for random number generators,
    stays: it would change what a seed draws, the initial weights for one.)

    Parameters
    ----------
    devices : list of (str, int) or None
        The devices asked for; None when they are chosen later, which leaves the number of threads as it is.
    """
    if devices and devices[0][0] != "cpu":
        return
    count = len(devices or [])
    os.environ.setdefault("MXNET_CPU_TEMP_COPY", str(max(64, count)))
    if count:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // count)))


class _Finder(importlib.abc.MetaPathFinder):
    """Sees the imports of MXNet and of this package's own modules.

    Our modules import MXNet themselves. If one of them is what imports it first, patching at once would import our
    modules while they are half-way through their own import; so patching waits until none is.
    """

    def __init__(self) -> None:
        self._devices: Optional[str] = None  # as the user wrote it
        self._half_imported = 0  # modules whose execution, or a patching that must not be entered again, is under way
        self._searching: Set[str] = set()
        self._patched = False

    def find_spec(self, fullname, path=None, target=None):
        ours = fullname.startswith("soybean_mx.") and fullname not in _LIGHT
        # A search that comes back here is another import hook's, which asks all finders as we do.
        if self._patched or not (fullname == "mxnet" or ours) or fullname in self._searching:
            return None
        self._searching.add(fullname)
        try:
            spec = self._real_spec(fullname, path, target)
        finally:
            self._searching.remove(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def _real_spec(self, fullname, path, target):
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None

    def execute(self, loader, module) -> None:
        """Run the module's own loader, and patch if everything is there afterwards."""
        self._half_imported += 1
        try:
            if module.__name__ == "mxnet":
                self.prepare()
            loader.exec_module(module)
        finally:
            self._half_imported -= 1
        self.patch_when_ready()

    def prepare(self) -> None:
        """What must be done before MXNet loads."""
        self._devices = os.environ.get(VARIABLE) if is_on() else None
        try:
            set_environment(devices_from_environment(self._devices))
        except DeviceError as error:
            _stop(error)
        cuda_libraries.preload()
        clean_copies.preload()

    def patch_when_ready(self) -> None:
        if self._patched or self._half_imported or "mxnet" not in sys.modules:
            return
        self._half_imported += 1
        try:
            chosen = contexts(self._devices) if is_on() else None
            importlib.import_module("soybean_mx.gluon_front").install(chosen)
            self._patched = True
        except DeviceError as error:
            _stop(DeviceError(f"{VARIABLE}: {error}"))
        finally:
            self._half_imported -= 1


class _Loader(importlib.abc.Loader):
    """Another loader, with :meth:`_Finder.execute` around the module's execution."""

    def __init__(self, loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name):  # get_data, get_resource_reader, is_package, ...
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        # The module is left as if we had never been there.
        module.__loader__ = module.__spec__.loader = self._loader
        self._finder.execute(self._loader, module)


def _stop(error: DeviceError) -> None:
    # SystemExit, which programs that try to import MXNet do not catch, and which prints no traceback.
    raise SystemExit(f"soybean_mx: {error}") from None
