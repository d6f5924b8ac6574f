"""The library that repairs MXNet's copies between CPU contexts (csrc/copies/clean_copies.cc says what is wrong).

With it, tensors of a graph that runs over several CPU contexts may share memory one after the other; without it, each
needs memory of its own. It takes the place of one of MXNet's functions, so it must be loaded before MXNet is:
:func:`preload`, by the start-up hook. Where that comes too late, MXNet runs as it is, and :class:`cleaning` does
nothing.
"""
from __future__ import annotations

import ctypes
import os
import sys
from typing import Optional

_library: Optional[ctypes.CDLL] = None


def preload() -> bool:
    """Load the library into this process, unless MXNet is there already.

    Returns
    -------
    bool
        Whether it is loaded. Whether MXNet uses it shows only when it copies: :func:`cleaned`.
    """
    global _library
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libsoybean_mx_copies.so")
    if _library is None and "mxnet.base" not in sys.modules and os.path.exists(path):
        try:
            # Global, so that it is found before MXNet's own when MXNet is linked.
            _library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:  # another system than Linux
            return False
        _library.soybean_mx_cleaned_copies.restype = ctypes.c_long
    return _library is not None


class cleaning:
    """Within it, the copies between contexts that this thread queues are repaired."""

    def __enter__(self) -> None:
        if _library is not None:
            _library.soybean_mx_clean_copies(1)

    def __exit__(self, *_exception) -> None:
        if _library is not None:
            _library.soybean_mx_clean_copies(0)


def cleaned() -> int:
    """How many copies have been repaired so far."""
    return 0 if _library is None else _library.soybean_mx_cleaned_copies()
