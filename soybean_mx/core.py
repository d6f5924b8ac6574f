"""The C++ core, bound with ctypes.

The core takes and returns JSON texts (docs/interface.md); this module is the
only one that calls it.
"""
from __future__ import annotations

import ctypes
import functools
import json
import os
from typing import Any, Dict, Optional

_VERSION = 1


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


def time_stamp() -> ctypes.c_void_p:
    """The function that :class:`soybean_mx.engine_order.Order` runs to write the time.

    Returns
    -------
    ctypes.c_void_p
        A C function whose second argument points to an int64: there it writes nanoseconds of a clock that only goes
        forward.
    """
    return ctypes.cast(_library().SoybeanStampTime, ctypes.c_void_p)


def stamp_check() -> ctypes.c_void_p:
    """The function that :class:`soybean_mx.engine_order.Order` runs to fail where something else has not been done.

    Returns
    -------
    ctypes.c_void_p
        A C function whose second argument points to int64s: a number, and so many addresses where
        :func:`time_stamp` should have written.
    """
    return ctypes.cast(_library().SoybeanRequireStamps, ctypes.c_void_p)


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
