"""When two training runs agree.

Every tensor is compared by its largest difference relative to its own largest element: 1e-8 in float64, 1e-4 in
float32. A gradient below 1e-5 of the network's largest is measured on a tenth of that one: the gradient of a bias
before BatchNorm is 0 in exact arithmetic and made of rounding errors only, on one device as on many.

What makes float32 comparable at all: a ReLU whose operand is within rounding of 0, or two equal maxima of a pool, send
a gradient one way or another by the last bit, and one such flip moves a gradient of these small networks by 1 %. The
data (tests/models.py, DATA_SEED) were chosen so that plain MXNet agrees with itself over all 10 steps when the batch
stands in another order, and in float64: to 7e-6 in float32, and 4e-13 in float64. Where VGG in float32 disagrees by
percents, suspect the seed first.
"""
from __future__ import annotations

from typing import Dict, List, Mapping

import numpy as np

TOLERANCE = {"float32": 1e-4, "float64": 1e-8}
VANISHING = 1e-5
VANISHING_SCALE = 0.1


def relative_errors(plain: Mapping[str, np.ndarray], tiled: Mapping[str, np.ndarray]) -> Dict[str, float]:
    """Return the relative error of every tensor of the plain run; NaN where the tiled one has none of that shape."""
    gradients = [np.abs(v).max() for n, v in plain.items() if n.startswith("gradient of")]
    largest = max(gradients)
    result = {}
    for name, value in plain.items():
        other = tiled[name] if name in tiled else None
        if other is None or other.shape != value.shape or other.dtype != value.dtype:
            result[name] = float("nan")
            continue
        scale = np.abs(value).max()
        if name.startswith("gradient of") and scale < VANISHING * largest:
            scale = VANISHING_SCALE * largest
        result[name] = float(np.abs(other - value).max() / max(scale, np.finfo(value.dtype).tiny))
    return result


def disagreements(plain: Mapping[str, np.ndarray], tiled: Mapping[str, np.ndarray], dtype: str) -> List[str]:
    """Return a line for every tensor beyond the tolerance, the worst first."""
    errors = relative_errors(plain, tiled)
    beyond = {n: e for n, e in errors.items() if not e <= TOLERANCE[dtype]}
    lines = [f"{n}: relative error {e:.2e}" for n, e in sorted(beyond.items(), key=lambda item: -item[1])]
    missing = sorted(set(tiled) - set(plain))
    return lines + [f"{n}: not in the plain run" for n in missing]
