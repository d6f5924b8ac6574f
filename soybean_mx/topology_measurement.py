"""Measures a topology: copies between contexts, matrix products and memory traffic of each."""
from __future__ import annotations

import os
import time
from functools import partial
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

import mxnet as mx
import numpy as np

from soybean_mx.topology import Device, Level, Topology, TopologyError

# Bytes of one copy: from where latency is all to where bandwidth is.
_COPY_BYTES = (4 << 10, 256 << 10, 2 << 20, 8 << 20)
# Bandwidths within this factor are of links of the same kind: twice the NVLinks are another kind, noise is not.
_ALIKE = 1.5
# Extents of the square matrices that are multiplied, and bytes of the arrays that are added.
_MATRIX = {"cpu": 768, "gpu": 4096}
_ARRAY_BYTES = {"cpu": 16 << 20, "gpu": 128 << 20}

Partition = List[List[int]]


class Grouping(NamedTuple):
    """Devices in a tree of equal groups, or in unequal hosts.

    Parameters
    ----------
    order : list of int
        The devices so that those of one group are neighbours.
    groups : list of int or tuple of int or None
        Of each level, from the outermost, as of :class:`soybean_mx.topology.Level`.
    pairs : list of list of (int, int)
        Of each level, the pairs of devices (before ordering) whose links belong to it.
    """

    order: List[int]
    groups: List
    pairs: List[List[Tuple[int, int]]]


