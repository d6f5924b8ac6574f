"""What it moves to turn one tiling into another, by regions on devices: for every pair of tilings of a tensor at once.

The devices are divided by cuts, the first one into the largest groups. A tiling is a tuple with a pair (choice, level)
per cut. The choice is a dim, REPLICATED, OWNER (the first group alone holds it) or PARTIAL (every group holds a term of
a sum). Of the cuts that split one dim the one of level 0 makes the outermost parts, which the next divides, and so on;
parts differ by one element at most, the longer ones first. An exchange from t to u moves

    sum over devices D that hold u:  q |u(D)| - |t(D) and u(D)|

elements, where t(D) is what D holds and q the number of terms of the sums that end. u may be partial at a cut only
where t is. A conversion is the cheapest chain of exchanges, of any length, through tilings that leave every device
something.
"""
from __future__ import annotations

import functools
import itertools
import math
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

import numpy as np

REPLICATED, OWNER, PARTIAL = -1, -2, -3
Cuts = Tuple[int, ...]
Tiling = Tuple[Tuple[int, int], ...]

IMPOSSIBLE = 1 << 40  # elements; three of them add up without overflow


def prime_factors(n: int) -> Cuts:
    """Return the prime factors, ascending: the cuts that make n devices."""
    for p in range(2, n + 1):
        if n % p == 0:
            return (p,) + prime_factors(n // p)
    return ()


def orders(choices: Sequence[int]) -> List[Tiling]:
    """Return every tiling (or way to cut an operator) with these choices: the cuts of a dim in all orders."""
    places: Dict[int, List[int]] = {}
    for i, choice in enumerate(choices):
        places.setdefault(choice, []).append(i)
    split = [own for choice, own in places.items() if choice >= 0]
    out = []
    for ranks in itertools.product(*(itertools.permutations(range(len(own))) for own in split)):
        levels = [0] * len(choices)
        for own, rank in zip(split, ranks):
            for i, level in zip(own, rank):
                levels[i] = level
        out.append(tuple(zip(choices, levels)))
    return out


@functools.lru_cache(maxsize=None)
def arrangements(cuts: Cuts, choices: Tuple[int, ...]) -> Tuple[Tiling, ...]:
    """Return every exchange of equal cuts' choices, in every order."""
    classes = [[i for i, q in enumerate(cuts) if q == p] for p in sorted(set(cuts))]
    deals = [sorted(set(itertools.permutations([choices[i] for i in own]))) for own in classes]
    out: List[Tiling] = []
    for dealt in itertools.product(*deals):
        moved = [0] * len(cuts)
        for own, values in zip(classes, dealt):
            for i, value in zip(own, values):
                moved[i] = value
        out.extend(orders(moved))
    return tuple(out)


@functools.lru_cache(maxsize=None)
def _digits(cuts: Cuts) -> np.ndarray:
    """Return the group of each device at each cut: (devices, cuts)."""
    return np.array(list(itertools.product(*(range(p) for p in cuts)))).reshape(-1, len(cuts))


@functools.lru_cache(maxsize=None)
def _parts(cuts: Cuts, dividing: Tuple[int, ...], extent: int) -> Tuple[np.ndarray, np.ndarray]:
    """Return where each device's part of a dim begins and ends, the cut that divides first at the front."""
    digits = _digits(cuts)
    begin, end = np.zeros(len(digits), np.int64), np.full(len(digits), extent, np.int64)
    for cut in dividing:
        base, longer = np.divmod(end - begin, cuts[cut])
        group = digits[:, cut]
        begin = begin + group * base + np.minimum(group, longer)
        end = begin + base + (group < longer)
    return begin, end


def fits(cuts: Cuts, shape: Sequence[int], tiling: Tiling) -> bool:
    """Return whether every device has an element along every dim."""
    for dim, extent in enumerate(shape):
        parts = 1
        for p, (choice, _) in zip(cuts, tiling):
            parts *= p if choice == dim else 1
        if parts > extent:
            return False
    return True


class Conversions(NamedTuple):
    """The tilings of a tensor by number, and what each exchange and conversion moves: (tilings, tilings) elements."""

    number: Dict[Tiling, int]
    exchanges: np.ndarray
    conversions: np.ndarray

    def between(self, before: Iterable[Tiling], after: Iterable[Tiling]) -> np.ndarray:
        """Return what the conversions from `before` (rows) to `after` (columns) move."""
        return self.conversions[np.ix_([self.number[t] for t in before], [self.number[t] for t in after])]


def tilings(cuts: Cuts, shape: Sequence[int], dims: Iterable[int]) -> List[Tiling]:
    """Return all tilings that split these dims only."""
    choices = [*dims, REPLICATED, OWNER, PARTIAL]
    every = (t for chosen in itertools.product(choices, repeat=len(cuts)) for t in orders(chosen))
    return [t for t in every if fits(cuts, shape, t)]


def exchanges(cuts: Cuts, shape: Sequence[int], among: Sequence[Tiling]) -> np.ndarray:
    """Return what each exchange moves: elements, (tilings, tilings)."""
    digits = _digits(cuts)
    n, devices = len(among), len(digits)
    choices = np.array([[c for c, _ in t] for t in among]).reshape(n, len(cuts))
    holds = np.all((choices[:, None, :] != OWNER) | (digits[None] == 0), axis=2)  # (tilings, devices)
    ends = (choices[:, None] == PARTIAL) & (choices[None] != PARTIAL)
    terms = np.where(ends, np.array(cuts, np.int64), 1).prod(axis=2)
    begin, end = np.empty((2, len(shape), n, devices), np.int64)
    for d, extent in enumerate(shape):
        for i, tiling in enumerate(among):
            dividing = sorted((level, cut) for cut, (choice, level) in enumerate(tiling) if choice == d)
            begin[d, i], end[d, i] = _parts(cuts, tuple(cut for _, cut in dividing), extent)
    moved = np.zeros((n, n), np.int64)
    for device in range(devices):
        size, common = np.ones(n, np.int64), np.ones((n, n), np.int64)
        for low, high in zip(begin[:, :, device], end[:, :, device]):
            size *= high - low
            common *= np.maximum(np.minimum.outer(high, high) - np.maximum.outer(low, low), 0)
        here = holds[:, device]
        moved += here[None] * (terms * size[None] - here[:, None] * common)
    begins_sum = np.any((choices[:, None] != PARTIAL) & (choices[None] == PARTIAL), axis=2)
    return np.where(begins_sum, IMPOSSIBLE, moved)


def chained(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the least of first[i, k] + second[k, j] over k."""
    return np.array([(row[:, None] + second).min(axis=0) for row in first]).reshape(len(first), second.shape[1])


@functools.lru_cache(maxsize=4000)
def conversions(cuts: Cuts, shape: Tuple[int, ...], dims: Tuple[int, ...]) -> Conversions:
    """Return all conversions of a tensor through tilings that split these dims only."""
    among = tilings(cuts, shape, dims)
    direct = exchanges(cuts, shape, among)
    best = direct
    while True:
        longer = np.minimum(best, chained(best, best))
        if np.array_equal(longer, best):
            return Conversions({t: i for i, t in enumerate(among)}, direct, best)
        best = longer


def smallest_alike(cuts: Cuts, shape: Sequence[int]) -> Tuple[Tuple[int, ...], int]:
    """Return the smallest shape whose conversions move the same share of the tensor, and how often it is in this one.

    All parts of a dim that the number of devices divides are equal, so its size is only a factor.
    """
    devices = math.prod(cuts)
    small = tuple(devices if n % devices == 0 else n for n in shape)
    return small, math.prod(shape) // math.prod(small)


def text(tiling: Tiling) -> str:
    """Return a tiling as people write it: "0/1 R O P" splits dim 0 after another cut did."""
    names = {REPLICATED: "R", OWNER: "O", PARTIAL: "P"}
    return " ".join(names.get(c, f"{c}/{level}" if level else str(c)) for c, level in tiling)
