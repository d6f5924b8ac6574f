"""Operations of MXNet's engine that compute nothing: they order what touches arrays, and nobody waits for them."""
from __future__ import annotations

import atexit
import ctypes
from typing import Sequence

import mxnet as mx
from mxnet.base import _LIB, c_handle_array, check_call
from mxnet.ndarray import NDArray

from soybean_mx.core import Operation


class _EngineContext(ctypes.Structure):
    """MXNet's Context, as its engine takes it."""

    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


# What the engine runs: any function of the C library that does nothing, and needs no Python.
_NOTHING = Operation(ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p), None, None)


class Order:
    """An operation that is registered as reading and writing some arrays.

    Parameters
    ----------
    context : mxnet.Context
        The device whose worker runs it.
    reads, writes : sequence of NDArray
        The arrays, none of them in both. It comes after what was queued before and writes one of ``reads``, or touches
        one of ``writes``; what is queued later and touches one of ``writes``, or writes one of ``reads``, comes after
        it. Errors of what wrote ``reads`` go on to ``writes``.
    operation : soybean_mx.core.Operation, optional
        What it runs; to be queued once then, and else as often as one likes.
    """

    def __init__(self, context: mx.Context, reads: Sequence[NDArray], writes: Sequence[NDArray],
                 operation: Operation = _NOTHING):
        self._context = _EngineContext(context.device_typeid, context.device_id)
        self._reads, self._writes = c_handle_array(reads), c_handle_array(writes)
        self._operation = operation

    def __call__(self) -> None:
        """Queue it."""
        check_call(_LIB.MXEnginePushSyncND(
            *self._operation, ctypes.byref(self._context), self._reads, len(self._reads), self._writes,
            len(self._writes), None, 0, b"soybean_mx_order"))


@atexit.register
def finish() -> None:
    """Let what is queued end, as it must before the process does. Errors are of arrays that nobody has read."""
    try:
        mx.nd.waitall()
    except mx.MXNetError:
        pass


def after(context: mx.Context, first: Sequence[NDArray], then: Sequence[NDArray]) -> None:
    """Queue an :class:`Order`: who reads or writes ``then`` waits until ``first`` has been written."""
    Order(context, first, then)()
