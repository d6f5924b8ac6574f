"""Topologies: how the devices of a machine, or of several, are linked, and how fast they compute.

A topology is a tree of levels, from the outermost and slowest links to the innermost. It is an option of the planner
(docs/interface.md), a JSON file, or the name of a preset:

==================================  ==================================================================
``p2.8xlarge``                      one of the presets of :data:`PRESETS`
``4xp3.16xlarge@25Gb/s``            that many hosts of a preset, each with a network link of that speed
``4xp3.16xlarge``                   the same, with the preset's own network
==================================  ==================================================================

The figures of presets are nominal: data sheets say them, programs see less. ``soybean-mx topology --measure`` measures.
"""
from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from soybean_mx.devices import MAX_DEVICES
from soybean_mx.input_errors import InputError

Groups = Union[int, Tuple[int, ...], None]

MAX_HOSTS = 128
_HOSTS = re.compile(r"\s*(\d+)\s*x\s*([A-Za-z][\w.\-]*)\s*(?:@\s*([\d.]+)\s*Gb/s\s*)?", re.IGNORECASE)


class TopologyError(InputError):
    """A topology that cannot be used; the message is one sentence for the user."""


@dataclass(frozen=True)
class Device:
    """One device; all devices of a topology are alike.

    Parameters
    ----------
    flops : float
        Floating-point operations per second, in single precision.
    memory : float
        Bytes.
    memory_bandwidth : float
        Bytes per second.
    copy_engines : bool
        Whether it sends and receives while it computes, as GPUs do; CPU contexts send among their operators.
    """

    flops: float
    memory: float
    memory_bandwidth: float
    copy_engines: bool = True

    def __post_init__(self) -> None:
        for name in ("flops", "memory", "memory_bandwidth"):
            _check_number(f"device.{name}", getattr(self, name))
        _check_truth("device.copy_engines", self.copy_engines)


@dataclass(frozen=True)
class Level:
    """The links of one level of the tree.

    Parameters
    ----------
    name : str
        What the links are, such as ``"network"``.
    groups : int, tuple of int or None
        Into how many equal groups these links join the devices. A tuple, of the outer level of two, holds the number
        of devices of each group, where hosts are unequal; the inner level then has None.
    bandwidth : float
        Bytes per second, of each device and direction, while all devices send.
    latency : float
        Seconds until the first byte of a message arrives.
    shared : bool
        Whether the devices of a group use one link together, such as a host's network: those that send while others
        do not have more of it. Else each device has links of its own. Only simulations (docs/simulation.md) tell them
        apart.
    """

    name: str
    groups: Groups
    bandwidth: float
    latency: float
    shared: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TopologyError(f"A level's name is {self.name!r}, but must be a text: name it after its links.")
        _check_number(f"level {self.name!r}: bandwidth", self.bandwidth)
        _check_number(f"level {self.name!r}: latency", self.latency, least=0.0)
        _check_truth(f"level {self.name!r}: shared", self.shared)
        counts = self.groups if isinstance(self.groups, tuple) else () if self.groups is None else (self.groups,)
        least = 1 if isinstance(self.groups, tuple) else 2
        bad = [count for count in counts if isinstance(count, bool) or not isinstance(count, int) or count < least]
        if bad or (isinstance(self.groups, tuple) and len(self.groups) < 2):
            raise TopologyError(
                f"Level {self.name!r} has the groups {_plain(self.groups)!r}, but 2 or more equal groups (a whole "
                "number) or a list of the devices in each of 2 or more hosts are possible.")

    def to_json(self) -> Dict[str, Any]:
        """The level as an object of the planner's option ``topology``."""
        groups = {} if self.groups is None else {"groups": _plain(self.groups)}
        shared = {"shared": True} if self.shared else {}
        return {"name": self.name, **groups, "bandwidth": self.bandwidth, "latency": self.latency, **shared}


