"""A model with inputs that it is trained on, as the sweep takes it."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List, Optional

import mxnet as mx
import numpy as np

Inputs = Callable[[np.random.RandomState], List[mx.nd.NDArray]]


@dataclass(frozen=True)
class SampleModel:
    """A model, and how inputs for it are drawn.

    Attributes
    ----------
    network : callable
        Returns the network, not initialised: the same structure at every call.
    inputs : callable
        Draws its inputs from a ``numpy.random.RandomState``: a list of arrays, the samples along the first dim of each
        unless the network says otherwise.
    dtype : str, optional
        The only type that it can be trained in, where it mixes its parameters with constants of that type, or MXNet
        has no other on CPUs.
    imperative : bool
        Whether one device runs it operator by operator to be compared with: MXNet 1.9.1 computes wrong gradients of
        loops and branches where they are hybridized.
    """

    network: Callable[[], mx.gluon.Block]
    inputs: Inputs
    dtype: Optional[str] = None
    imperative: bool = False
