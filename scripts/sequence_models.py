"""Models that are no zoo's."""
from __future__ import annotations

from typing import Callable, Dict

from sample_model import SampleModel

MODELS: Dict[str, Callable[[], SampleModel]] = {}