def group_devices(bandwidth: np.ndarray) -> Grouping:
    """Group devices by the bandwidth between them.

    Parameters
    ----------
    bandwidth : numpy.ndarray
        Shape (n, n), n >= 2: bytes per second from each device to each other one; the diagonal is not read.

    Returns
    -------
    Grouping
        One level where all pairs are alike (within a factor of 1.5 from one to the next). Groups of unequal size count
        only where there are no equal ones, and then the largest of them.
    """
    count = len(bandwidth)
    both = np.minimum(bandwidth, bandwidth.T)
    partitions = [_components(both >= least) for least in _kinds(both)]
    partitions = [blocks for blocks in partitions if 1 < len(blocks) < count]
    equal: List[Partition] = []
    for blocks in partitions:  # from the smallest blocks to the largest
        if len({len(block) for block in blocks}) == 1 and (not equal or len(blocks) < len(equal[-1])):
            equal.append(blocks)
    nested = equal[::-1] if equal else partitions[-1:]
    keys = [tuple(_block_of(device, blocks) for blocks in nested) for device in range(count)]
    order = sorted(range(count), key=lambda device: (keys[device], device))
    if nested and not equal:
        groups: List = [tuple(len(block) for block in nested[0]), None]
    else:
        blocks_at = [1, *[len(blocks) for blocks in nested], count]
        groups = [after // before for before, after in zip(blocks_at, blocks_at[1:])]
    pairs: List[List[Tuple[int, int]]] = [[] for _ in groups]
    for a in range(count):
        for b in range(a + 1, count):
            shared = [x == y for x, y in zip(keys[a], keys[b])]
            pairs[shared.index(False) if False in shared else len(shared)].append((a, b))
    return Grouping(order, groups, pairs)


def _kinds(both: np.ndarray) -> List[float]:
    """The least bandwidth of each kind of links, the fastest kind first."""
    values = sorted(both[np.triu_indices(len(both), 1)], reverse=True)
    return [value for value, after in zip(values, [*values[1:], 0.0]) if value > _ALIKE * after]


def _components(linked: np.ndarray) -> Partition:
    """The connected components of a graph, by their first device."""
    left, result = set(range(len(linked))), []
    while left:
        block, waiting = [], [min(left)]
        left.discard(waiting[0])
        while waiting:
            device = waiting.pop()
            block.append(device)
            found = sorted(other for other in left if linked[device, other])
            left.difference_update(found)
            waiting.extend(found)
        result.append(sorted(block))
    return result


def _block_of(device: int, blocks: Partition) -> int:
    return next(index for index, block in enumerate(blocks) if device in block)


def fit_link(sizes: Sequence[int], seconds: Sequence[float]) -> Tuple[float, float]:
    """Fit ``seconds = latency + bytes / bandwidth`` with the least relative errors.

    Parameters
    ----------
    sizes, seconds : sequence of number
        Bytes of each copy, and how long it took; 2 or more.

    Returns
    -------
    latency, bandwidth : float
        In seconds (0 where noise would make it negative) and bytes per second.
    """
    size, taken = np.asarray(sizes, float), np.asarray(seconds, float)
    columns = np.stack([1 / taken, size / taken], axis=1)
    (latency, per_byte), *_ = np.linalg.lstsq(columns, np.ones(len(taken)), rcond=None)
    if latency <= 0 or per_byte <= 0:
        largest = int(np.argmax(size))
        return max(0.0, float(latency)) if per_byte > 0 else 0.0, size[largest] / taken[largest]
    return float(latency), float(1 / per_byte)


def measure(contexts: Sequence[mx.Context], repeats: int = 7) -> Tuple[Topology, List[mx.Context]]:
    """Measure the links between contexts and what each context computes.

    Parameters
    ----------
    contexts : sequence of mxnet.Context
        Two or more, all of one kind.
    repeats : int
        How often each time is taken; medians count.

    Returns
    -------
    topology : soybean_mx.topology.Topology
        The bandwidth of a level is that of each device while all send over it. What contexts compute is measured on all
        at once too, as CPU contexts share cores.
    contexts : list of mxnet.Context
        In the order that the topology is about: those of one group are neighbours.

    Raises
    ------
    TopologyError
        When there is only one context.
    """
    if len(contexts) < 2:
        raise TopologyError(f"There is one device, {contexts[0]}, and no link to measure: name 2 devices or more, such "
                            "as cpu:4.")
    latency, bandwidth = _measure_pairs(contexts, repeats)
    grouping = group_devices(bandwidth)
    ordered = [contexts[device] for device in grouping.order]
    levels = []
    for depth, (groups, pairs) in enumerate(zip(grouping.groups, grouping.pairs)):
        alone = float(np.median([min(bandwidth[a, b], bandwidth[b, a]) for a, b in pairs]))
        together = _together(contexts, _partners(pairs, len(contexts)), repeats)
        waiting = float(np.median([latency[pair] for a, b in pairs for pair in ((a, b), (b, a))]))
        name = "link" if len(grouping.groups) == 1 else f"link {depth}"
        levels.append(Level(name, groups, _rounded(min(alone, together)), _rounded(waiting)))
    device = Device(_rounded(_flops(contexts, repeats)), _memory(contexts),
                    _rounded(_memory_bandwidth(contexts, repeats)), ordered[0].device_type != "cpu")
    numbers = ",".join(str(context.device_id) for context in ordered)
    return Topology(f"measured on {ordered[0].device_type}:{numbers}", device, tuple(levels)), ordered


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _measure_pairs(contexts: Sequence[mx.Context], repeats: int) -> Tuple[np.ndarray, np.ndarray]:
    """Latency and bandwidth from each context to each other one, one copy at a time."""
    count = len(contexts)
    times: Dict[Tuple[int, int, int], List[float]] = {}
    for size in _COPY_BYTES:
        arrays = [mx.nd.ones((size // 4,), ctx=context) for context in contexts]
        targets = [mx.nd.zeros((size // 4,), ctx=context) for context in contexts]
        mx.nd.waitall()
        for _ in range(repeats + 1):  # all pairs in turn, so that a disturbance does not hit one alone
            for a in range(count):
                for b in range(count):
                    if a != b:
                        taken = _timed(partial(arrays[a].copyto, targets[b]))
                        times.setdefault((a, b, size), []).append(taken)
    latency, bandwidth = np.zeros((count, count)), np.zeros((count, count))
    for a in range(count):
        for b in range(count):
            if a != b:  # the first time of each is a warm-up
                medians = [float(np.median(times[a, b, size][1:])) for size in _COPY_BYTES]
                latency[a, b], bandwidth[a, b] = fit_link(_COPY_BYTES, medians)
    return latency, bandwidth


def _timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    mx.nd.waitall()
    return time.perf_counter() - start


def _partners(pairs: Sequence[Tuple[int, int]], count: int) -> List[Tuple[int, int]]:
    """A partner in a level for as many devices as have one that nobody else sends to."""
    free, result = set(range(count)), []
    for shift in range(1, count):
        for a in range(count):
            b = (a + shift) % count
            if a in {sender for sender, _ in result} or b not in free:
                continue
            if (min(a, b), max(a, b)) in pairs:
                free.discard(b)
                result.append((a, b))
    return result


def _together(contexts: Sequence[mx.Context], partners: Sequence[Tuple[int, int]], repeats: int) -> float:
    """Bytes per second of each device while all send to their partners."""
    size = _COPY_BYTES[-1]
    arrays = [mx.nd.ones((size // 4,), ctx=context) for context in contexts]
    targets = [mx.nd.zeros((size // 4,), ctx=context) for context in contexts]
    mx.nd.waitall()

    def exchange() -> None:
        for a, b in partners:
            arrays[a].copyto(targets[b])

    return size / _median(exchange, repeats)


def _median(function: Callable[[], object], repeats: int) -> float:
    _timed(function)
    return float(np.median([_timed(function) for _ in range(repeats)]))


def _flops(contexts: Sequence[mx.Context], repeats: int) -> float:
    extent = _MATRIX[contexts[0].device_type]
    arrays = [(mx.nd.ones((extent, extent), ctx=context), mx.nd.zeros((extent, extent), ctx=context))
              for context in contexts]
    mx.nd.waitall()
    return 2 * extent ** 3 / _median(lambda: [mx.nd.dot(a, a, out=b) for a, b in arrays], repeats)


def _memory_bandwidth(contexts: Sequence[mx.Context], repeats: int) -> float:
    size = _ARRAY_BYTES[contexts[0].device_type]
    arrays = [(mx.nd.ones((size // 4,), ctx=context), mx.nd.zeros((size // 4,), ctx=context)) for context in contexts]
    mx.nd.waitall()
    # Two arrays are read and one is written.
    return 3 * size / _median(lambda: [mx.nd.elemwise_add(a, b, out=b) for a, b in arrays], repeats)


def _memory(contexts: Sequence[mx.Context]) -> float:
    if contexts[0].device_type == "gpu":
        return float(min(mx.context.gpu_memory_info(context.device_id)[1] for context in contexts))
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // len(contexts))
