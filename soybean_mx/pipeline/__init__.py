"""Pipelined training: a network cut into stages, each on a device of its own, with several microbatches under way.

Nothing heavy is imported before :class:`PipelineTrainer` is asked for.
"""
from __future__ import annotations

from typing import Any

__all__ = ["PipelineTrainer"]


def __getattr__(name: str) -> Any:
    if name == "PipelineTrainer":
        from soybean_mx.pipeline.trainer import PipelineTrainer  # imports MXNet

        return PipelineTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
