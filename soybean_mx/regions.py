"""Regions of tensors, and copies between a whole array and the tiles of it that lie on devices.

A *tile* is an NDArray that holds one :class:`Region` of a tensor. Everything here is asynchronous: the copies are
queued in MXNet's engine, ordered by the arrays that they touch, and nothing waits on the host. Nothing is recorded for
autograd; callers pause recording.

Arrays here are legacy NDArrays; :func:`legacy` gives the legacy view of an ``mx.np.ndarray``, without a copy.
"""
from __future__ import annotations

from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray
from mxnet.ndarray import _internal as _ops

Shape = Tuple[int, ...]

# Numbers of dims of arrays that MXNet copies whatever oneDNN's layout is.
_COPIED_IN_ANY_LAYOUT = (1, 2, 4)


class Region(NamedTuple):
    """The elements with index ``begin[d] <= i[d] < end[d]`` in every dim d."""

    begin: Shape
    end: Shape

    @classmethod
    def of(cls, item: dict) -> "Region":
        """The region of an item of the lowered graph's ``variables``, ``outputs`` or ``statistics``."""
        return cls(tuple(item["begin"]), tuple(item["end"]))

    @classmethod
    def whole(cls, shape: Sequence[int]) -> "Region":
        """All of a tensor of that shape."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def shape(self) -> Shape:
        """The shape of a tile that holds this region."""
        return tuple(end - begin for begin, end in zip(self.begin, self.end))

    @property
    def size(self) -> int:
        """The number of elements."""
        result = 1
        for extent in self.shape:
            result *= extent
        return result

    def overlaps(self, other: "Region") -> bool:
        """Whether the two have an element in common."""
        return all(a < d and c < b for a, b, c, d in zip(self.begin, self.end, other.begin, other.end))

    def contains(self, other: "Region") -> bool:
        """Whether every element of the other is in this one."""
        return all(a <= c and d <= b for a, b, c, d in zip(self.begin, self.end, other.begin, other.end))

    def within(self, outer: "Region") -> "Region":
        """This region in coordinates that start where the outer region, which contains it, starts."""
        return Region(tuple(a - o for a, o in zip(self.begin, outer.begin)),
                      tuple(b - o for b, o in zip(self.end, outer.begin)))


def disjoint(regions: Sequence[Region]) -> bool:
    """Whether no two of the regions have an element in common."""
    return not any(a.overlaps(b) for i, a in enumerate(regions) for b in regions[:i])


def legacy(array: NDArray) -> NDArray:
    """The array as a plain ``mx.nd.NDArray`` (the same memory and place on the tape)."""
    return array.as_nd_ndarray() if isinstance(array, mx.np.ndarray) else array


def like(array: NDArray, numpy_like: bool) -> NDArray:
    """A legacy array as ``mx.np.ndarray`` where the program works in MXNet's numpy mode."""
    return array.as_np_ndarray() if numpy_like else array


def empty(shape: Sequence[int], context: mx.Context, dtype) -> NDArray:
    """An array of unknown contents, whose memory is taken when it is first written."""
    return mx.nd.empty(tuple(shape), ctx=context, dtype=dtype)


def _is_leading(region: Region, shape: Shape) -> bool:
    """Whether the region cuts the first dim alone, so that it is one piece of memory."""
    return len(shape) > 0 and region.begin[1:] == (0,) * (len(shape) - 1) and region.end[1:] == tuple(shape[1:])


def view(whole: NDArray, region: Region) -> NDArray:
    """The region of an array on the array's own device, for reading: a view where it is one piece of memory.

    Only for arrays that no convolution or matrix product has had to do with: on the CPU these may keep arrays in a
    layout of oneDNN's own, of which MXNet refuses to copy views. For others there is :func:`part`.
    """
    if _is_leading(region, whole.shape):
        return whole._slice(region.begin[0], region.end[0])
    return part(whole, region)


def part(whole: NDArray, region: Region, out: Optional[NDArray] = None) -> NDArray:
    """The region of any array on the array's own device, for reading: a copy, unless it is all of the array.

    Along one dim after the other: ``slice_axis`` works whatever the array's layout, ``slice`` does not.
    """
    shape = whole.shape
    cut = [dim for dim in range(len(shape)) if region.begin[dim] > 0 or region.end[dim] < shape[dim]]
    result = whole
    for dim in cut:
        last = {"out": out} if out is not None and dim == cut[-1] else {}
        result = mx.nd.slice_axis(result, axis=dim, begin=region.begin[dim], end=region.end[dim], **last)
    return result


