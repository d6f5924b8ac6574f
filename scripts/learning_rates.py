"""The learning rate as a function of the progress of training, so that a resumed run needs no scheduler state."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Tuple

MODES = ("step", "poly", "cosine", "constant")


@dataclass(frozen=True)
class LearningRate:
    """Linear warm-up, then one of `MODES`.

    Attributes
    ----------
    mode : str
        ``step``: times `decay` at each of `decay_epochs`; ``poly``: falls to 0 as ``(1 - t) ** 2``; ``cosine``: falls
        to 0 as ``(1 + cos(pi t)) / 2``; ``constant``. t runs from 0 after the warm-up to 1 at the end.
    base : float
        The learning rate at the end of the warm-up.
    epochs : float
        Length of the training, warm-up included.
    warmup_epochs, warmup_base : float
        Length of the warm-up, and the learning rate that it starts from.
    decay : float
        Factor of ``step``.
    decay_epochs : tuple of float
        Epochs of ``step``.
    """

    mode: str
    base: float
    epochs: float
    warmup_epochs: float = 0.0
    warmup_base: float = 0.0
    decay: float = 0.1
    decay_epochs: Tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"The learning rate mode {self.mode!r} is unknown; give one of {', '.join(MODES)}.")

    def at(self, epoch: float) -> float:
        """The learning rate after `epoch` epochs (2.5 is the middle of the third)."""
        if epoch < self.warmup_epochs:
            return self.warmup_base + (self.base - self.warmup_base) * epoch / self.warmup_epochs
        if self.mode == "step":
            return self.base * self.decay ** sum(epoch >= boundary for boundary in self.decay_epochs)
        remaining = 1 - (epoch - self.warmup_epochs) / max(self.epochs - self.warmup_epochs, 1e-9)
        remaining = min(1.0, max(0.0, remaining))
        if self.mode == "poly":
            return self.base * remaining ** 2
        if self.mode == "cosine":
            return self.base * (1 - math.cos(math.pi * remaining)) / 2
        return self.base
