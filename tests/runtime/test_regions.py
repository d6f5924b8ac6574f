from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest

from soybean_mx import regions
from soybean_mx.regions import Region

CUTS = [
    [Region((0, 0), (4, 6))],
    [Region((0, 0), (1, 6)), Region((1, 0), (4, 6))],
    [Region((0, 0), (4, 2)), Region((0, 2), (4, 6))],
    [Region((0, 0), (2, 3)), Region((0, 3), (2, 6)), Region((2, 0), (4, 3)), Region((2, 3), (4, 6))],
]


def _whole():
    return mx.nd.array(np.arange(24).reshape(4, 6))


def _tiles(cut, dtype="float32"):
    return [mx.nd.zeros(region.shape, ctx=mx.cpu(index), dtype=dtype) for index, region in enumerate(cut)]


@pytest.mark.parametrize("cut", CUTS)
def test_copy_in_and_gather_are_opposites(cut):
    whole, tiles = _whole(), _tiles(cut)
    for region, tile in zip(cut, tiles):
        regions.copy_in(whole, region, tile)
        expected = whole.asnumpy()[tuple(map(slice, region.begin, region.end))]
        assert (tile.asnumpy() == expected).all()
        assert (regions.view(whole, region).asnumpy() == expected).all()
    back = mx.nd.zeros((4, 6))
    regions.gather(tiles, cut, back)
    assert (back.asnumpy() == whole.asnumpy()).all()


@pytest.mark.parametrize("cut", CUTS)
def test_adding(cut):
    whole, tiles = _whole(), [tile + 1 for tile in _tiles(cut)]
    total = whole.copy()
    for region, tile in zip(cut, tiles):
        regions.add_out(tile, region, total)
        regions.add_in(whole, region, tile)
    assert (total.asnumpy() == whole.asnumpy() + 1).all()
    regions.gather(tiles, cut, total)
    assert (total.asnumpy() == whole.asnumpy() + 1).all()


def test_overlapping_tiles_are_summed():
    cut = [Region((0, 0), (4, 6)), Region((0, 0), (4, 6)), Region((1, 0), (2, 6))]
    tiles = [tile + 1 for tile in _tiles(cut)]
    whole = mx.nd.full((4, 6), 9.0)
    regions.gather_sum(tiles, cut, whole)
    expected = np.full((4, 6), 2.0)
    expected[1] = 3
    assert (whole.asnumpy() == expected).all()


def test_types_are_converted():
    whole, cut = _whole(), CUTS[3]
    tiles = _tiles(cut, "float16")
    for region, tile in zip(cut, tiles):
        regions.copy_in(whole, region, tile)
    back = mx.nd.zeros((4, 6), dtype="float64")
    regions.gather(tiles, cut, back)
    assert (back.asnumpy() == whole.asnumpy()).all()


def test_cover_takes_each_element_once():
    left, right, whole = Region((0,), (3,)), Region((3,), (5,)), Region((0,), (5,))
    assert regions.cover([left, left, right, right], (5,)) == [0, 2]
    assert regions.cover([whole, whole], (5,)) == [0]
    with pytest.raises(RuntimeError, match="uncovered"):
        regions.cover([left], (5,))