def copy_in(whole: NDArray, region: Region, tile: NDArray) -> None:
    """Fill a tile, on any device, with its region of a whole array."""
    if whole.context.device_type != "cpu":
        _ops._copyto(view(whole, region), out=tile)
    elif tile.context != whole.context or tile.dtype != whole.dtype:
        _ops._copyto(part(whole, region), out=tile)
    elif part(whole, region, out=tile) is whole:
        _ops._copyto(whole, out=tile)


def overwrite(whole: NDArray, region: Region, tile: NDArray) -> None:
    """:func:`copy_in` for a tile of a parameter, which operators have used.

    On the CPU, inference leaves the weights of convolutions in a layout of oneDNN's own, and MXNet's copies cannot be
    written into an array of 3 or 5 dims that has one (``Check failed: to.IsDefaultData()``). An operator that writes
    all of the array without reading it makes it forget the layout.
    """
    if tile.context.device_type == "cpu" and len(tile.shape) not in _COPIED_IN_ANY_LAYOUT:
        _ops._zeros(shape=tile.shape, ctx=str(tile.context), dtype=np.dtype(tile.dtype).name, out=tile)
    copy_in(whole, region, tile)


def copy_out(tile: NDArray, region: Region, whole: NDArray) -> None:
    """Write a tile, from any device, into its region of a whole array that nothing else has written to."""
    shape = whole.shape
    if region.end == shape and not any(region.begin):
        _ops._copyto(tile, out=whole)
    elif _is_leading(region, shape):
        _ops._copyto(tile, out=whole._slice(region.begin[0], region.end[0]))
    else:
        source = tile.as_in_context(whole.context).astype(whole.dtype, copy=False)
        _ops._slice_assign(whole, source, begin=region.begin, end=region.end, out=whole)


def add_out(tile: NDArray, region: Region, whole: NDArray) -> None:
    """Add a tile, from any device, to its region of a whole array."""
    addend = tile.as_in_context(whole.context)
    if region.end == whole.shape and not any(region.begin):
        _add(whole, addend)
    elif _is_leading(region, whole.shape):
        _add(whole._slice(region.begin[0], region.end[0]), addend)
    else:
        total = part(whole, region)
        _add(total, addend)
        _ops._slice_assign(whole, total, begin=region.begin, end=region.end, out=whole)


def _add(target: NDArray, addend: NDArray) -> None:
    mx.nd.elemwise_add(target, addend, out=target)


def add_in(whole: NDArray, region: Region, tile: NDArray) -> None:
    """Add a region of a whole array to a tile on any device."""
    _add(tile, part(whole, region).as_in_context(tile.context))


def gather(tiles: Iterable[NDArray], regions: Iterable[Region], whole: NDArray) -> None:
    """Write disjoint tiles that cover a tensor into a whole array."""
    for tile, region in zip(tiles, regions):
        copy_out(tile, region, whole)


def gather_sum(tiles: Sequence[NDArray], regions: Sequence[Region], whole: NDArray) -> None:
    """Write into a whole array the sum of tiles that may overlap: the gradient of a tensor held by several devices."""
    if disjoint(regions) and sum(region.size for region in regions) == Region.whole(whole.shape).size:
        gather(tiles, regions, whole)
        return
    mx.nd.zeros_like(whole, out=whole)
    for tile, region in zip(tiles, regions):
        add_out(tile, region, whole)


def cover(regions: Sequence[Region], shape: Sequence[int]) -> List[int]:
    """Choose disjoint regions that cover a tensor.

    Parameters
    ----------
    regions : sequence of Region
        Regions that may repeat or overlap.
    shape : sequence of int
        The tensor's shape.

    Returns
    -------
    list of int
        Positions in ``regions``.

    Raises
    ------
    RuntimeError
        When taking the regions greedily, in order, leaves a part of the tensor uncovered.
    """
    chosen: List[int] = []
    for position, region in enumerate(regions):
        if not any(region.overlaps(regions[other]) for other in chosen):
            chosen.append(position)
    missing = Region.whole(shape).size - sum(regions[position].size for position in chosen)
    if missing:
        raise RuntimeError(f"internal error: the regions {list(regions)} leave {missing} elements of a tensor of "
                           f"shape {tuple(shape)} uncovered.")
    return chosen
