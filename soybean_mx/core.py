"""The C++ core, bound with ctypes.

The core takes and returns JSON texts (docs/interface.md); this module is the
only one that calls it.
"""
from __future__ import annotations

import ctypes
import functools
import json
import os
from typing import Any, Dict, NamedTuple, Optional, Sequence

_VERSION = 2


class PlanError(ValueError):
    """The core refused a graph, an option or a plan; the text says why."""


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.CDLL:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libsoybean_mx.so")
    if not os.path.exists(path):
        raise ImportError(f"{path} is missing: build it with `make build`, or install the package "
                          "with `pip install .`.")
    library = ctypes.CDLL(path)
    text_out = ctypes.POINTER(ctypes.c_void_p)
    library.SoybeanVersion.restype = ctypes.c_int
    library.SoybeanLastError.restype = ctypes.c_char_p
    library.SoybeanFree.argtypes = [ctypes.c_void_p]
    library.SoybeanPlan.argtypes = [ctypes.c_char_p, ctypes.c_char_p, text_out]
    library.SoybeanLower.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, text_out]
    library.SoybeanSpace.argtypes = [ctypes.c_char_p, ctypes.c_char_p, text_out]
    library.SoybeanRules.argtypes = [ctypes.c_char_p, text_out]
    library.SoybeanStages.argtypes = [ctypes.c_char_p, ctypes.c_char_p, text_out]
    if library.SoybeanVersion() != _VERSION:
        raise ImportError(f"{path} has interface version {library.SoybeanVersion()}, but this "
                          f"package needs {_VERSION}: build it again with `make build`.")
    library.SoybeanNewStamp.restype = library.SoybeanHoldStamp.restype = ctypes.c_void_p
    library.SoybeanStampedAt.restype = ctypes.c_int64
    library.SoybeanNewGuard.restype = ctypes.c_void_p
    library.SoybeanNewGuard.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int64]
    return library


def _call(function: Any, *texts: Dict[str, Any]) -> Dict[str, Any]:
    library = _library()
    out = ctypes.c_void_p()
    encoded = [json.dumps(text).encode("utf-8") for text in texts]
    if function(*encoded, ctypes.byref(out)) != 0:
        raise PlanError(library.SoybeanLastError().decode("utf-8", "replace"))
    try:
        return json.loads(ctypes.string_at(out.value).decode("utf-8"))
    finally:
        library.SoybeanFree(out)


def plan(graph: Dict[str, Any], options: Dict[str, Any]) -> Dict[str, Any]:
    """Search for a plan.

    Parameters
    ----------
    graph, options : dict
        As docs/interface.md specifies.

    Returns
    -------
    dict
        The plan; its ``bytes`` are what one step moves between devices, all
        devices together.

    Raises
    ------
    PlanError
        When the graph or an option is invalid; the message names it.
    """
    return _call(_library().SoybeanPlan, graph, options)


def lower(graph: Dict[str, Any], plan: Dict[str, Any], options: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """Write the parallel graph of a plan.

    Parameters
    ----------
    graph, plan, options : dict
        As docs/interface.md specifies.

    Raises
    ------
    PlanError
        When the plan does not fit the graph, or an option is invalid; the
        message names the operator, tensor or option.
    """
    return _call(_library().SoybeanLower, graph, plan, options or {})


def space(graph: Dict[str, Any], options: Dict[str, Any]) -> Dict[str, Any]:
    """The space that :func:`plan` searches with these options, for those who search it on their own.

    Returns
    -------
    dict
        ``cuts``; ``nodes`` (the program as it is planned, BatchNorm written out: inputs and outputs, the rule and
        the ``choices`` of each operator); ``tensors`` (those with several uses and the graph's variables, with the
        tilings in which they may rest) and ``results``. A choice has one number per cut: a factor or dim, -1
        replicated, -2 owner; it stands for all exchanges of equal cuts.

    Raises
    ------
    PlanError
        When the graph or an option is invalid; the message names it.
    """
    return _call(_library().SoybeanSpace, graph, options)


def rules(graph: Dict[str, Any]) -> Dict[str, Any]:
    """The rule of every operator of a graph, by node name (csrc/rules/rule.h)."""
    return _call(_library().SoybeanRules, graph)


class Operation(NamedTuple):
    """What MXNet's engine runs, once: C functions and a pointer. The engine hands the pointer to ``deleter`` when it is
    done with it, whatever became of the operation."""

    function: ctypes.c_void_p
    argument: Optional[ctypes.c_void_p]
    deleter: Optional[ctypes.c_void_p]


class Stamp:
    """Says whether, and when, something has been done that was queued in MXNet's engine.

    Operations that are queued hold it too, so that it may be dropped before they have run.
    """

    def __init__(self) -> None:
        self._library = _library()
        self._handle = ctypes.c_void_p(self._library.SoybeanNewStamp())
        if not self._handle:
            raise MemoryError("there is no memory for a stamp")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.SoybeanReleaseStamp(self._handle)

    @property
    def nanoseconds(self) -> int:
        """The time of the last operation that stamped it, by a clock that only goes forward; 0 if none has."""
        return self._library.SoybeanStampedAt(self._handle)

    def stamp(self) -> None:
        """Stamp it now."""
        self._library.SoybeanStamp(None, self._handle)

    def operation(self) -> Operation:
        """An operation that stamps it; to be queued."""
        held = ctypes.c_void_p(self._library.SoybeanHoldStamp(self._handle))
        return Operation(_pointer(self._library.SoybeanStamp), held, _pointer(self._library.SoybeanReleaseStamp))


def guard(stamps: Sequence[Stamp]) -> Operation:
    """An operation that fails where something has not been done; to be queued.

    Parameters
    ----------
    stamps : sequence of Stamp
        All of them must have been stamped when it runs.
    """
    library = _library()
    handles = (ctypes.c_void_p * len(stamps))(*(stamp._handle for stamp in stamps))
    held = ctypes.c_void_p(library.SoybeanNewGuard(handles, len(stamps)))
    if not held:
        raise MemoryError("there is no memory for a guard")
    return Operation(_pointer(library.SoybeanRequireStamps), held, _pointer(library.SoybeanReleaseGuard))


def _pointer(function: Any) -> ctypes.c_void_p:
    return ctypes.cast(function, ctypes.c_void_p)


def stages(profile: Dict[str, Any], options: Dict[str, Any]) -> Dict[str, Any]:
    """Search for the stages of a pipeline.

    Parameters
    ----------
    profile, options : dict
        As docs/interface.md specifies: the layers with their times and sizes, and the devices.

    Returns
    -------
    dict
        The stages, what they take and hold, and what data parallelism takes. Seconds and bytes.

    Raises
    ------
    PlanError
        When the profile or an option is invalid, or no pipeline fits into the memory limit.
    """
    return _call(_library().SoybeanStages, profile, options)
