"""Profiles of networks: what each layer takes and how large it is, in the text format of PipeDream's profiler.

One line for each layer, then one for each edge, which begins with a tab (here written as ``<TAB>``)::

    node2 -- Conv2d(3, 64) -- forward_compute_time=22.307, backward_compute_time=24.613, activation_size=1024.0, \
parameter_size=7168.000 -- stage_id=0
    <TAB>node2 -- node3

Times are milliseconds of one minibatch, sizes bytes; a size may be a list ``[a; b]``, which is summed. ``stage_id`` may
be left out. Layers may come in any order. A layer without sources whose description begins with ``Input`` stands for
data: it is part of the first stage and no choice of the planner.
"""
from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from soybean_mx.files import write_text
from soybean_mx.input_errors import InputError

_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_FORM = ("NAME -- DESCRIPTION -- forward_compute_time=MS, backward_compute_time=MS, activation_size=BYTES, "
         "parameter_size=BYTES")
_SEPARATOR = " -- "

# Those of PipeDream's repository, whose licence is beside them.
SHIPPED = Path(__file__).resolve().parent / "profiles"


class ProfileError(InputError):
    """A profile that cannot be read or used; the message is one sentence for the user."""


@dataclass(frozen=True)
class Layer:
    """One layer, for one minibatch on one device.

    Parameters
    ----------
    name : str
        Unique in the profile.
    description : str
        What it is, for people.
    forward_seconds, backward_seconds : float
        What its two passes take.
    activation_bytes : float
        Of its outputs.
    parameter_bytes : float
        Of its parameters.
    stage : int, optional
        The stage that it was assigned to.
    """

    name: str
    description: str
    forward_seconds: float
    backward_seconds: float
    activation_bytes: float
    parameter_bytes: float
    stage: Optional[int] = None

    @property
    def seconds(self) -> float:
        """What both passes take."""
        return self.forward_seconds + self.backward_seconds


@dataclass(frozen=True)
class Profile:
    """The layers of a network and which of them read which.

    Parameters
    ----------
    layers : tuple of Layer
        In any order.
    edges : tuple of (str, str)
        The name of a layer and of one that reads its output.

    Raises
    ------
    ProfileError
        When there is no layer, a name occurs twice, or an edge names no layer.
    """

    layers: Tuple[Layer, ...]
    edges: Tuple[Tuple[str, str], ...]

    def __post_init__(self) -> None:
        if not self.layers:
            raise ProfileError(f"The profile has no layers: give one line for each ({_FORM}).")
        names = set()
        for layer in self.layers:
            if layer.name in names:
                raise ProfileError(f"Two layers of the profile are named {layer.name!r}: give each a name of its own.")
            names.add(layer.name)
        for edge in self.edges:
            for name in edge:
                if name not in names:
                    raise ProfileError(f"The edge {edge[0]} -- {edge[1]} names {name!r}, which is no layer of the "
                                       "profile: give a line for it.")

    def without(self, names: Sequence[str]) -> "Profile":
        """The profile without some layers and their edges."""
        left = set(names)
        return Profile(tuple(layer for layer in self.layers if layer.name not in left),
                       tuple(edge for edge in self.edges if left.isdisjoint(edge)))

    def inputs(self) -> List[str]:
        """The names of the layers that stand for data."""
        readers = {reader for _, reader in self.edges}
        return [layer.name for layer in self.layers if layer.description.startswith("Input")
                and layer.name not in readers]

    def unused_items(self) -> Dict[str, str]:
        """Items of tuples that no layer reads, with the layer that makes the tuple."""
        read = {source for source, _ in self.edges}
        sources = {reader: source for source, reader in self.edges}
        return {layer.name: sources[layer.name] for layer in self.layers
                if layer.description.startswith("__getitem__") and layer.name not in read and layer.name in sources}

    def with_stages(self, stages: Sequence[Sequence[str]]) -> "Profile":
        """The profile with each layer assigned to the stage (from 0) that names it."""
        assigned = {name: number for number, names in enumerate(stages) for name in names}
        return replace(self, layers=tuple(replace(layer, stage=assigned.get(layer.name)) for layer in self.layers))

    def to_text(self) -> str:
        """The profile in PipeDream's text format."""
        lines = [_line(layer) for layer in self.layers]
        lines += [f"\t{source}{_SEPARATOR}{reader}" for source, reader in self.edges]
        return "\n".join(lines) + "\n"

    def write(self, path: str) -> None:
        """Write the profile to a file in PipeDream's text format.

        Raises
        ------
        OSError
            When the folder is not there or cannot be written to.
        """
        write_text(path, self.to_text())

    @classmethod
    def from_text(cls, text: str, source: str = "profile") -> "Profile":
        """Read PipeDream's text format.

        Parameters
        ----------
        text : str
            What a profile file holds.
        source : str
            Where it comes from, for messages.

        Raises
        ------
        ProfileError
            When a line has another form; the message names it.
        """
        layers, edges = [], []
        for number, line in enumerate(text.split("\n"), 1):
            line = line.rstrip("\r")
            if not line.strip():
                continue
            try:
                if line.startswith("\t"):
                    edges.append(_edge(line))
                else:
                    layers.append(_layer(line))
            except ProfileError as error:
                raise ProfileError(f"{source}, line {number}: {error}") from None
        try:
            return cls(tuple(layers), tuple(edges))
        except ProfileError as error:
            raise ProfileError(f"{source}: {error}") from None


