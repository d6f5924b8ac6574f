"""Operations of MXNet's engine that compute nothing: they order what touches arrays, and nobody waits for them."""
from __future__ import annotations

import ctypes
from typing import Any, Sequence

import mxnet as mx
from mxnet.base import _LIB, c_handle_array, check_call
from mxnet.ndarray import NDArray


class _EngineContext(ctypes.Structure):
    """MXNet's Context, as its engine takes it."""

    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


# What the engine runs: any function of the C library that does nothing, and needs no Python.
_NOTHING = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)


class Order:
    """An operation that is registered as reading and writing some arrays, and may be queued again and again.

    Parameters
    ----------
    context : mxnet.Context
        The device whose worker runs it.
    reads, writes : sequence of NDArray
        The arrays, none of them in both. It comes after what was queued before and writes one of ``reads``, or touches
        one of ``writes``; what is queued later and touches one of ``writes``, or writes one of ``reads``, comes after
        it. Errors of what wrote ``reads`` go on to ``writes``.
    function, argument : ctypes pointers, optional
        What it runs: a C function of a pointer that MXNet gives and of ``argument``, which lives until it has run.
    """

    def __init__(self, context: mx.Context, reads: Sequence[NDArray], writes: Sequence[NDArray],
                 function: Any = _NOTHING, argument: Any = None):
        self._context = _EngineContext(context.device_typeid, context.device_id)
        self._reads, self._writes = c_handle_array(reads), c_handle_array(writes)
        self._function, self._argument = function, argument

    def __call__(self) -> None:
        """Queue it."""
        check_call(_LIB.MXEnginePushSyncND(
            self._function, self._argument, None, ctypes.byref(self._context), self._reads, len(self._reads),
            self._writes, len(self._writes), None, 0, b"soybean_mx_order"))


def after(context: mx.Context, first: Sequence[NDArray], then: Sequence[NDArray]) -> None:
    """Queue an :class:`Order`: who reads or writes ``then`` waits until ``first`` has been written."""
    Order(context, first, then)()
