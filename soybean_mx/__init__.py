"""Tiled training of ordinary single-device Gluon programs on many devices.

Importing this package imports neither MXNet nor anything heavy. It arranges for Gluon to know the backend
``soybean_mx`` as soon as MXNet is imported and, with ``SOYBEAN_MX`` set in the environment, to use it for every
hybridized block; see :mod:`soybean_mx.startup`.
"""
from __future__ import annotations

import os
from typing import Any, Dict

from soybean_mx import rules
from soybean_mx import startup as _startup

__version__ = "0.1.0"

__all__ = ["__version__", "library_path", "plan_of", "rules"]


def library_path() -> str:
    """Absolute path of the compiled core, to be given to ``mx.library.load``.

    Returns
    -------
    str
        The path of ``libsoybean_mx.so``.

    Raises
    ------
    FileNotFoundError
        When the library has not been built.
    """
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libsoybean_mx.so")
    if not os.path.exists(path):
        raise FileNotFoundError(f"soybean_mx's library {path} is missing: run `make build` in a checkout of the "
                                "repository, or install the package again.")
    return path


def plan_of(block: Any) -> Dict[str, Any]:
    """The plan that a tiled block runs by: how every tensor and operator is cut, and the bytes that it moves.

    Parameters
    ----------
    block : mxnet.gluon.HybridBlock
        A block that has been called.

    Returns
    -------
    dict
        The latest plan of a call that trains, or of any call where none did, in the form of docs/interface.md.

    Raises
    ------
    soybean_mx.gluon_front.BlockError
        When the block has no plan: it is not tiled, or has not been called.
    """
    from soybean_mx import gluon_front  # imports MXNet

    return gluon_front.plan_of(block)


_startup.install()
