"""The handwritten digits as an image folder and as RecordIO files, a few of each class."""
from __future__ import annotations

import io
from pathlib import Path
from typing import Iterator, Tuple

import numpy as np
from mxnet import recordio
from PIL import Image
from sklearn.datasets import load_digits

CLASSES = 3
TRAIN, VAL = 20, 7  # images of each part; 7 is no multiple of the batch size of the tests


def _images() -> Iterator[Tuple[str, int, int, Image.Image]]:
    """Part, number, class and picture of each image."""
    digits = load_digits()
    chosen = np.flatnonzero(digits.target < CLASSES)[:TRAIN + VAL]
    for number, index in enumerate(chosen):
        pixels = (digits.images[index] * 255 / 16).astype("uint8")
        picture = Image.fromarray(pixels).convert("RGB").resize((40, 40), Image.BILINEAR)
        yield ("train" if number < TRAIN else "val"), number, int(digits.target[index]), picture


def write_folder(folder: Path) -> None:
    """Write ``train/CLASS/*.png`` and ``val/CLASS/*.png``."""
    for part, number, label, picture in _images():
        directory = folder / part / f"digit{label}"
        directory.mkdir(parents=True, exist_ok=True)
        picture.save(str(directory / f"{number}.png"))


def write_records(folder: Path) -> None:
    """Write ``train.rec``, ``train.idx``, ``val.rec`` and ``val.idx``."""
    writers = {part: recordio.MXIndexedRecordIO(str(folder / f"{part}.idx"), str(folder / f"{part}.rec"), "w")
               for part in ("train", "val")}
    for part, number, label, picture in _images():
        encoded = io.BytesIO()
        picture.save(encoded, "JPEG", quality=95)
        header = recordio.IRHeader(0, float(label), number, 0)
        writers[part].write_idx(number, recordio.pack(header, encoded.getvalue()))
    for writer in writers.values():
        writer.close()
