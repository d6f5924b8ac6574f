"""The links of a topology as queues, and how transfers that are under way at a time share them.

The devices are the leaves of a tree whose levels are the topology's. A transfer crosses the level at which its two
devices part. Where the links of that level are *shared* (a host's network, a socket's bus), all devices of a group use
one link in each direction, which carries the level's bandwidth times the devices of the group: all of it is there for
few transfers, up to what the links within the group let through. Else each device has links of its own at that level.
"""
from __future__ import annotations

import math
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

from soybean_mx.topology import Topology

OUT, IN = "out", "in"


class Link(NamedTuple):
    """One direction of a link.

    Attributes
    ----------
    level : str
        The level's name.
    first, devices : int
        The devices that it links to the others of the level: the number of the first, and how many.
    direction : str
        ``out`` (they send) or ``in`` (they receive).
    """

    level: str
    first: int
    devices: int
    direction: str

    @property
    def name(self) -> str:
        """For people: ``network: devices 0-3 out``."""
        which = f"device {self.first}" if self.devices == 1 else f"devices {self.first}-{self.first + self.devices - 1}"
        return f"{self.level}: {which} {self.direction}"


class Path(NamedTuple):
    """What a transfer between two devices goes through.

    Attributes
    ----------
    latency : float
        Seconds until the first byte arrives.
    bandwidth : float
        Bytes per second where nothing else is under way.
    links : tuple of Link
        All links, for the bytes that each carries.
    shared : tuple of Link
        Those of them that other devices send over too.
    """

    latency: float
    bandwidth: float
    links: Tuple[Link, ...]
    shared: Tuple[Link, ...]


class Network:
    """The links of a topology.

    Parameters
    ----------
    topology : Topology
        Devices and levels.
    """

    def __init__(self, topology: Topology):
        self._levels = topology.levels
        # By level: for each device the first device of its group there, and how many the group has.
        self._groups: List[List[Tuple[int, int]]] = []
        inside = [(0, topology.devices)]
        for level in self._levels:
            inside = [part for first, count in inside for part in _parts(first, count, level.groups)]
            self._groups.append([part for part in inside for _ in range(part[1])])
        self._paths: Dict[Tuple[int, int], Path] = {}
        self.capacity: Dict[Link, float] = {}

    def path(self, sender: int, receiver: int) -> Path:
        """The path from one device to another one."""
        found = self._paths.get((sender, receiver))
        if found is None:
            found = self._paths[sender, receiver] = self._path(sender, receiver)
        return found

    def _path(self, sender: int, receiver: int) -> Path:
        crossed = next(depth for depth, groups in enumerate(self._groups) if groups[sender] != groups[receiver])
        level = self._levels[crossed]
        if not level.shared:
            links = (Link(level.name, sender, 1, OUT), Link(level.name, receiver, 1, IN))
            return Path(level.latency, level.bandwidth, links, ())
        links, shared, bandwidth = [], [], math.inf
        for depth in range(crossed, len(self._levels)):
            inner = self._levels[depth]
            for device, direction in ((sender, OUT), (receiver, IN)):
                first, count = self._groups[depth][device] if inner.shared else (device, 1)
                link = Link(inner.name, first, count, direction)
                links.append(link)
                capacity = self.capacity.setdefault(link, inner.bandwidth * count)
                bandwidth = min(bandwidth, capacity)
                if count > 1:
                    shared.append(link)
        return Path(level.latency, bandwidth, tuple(links), tuple(shared))


def _parts(first: int, count: int, groups) -> List[Tuple[int, int]]:
    if isinstance(groups, tuple):
        sizes: Sequence[int] = groups
    elif groups is None:
        sizes = [1] * count
    else:
        sizes = [count // groups] * groups
    result = []
    for size in sizes:
        result.append((first, size))
        first += size
    return result


def fair_rates(flows: Mapping[int, Path], capacity: Mapping[Link, float]) -> Dict[int, float]:
    """Bytes per second of transfers that are under way at a time: shared links are divided fairly (max-min).

    Parameters
    ----------
    flows : mapping of int to Path
        The transfers by number.
    capacity : mapping of Link to float
        Bytes per second of each shared link.
    """
    rates: Dict[int, float] = {}
    left = {link: capacity[link] for path in flows.values() for link in path.shared}
    users: Dict[Link, List[int]] = {link: [] for link in left}
    for number, path in flows.items():
        for link in path.shared:
            users[link].append(number)
    open_flows = dict(flows)
    while open_flows:
        share = {link: left[link] / len(numbers) for link, numbers in users.items() if numbers}
        # The flow, or the flows of the link, that can get least gets it.
        number, rate = min(((number, min([path.bandwidth, *(share[link] for link in path.shared)]))
                            for number, path in open_flows.items()), key=lambda item: (item[1], item[0]))
        rates[number] = rate
        for link in open_flows.pop(number).shared:
            left[link] = max(0.0, left[link] - rate)
            users[link].remove(number)
    return rates
