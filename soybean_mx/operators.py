"""soybean_mx's own MXNet operators (csrc/mxnet_operators.cc): computed on CPU contexts only."""
from __future__ import annotations

import ctypes
import functools
from typing import Sequence

import mxnet as mx
from mxnet.base import _LIB, check_call

from soybean_mx import library_path


def are_usable(contexts: Sequence[mx.Context]) -> bool:
    """Whether graphs over these contexts may use the operators; loads them into MXNet if so.

    Parameters
    ----------
    contexts : sequence of mxnet.Context
        Where the operators would run.
    """
    if any(context.device_type != "cpu" for context in contexts):
        return False
    _load()
    return True


@functools.lru_cache(maxsize=None)
def _load() -> None:
    # Not mx.library.load, which makes all of MXNet's Python functions anew: graphs name the operators themselves.
    check_call(_LIB.MXLoadLib(ctypes.c_char_p(library_path().encode("utf-8")), ctypes.c_uint(0)))