@dataclass(frozen=True)
class Topology:
    """Devices and the levels of links between them.

    Parameters
    ----------
    name : str
        What it is called in reports.
    device : Device
        What each device can do.
    levels : tuple of Level
        From the outermost (slowest) to the innermost; device i lies in group ``i // (devices / groups)`` of the first.

    Raises
    ------
    TopologyError
        When something is missing, of a wrong type or out of range.
    """

    name: str
    device: Device
    levels: Tuple[Level, ...]

    def __post_init__(self) -> None:
        if not self.levels:
            raise TopologyError(f"The topology {self.name!r} has no levels, but links are what it describes: give 1 "
                                "level or more, the outermost first.")
        forms = ["list" if isinstance(level.groups, tuple) else "none" if level.groups is None else "number"
                 for level in self.levels]
        if set(forms) != {"number"} and forms != ["list", "none"]:
            raise TopologyError(
                f"The topology {self.name!r} has the groups {[_plain(level.groups) for level in self.levels]}, but "
                "either every level has a number of groups, or there are two levels, the outer with a list of the "
                "devices in each host and the inner without groups.")
        if self.devices > MAX_DEVICES:
            raise TopologyError(f"The topology {self.name!r} has {self.devices} devices, but at most {MAX_DEVICES} "
                                "are possible: give fewer groups.")

    @property
    def devices(self) -> int:
        """How many devices there are."""
        first = self.levels[0].groups
        return sum(first) if isinstance(first, tuple) else math.prod(level.groups or 1 for level in self.levels)

    def to_json(self) -> Dict[str, Any]:
        """The planner's option ``topology``, which is also the form of a file."""
        device = {"flops": self.device.flops, "memory": self.device.memory,
                  "memory_bandwidth": self.device.memory_bandwidth,
                  **({} if self.device.copy_engines else {"copy_engines": False})}
        return {"name": self.name, "device": device, "levels": [level.to_json() for level in self.levels]}

    @classmethod
    def from_json(cls, value: Any, source: str = "topology") -> "Topology":
        """Read the form that :meth:`to_json` writes.

        Parameters
        ----------
        value : dict
            A parsed JSON object.
        source : str
            Where it comes from, for messages.

        Raises
        ------
        TopologyError
            When a member is missing, unknown, of a wrong type or out of range.
        """
        members = _members(value, source, ("name", "device", "levels"))
        device = _members(members["device"], f"{source}: device", ("flops", "memory", "memory_bandwidth"),
                          ("copy_engines",))
        if not isinstance(members["levels"], list):
            raise TopologyError(f"{source}: levels is {members['levels']!r}, but must be a list, the outermost first.")
        try:
            levels = []
            for index, item in enumerate(members["levels"]):
                level = _members(item, f"{source}: level {index}", ("name", "bandwidth", "latency"),
                                 ("groups", "shared"))
                groups = level.get("groups")
                levels.append(Level(level["name"], tuple(groups) if isinstance(groups, list) else groups,
                                    level["bandwidth"], level["latency"], level.get("shared", False)))
            return cls(str(members["name"]), Device(**device), tuple(levels))
        except TopologyError as error:
            raise TopologyError(str(error) if str(error).startswith(source) else f"{source}: {error}") from None


def _members(value: Any, source: str, names: Tuple[str, ...], optional: Tuple[str, ...] = ()) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TopologyError(f"{source} is {value!r}, but must be an object with {', '.join(names)}.")
    for name in names:
        if name not in value:
            raise TopologyError(f"{source} has no {name!r}: it must have {', '.join(names)}.")
    for name in value:
        if name not in names + optional:
            raise TopologyError(f"{source} has the member {name!r}, but only {', '.join(names + optional)} are known.")
    return value


def _check_number(what: str, value: Any, least: Optional[float] = None) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (least is None and value == 0):
        allowed = "more than 0" if least is None else f"{least:g} or more"
        raise TopologyError(f"{what} is {value!r}, but must be a number of {allowed}, in bytes and seconds.")


