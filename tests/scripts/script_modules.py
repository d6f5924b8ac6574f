"""Imports a module of scripts/ under a name that collides with no other module."""
from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.child import ROOT

SCRIPTS = ROOT / "scripts"


def load(name: str) -> ModuleType:
    """The module ``scripts/name.py``; only for those that import no other module of scripts/."""
    unique = f"soybean_scripts_{name}"
    if unique not in sys.modules:
        spec = importlib.util.spec_from_file_location(unique, str(SCRIPTS / f"{name}.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[unique] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    return sys.modules[unique]


def load_with_siblings(name: str) -> ModuleType:
    """The module ``scripts/name.py``, which imports others of scripts/ by their bare names."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        return load(name)
    finally:
        sys.path.remove(str(SCRIPTS))