def shipped(name: str) -> Profile:
    """A profile that PipeDream's repository ships, such as ``vgg16``: a file ``NAME.graph.txt`` in :data:`SHIPPED`."""
    return load(str(SHIPPED / f"{name}.graph.txt"))


def load(path: str) -> Profile:
    """Read a profile from a file.

    Raises
    ------
    ProfileError
        When it cannot be read, or is no profile.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ProfileError(f"The profile {path!r} cannot be read ({reason}): give a file that `soybean-mx profile` or "
                           "PipeDream's profiler wrote.") from None
    return Profile.from_text(text, path)


def _line(layer: Layer) -> str:
    # As many digits as the value has: what is read again is the same but for milliseconds' rounding.
    values = [layer.forward_seconds * 1e3, layer.backward_seconds * 1e3, layer.activation_bytes, layer.parameter_bytes]
    fields = ", ".join(f"{name}={_number(value)}" for name, value in zip(_FIELDS, values))
    description = " ".join(layer.description.replace(_SEPARATOR, " - ").split()) or "-"
    stage = "" if layer.stage is None else f"{_SEPARATOR}stage_id={layer.stage}"
    return f"{layer.name}{_SEPARATOR}{description}{_SEPARATOR}{fields}{stage}"


def _number(value: float) -> str:
    """In plain digits: at least PipeDream's three decimals, and the value's own where it has more."""
    text = f"{value:.3f}"
    return text if float(text) == value else f"{value:.9f}".rstrip("0")


def _edge(line: str) -> Tuple[str, str]:
    ends = line.strip().split(_SEPARATOR)
    if len(ends) != 2:
        raise ProfileError(f"{line.strip()!r} is no edge: write a tab, then SOURCE -- READER.")
    return ends[0].strip(), ends[1].strip()


def _layer(line: str) -> Layer:
    parts = line.strip().split(_SEPARATOR)
    if len(parts) not in (3, 4) or not parts[0].strip():
        raise ProfileError(f"{_short(line)!r} is no layer: write {_FORM}.")
    values = _values(parts[2])
    stage = None
    if len(parts) == 4:
        match = re.fullmatch(r"stage_id=(\d{1,9})", parts[3].strip())
        if match is None:
            raise ProfileError(f"{_short(parts[3])!r} is no stage: write stage_id=0, or leave it out.")
        stage = int(match.group(1))
    return Layer(parts[0].strip(), parts[1].strip(), values[_FIELDS[0]] / 1e3, values[_FIELDS[1]] / 1e3,
                 values[_FIELDS[2]], values[_FIELDS[3]], stage)


def _values(text: str) -> Mapping[str, float]:
    values: Dict[str, float] = {}
    for item in text.split(", "):
        name, _, value = item.strip().partition("=")
        if name not in _FIELDS or name in values:
            raise ProfileError(f"{_short(item)!r} is no value of a layer, or there twice: give {', '.join(_FIELDS)}, "
                               "each as NAME=VALUE.")
        values[name] = _sum(name, value)
    for name in _FIELDS:
        if name not in values:
            raise ProfileError(f"There is no {name}: give {', '.join(_FIELDS)}.")
    return values


def _sum(name: str, text: str) -> float:
    items = text.strip()
    items = items[1:-1].split(";") if items.startswith("[") and items.endswith("]") else [items]
    total = 0.0
    for item in items:
        try:
            value = float(item)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= 0):
            raise ProfileError(f"{name} is {_short(text)!r}, but a number of 0 or more is needed, or for sizes a list "
                               "of them such as [4.0; 8.0].")
        total += value
    return total


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 60 else text[:57] + "..."


def core_form(profile: Profile) -> Dict[str, Any]:
    """A profile as :func:`soybean_mx.core.stages` takes it (docs/interface.md)."""
    position = {layer.name: number for number, layer in enumerate(profile.layers)}
    return {"layers": [{"name": layer.name, "seconds": layer.seconds, "activation_bytes": layer.activation_bytes,
                        "parameter_bytes": layer.parameter_bytes} for layer in profile.layers],
            "edges": [[position[source], position[reader]] for source, reader in profile.edges]}