def _check_truth(what: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TopologyError(f"{what} is {value!r}, but must be true or false.")


def _plain(groups: Groups) -> Union[int, List[int], None]:
    return list(groups) if isinstance(groups, tuple) else groups


@dataclass(frozen=True)
class Preset:
    """One host: its topology, and its usual network.

    Parameters
    ----------
    description : str
        One line about it.
    topology : Topology
        The devices of one host.
    network : float
        Bytes per second and direction of the whole host's network link.
    """

    description: str
    topology: Topology
    network: float


# Nominal figures, from the vendors' data sheets:
# - Tesla K80 (NVIDIA, "Tesla K80 GPU Accelerator", BD-07317-001): two GK210 a board; of the board 8.73 TFLOP/s with
#   boost, 24 GB, 480 GB/s. PCIe 3.0; the SoyBean paper (arXiv 1805.04170) gives the instance's peer-to-peer limit,
#   20 GB/s in both directions together.
# - Tesla V100 (NVIDIA V100 data sheet): SXM2 15.7 TFLOP/s, PCIe 14 TFLOP/s; 16 GB, 900 GB/s; six NVLinks of 25 GB/s
#   per direction. In p3.16xlarge (the hybrid cube mesh of NVIDIA's DGX-1 white paper, WP-08437-002) four of a device's
#   links lead to the other three devices of its four, two to one of the other four.
# - H100 SXM and H200 SXM (NVIDIA data sheets): 67 TFLOP/s, 80 GB at 3.35 TB/s and 141 GB at 4.8 TB/s; NVLink 4 has
#   900 GB/s in both directions together. DGX: eight network links of 400 Gb/s.
# - PCIe 3.0 x16 (PCI-SIG): 15.75 GB/s per direction; two devices share the link of their switch. QPI of 9.6 GT/s
#   (Intel Xeon E5 v4): 19.2 GB/s per direction, which the four devices of a socket share.
# - AWS instance types: p2.8xlarge 10 Gb/s, p3.16xlarge 25 Gb/s.
# No data sheet states latencies. These are round figures for a message between two GPUs: NVLink 5 us, PCIe 10 us,
# between sockets 20 us.
_V100_MEMORY = (16e9, 900e9)
PRESETS: Dict[str, Preset] = {
    "p2.8xlarge": Preset(
        "AWS: 8 GK210 (4 K80) of 12 GB, PCIe",
        Topology("p2.8xlarge", Device(4.37e12, 12e9, 240e9), (Level("pcie", 8, 10e9, 10e-6),)), 10e9 / 8),
    "p3.16xlarge": Preset(
        "AWS: 8 V100 of 16 GB, two fully linked fours on NVLink",
        Topology("p3.16xlarge", Device(15.7e12, *_V100_MEMORY),
                 (Level("nvlink between fours", 2, 50e9, 5e-6), Level("nvlink", 4, 100e9, 5e-6))), 25e9 / 8),
    "dgx-h100": Preset(
        "NVIDIA DGX H100: 8 H100 of 80 GB, NVLink switch",
        Topology("dgx-h100", Device(67e12, 80e9, 3.35e12), (Level("nvlink", 8, 450e9, 5e-6),)), 8 * 400e9 / 8),
    "dgx-h200": Preset(
        "NVIDIA DGX H200: 8 H200 of 141 GB, NVLink switch",
        Topology("dgx-h200", Device(67e12, 141e9, 4.8e12), (Level("nvlink", 8, 450e9, 5e-6),)), 8 * 400e9 / 8),
    "pcie-tree": Preset(
        "2 sockets x 2 PCIe switches x 2 V100 of 16 GB",
        Topology("pcie-tree", Device(14e12, *_V100_MEMORY),
                 (Level("socket", 2, 19.2e9 / 4, 20e-6, shared=True),
                  Level("switch", 2, 15.75e9 / 2, 10e-6, shared=True),
                  Level("pcie", 2, 15.75e9, 10e-6))), 10e9 / 8),
}
# Round figures again: sockets through the kernel, and remote direct memory access, which faster networks come with.
_ETHERNET_LATENCY, _RDMA_LATENCY, _SLOWEST_RDMA = 50e-6, 10e-6, 100e9 / 8


def named(text: str) -> Topology:
    """The topology of a preset, or of several hosts of it.

    Parameters
    ----------
    text : str
        One of the forms of the module's table.

    Raises
    ------
    TopologyError
        When no preset has the name, or the number of hosts or their network is out of range.
    """
    if text in PRESETS:
        return PRESETS[text].topology
    match = _HOSTS.fullmatch(text)
    if match is None or match.group(2) not in PRESETS:
        raise TopologyError(f"There is no topology {text!r}: give a JSON file, or a preset ({', '.join(PRESETS)}), or "
                            "hosts of one, such as 4xp3.16xlarge@25Gb/s.")
    hosts, preset = int(match.group(1)[:9]), PRESETS[match.group(2)]
    if not 2 <= hosts <= MAX_HOSTS:
        raise TopologyError(f"The topology {text!r} has {hosts} hosts, but 2 to {MAX_HOSTS} are possible.")
    network = preset.network if match.group(3) is None else _gigabits(match.group(3), text)
    latency = _RDMA_LATENCY if network >= _SLOWEST_RDMA else _ETHERNET_LATENCY
    # The host's link is shared by its devices.
    level = Level("network", hosts, network / preset.topology.devices, latency, shared=True)
    name = f"{hosts}x{match.group(2)}@{network * 8 / 1e9:g}Gb/s"
    return replace(preset.topology, name=name, levels=(level, *preset.topology.levels))


def _gigabits(number: str, text: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise TopologyError(f"The topology {text!r} has the network speed {number!r}, but a number of gigabits per "
                            "second above 0 is needed, such as 25Gb/s.")
    return value * 1e9 / 8


def load(text: str) -> Topology:
    """Read a topology from a file, or take a preset.

    Parameters
    ----------
    text : str
        The path of a JSON file, or a text for :func:`named`. A file goes first.

    Raises
    ------
    TopologyError
        When it cannot be read or used.
    """
    if not os.path.isfile(text):
        if text.endswith(".json"):
            raise TopologyError(f"There is no topology file {text!r}: write one with `soybean-mx topology -o {text}`.")
        return named(text)
    try:
        with open(text, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError) as error:
        raise TopologyError(f"The topology file {text!r} cannot be read ({error}): give a JSON object as "
                            "`soybean-mx topology --json PRESET` prints.") from None
    return Topology.from_json(value, text)
