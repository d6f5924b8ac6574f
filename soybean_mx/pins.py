"""Pins: what the user fixes of a plan, by shell patterns on the names of tensors and operators.

A pin maps a pattern to one choice per cut, or to one choice that stands at every cut: for tensors ``split D``,
``replicated`` or ``owner``; for operators the name of a factor, ``replicated`` or ``owner`` (docs/interface.md). The
planner matches the patterns.
"""
from __future__ import annotations

import json
import os
import re
from fnmatch import fnmatchcase
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Union

from soybean_mx.input_errors import InputError

VARIABLE = "SOYBEAN_MX_PINS"

Choices = Union[str, List[str]]
Pins = Dict[str, Choices]

_TENSOR_CHOICE = re.compile(r"split \d+|replicated|owner")
_CHOICE = re.compile(r"split \d+|\w+")
_FORM = "write PATTERN=CHOICE, or PATTERN=CHOICE,CHOICE,... with one choice per cut, such as 'fc*_weight=split 0'"


class PinError(InputError):
    """A pin that cannot be read or that contradicts; the message is one sentence for the user."""


def parse(text: str) -> Pins:
    """Parse a pin of the command line.

    Parameters
    ----------
    text : str
        ``PATTERN=CHOICE`` or ``PATTERN=CHOICE,CHOICE,...``.

    Returns
    -------
    dict
        One pin.

    Raises
    ------
    PinError
        When the text is not of that form.
    """
    pattern, equals, choices = text.rpartition("=")
    if not equals:
        raise PinError(f"The pin {text!r} has no '=': {_FORM}.")
    listed = [choice.strip() for choice in choices.split(",")]
    return checked({pattern.strip(): listed[0] if len(listed) == 1 else listed}, f"The pin {text!r}")


def read(text: str, source: str) -> Pins:
    """Read pins from JSON.

    Parameters
    ----------
    text : str
        A JSON object, or the path of a file that holds one.
    source : str
        Where the text comes from, for messages.

    Raises
    ------
    PinError
        When the file cannot be read, or does not hold pins.
    """
    where = source
    try:
        if not text.lstrip().startswith("{"):
            where = f"{source} (the file {text!r})"
            with open(text, encoding="utf-8") as file:
                text = file.read()
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise PinError(f"{where} cannot be read ({error}): give a JSON object of pins, such as "
                       '{"fc*_weight": "split 0"}, or the path of a file that holds one.') from None
    return checked(value, where)


def from_environment() -> Pins:
    """The pins of the environment variable ``SOYBEAN_MX_PINS``: JSON, or the path of a JSON file.

    Raises
    ------
    PinError
        When the variable is set to something else.
    """
    text = os.environ.get(VARIABLE, "")
    return read(text, VARIABLE) if text.strip() else {}


def checked(value: Any, source: str) -> Pins:
    """The same pins, when their form is right.

    Parameters
    ----------
    value : object
        What should be a mapping of patterns to choices.
    source : str
        Where it comes from, for messages.

    Raises
    ------
    PinError
        When it is not.
    """
    if not isinstance(value, Mapping):
        raise PinError(f"{source} is {value!r}, but must map patterns to choices, such as "
                       '{"fc*_weight": "split 0"}.')
    pins: Pins = {}
    for pattern, choices in value.items():
        listed = [choices] if isinstance(choices, str) else choices
        if not isinstance(pattern, str) or not pattern:
            raise PinError(f"{source} has the pattern {pattern!r}, but a name or a shell pattern is needed: {_FORM}.")
        if (not isinstance(listed, (list, tuple)) or not listed
                or any(not isinstance(item, str) or not _CHOICE.fullmatch(item) for item in listed)):
            raise PinError(f"{source} sets {pattern!r} to {choices!r}, but 'split D', 'replicated', 'owner' or the "
                           f"name of an operator's factor is possible, or a list of them with one per cut: {_FORM}.")
        pins[pattern] = choices if isinstance(choices, str) else list(listed)
    return pins


def merge(parts: Iterable[Pins]) -> Pins:
    """All pins together.

    Raises
    ------
    PinError
        When one pattern has two values.
    """
    merged: Pins = {}
    for part in parts:
        for pattern, choices in part.items():
            if merged.setdefault(pattern, choices) != choices:
                raise PinError(f"The pattern {pattern!r} is pinned to {merged[pattern]!r} and to {choices!r}: pin it "
                               "once.")
    return merged


def matching(pins: Pins, names: Iterable[str]) -> Pins:
    """The pins whose pattern matches one of the names."""
    known = set(names)
    return {pattern: choices for pattern, choices in pins.items()
            if pattern in known or any(fnmatchcase(name, pattern) for name in known)}


def with_decided(pins: Pins, decided: Mapping[str, Sequence[str]]) -> Pins:
    """The user's pins and the tilings that tensors already have.

    Parameters
    ----------
    pins : dict
        The user's.
    decided : mapping of str to sequence of str
        One choice per cut, by the tensor's name.

    Returns
    -------
    dict
        Pins for the planner.

    Raises
    ------
    PinError
        When the user pins a tensor to something else than what it has; the message names both.
    """
    merged: Pins = dict(pins)
    for name, tiling in decided.items():
        for pattern, choices in pins.items():
            if not (pattern == name or fnmatchcase(name, pattern)):
                continue
            wanted = [choices] * len(tiling) if isinstance(choices, str) else choices
            if all(_TENSOR_CHOICE.fullmatch(choice) for choice in wanted) and wanted != list(tiling):
                raise PinError(f"The pin {pattern!r} asks for {choices!r}, but {name} is already tiled as "
                               f"{list(tiling)!r}, by an earlier call or by another block that shares it: pin it alike "
                               "everywhere, before the first call.")
        merged[name] = list(tiling)
    return merged
