"""Checkpoints: a ``.params`` and a ``.states`` file per saved epoch, complete or absent."""
from __future__ import annotations

import os
from typing import Callable, Tuple

import mxnet as mx


def _write(path: str, save: Callable[[str], None]) -> None:
    """Let `save` write a file that is renamed to `path` when it is on disk: a crash leaves no half file there."""
    partial = f"{path}.{os.getpid()}.partial"
    try:
        save(partial)
        with open(partial, "rb") as written:
            os.fsync(written.fileno())
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def save(folder: str, model: str, epoch: int, net: mx.gluon.Block, trainer: mx.gluon.Trainer) -> Tuple[str, str]:
    """Save a model and its trainer after `epoch` epochs.

    The parameters come last, so that a ``.params`` file always has its ``.states`` file.

    Returns
    -------
    tuple of str
        Paths of the parameters and of the trainer states.
    """
    os.makedirs(folder, exist_ok=True)
    stem = os.path.join(folder, f"{model}-{epoch:04d}")
    _write(stem + ".states", trainer.save_states)
    _write(stem + ".params", net.save_parameters)
    return stem + ".params", stem + ".states"
