"""The images to train and validate on: handwritten digits, an image folder, RecordIO files, or random numbers.

Every source gives batches ``(images, labels)`` as MXNet arrays on the CPU: images ``(batch, channels, height, width)``
float32, normalised; labels ``(batch,)`` float32. What is random in epoch `e` depends on the seed and `e` alone, so a
resumed run sees the batches that the uninterrupted one would have seen.
"""
from __future__ import annotations

import argparse
import os
import random
from typing import Iterator, Optional, Tuple

import mxnet as mx
import numpy as np

Batch = Tuple[mx.nd.NDArray, mx.nd.NDArray]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
DIGITS_HELD_BACK = 360  # of 1797
DIGITS_SPLIT_SEED = 0  # not --seed: runs with different seeds are judged on the same images


class DataError(ValueError):
    """Data that cannot be used; the message is one sentence for the user."""


class Source:
    """Training and validation batches.

    Attributes
    ----------
    classes : int
        Number of classes.
    num_batches : int or None
        Training batches of an epoch, None if unknown before the first has ended.
    num_held_back : int or None
        Validation images; 0 if there are none, None if unknown.
    """

    classes: int
    num_batches: Optional[int]
    num_held_back: Optional[int]

    def training(self, epoch: int) -> Iterator[Batch]:
        """The training batches of one epoch, all of the same size."""
        raise NotImplementedError

    def validation(self) -> Iterator[Batch]:
        """The validation batches, every image once; the last may be smaller."""
        raise NotImplementedError


class Digits(Source):
    """The 1797 grey 8x8 digits of ``sklearn.datasets.load_digits``, enlarged; 360 of them are held back.

    Parameters
    ----------
    batch_size : int
        Images per batch.
    size : int
        Height and width after enlarging.
    seed : int
        Seed of the order and the shifts.
    shift : bool
        Whether training images are moved by up to a sixteenth of their size (half a pixel of the original) each way.
    """

    classes = 10

    def __init__(self, batch_size: int, size: int, seed: int, shift: bool) -> None:
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise DataError("The handwritten digits need scikit-learn, which is not installed: run `pip install "
                            "scikit-learn`, or give --data-dir, --rec-train or --benchmark.") from None
        digits = load_digits()
        images = self._enlarge(digits.images, size)
        labels = digits.target.astype("float32")
        order = np.random.RandomState(DIGITS_SPLIT_SEED).permutation(len(images))
        held_back, kept = order[:DIGITS_HELD_BACK], order[DIGITS_HELD_BACK:]
        if batch_size > len(kept):
            raise DataError(f"--batch-size {batch_size} was given, but there are {len(kept)} digits to train on; "
                            f"give {len(kept)} or less.")
        self._images, self._labels = images[kept], labels[kept]
        self._held_back_images, self._held_back_labels = images[held_back], labels[held_back]
        self._batch_size, self._seed = batch_size, seed
        self._reach = size // 16 if shift else 0
        self.num_batches = len(kept) // batch_size
        self.num_held_back = DIGITS_HELD_BACK

    @staticmethod
    def _enlarge(images: np.ndarray, size: int) -> np.ndarray:
        scaled = mx.nd.array(images[:, np.newaxis] / 16.0)
        if size != images.shape[-1]:
            scaled = mx.nd.contrib.BilinearResize2D(scaled, height=size, width=size)
        return (scaled.asnumpy() - 0.3) / 0.35

    def _shifted(self, images: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        reach, size = self._reach, images.shape[-1]
        padded = np.pad(images, ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="edge")
        corners = rng.randint(0, 2 * reach + 1, size=(len(images), 2))
        return np.stack([image[:, top:top + size, left:left + size]
                         for image, (top, left) in zip(padded, corners)])

    def training(self, epoch: int) -> Iterator[Batch]:
        rng = np.random.RandomState([self._seed, epoch])
        order = rng.permutation(len(self._images))
        for begin in range(0, self.num_batches * self._batch_size, self._batch_size):
            chosen = order[begin:begin + self._batch_size]
            yield mx.nd.array(self._shifted(self._images[chosen], rng)), mx.nd.array(self._labels[chosen])

    def validation(self) -> Iterator[Batch]:
        for begin in range(0, self.num_held_back, self._batch_size):
            end = begin + self._batch_size
            yield mx.nd.array(self._held_back_images[begin:end]), mx.nd.array(self._held_back_labels[begin:end])


class ImageFolder(Source):
    """Colour images in ``train/CLASS/`` and ``val/CLASS/`` of one folder.

    Parameters
    ----------
    folder : str
        The folder that holds ``train`` and ``val``.
    batch_size, size : int
        Images per batch; their height and width after resizing and cropping.
    seed : int
        Seed of the order and the augmentation.
    crop_ratio : float
        Size of the validation crop relative to the shorter side of the image.
    augment : bool
        Random crops and mirroring of training images.
    workers : int
        Threads that prepare images.
    """

    def __init__(self, folder: str, batch_size: int, size: int, seed: int, crop_ratio: float, augment: bool,
                 workers: int) -> None:
        train, val = (self._read(os.path.join(folder, part)) for part in ("train", "val"))
        if train.synsets != val.synsets:
            differing = sorted(set(train.synsets) ^ set(val.synsets))
            raise DataError(f"The class folders of train and val in {folder} differ ({', '.join(differing[:5])}); "
                            "each class needs a folder in both.")
        if batch_size > len(train):
            raise DataError(f"--batch-size {batch_size} was given, but {folder}/train holds {len(train)} images; "
                            f"give {len(train)} or less.")
        plain = self._transform(size, crop_ratio, augment=False)
        self._train = train.transform_first(self._transform(size, crop_ratio, augment=True) if augment else plain)
        self._val = val.transform_first(plain)
        self._batch_size, self._seed, self._workers = batch_size, seed, workers
        self.classes = len(train.synsets)
        self.num_batches = len(train) // batch_size
        self.num_held_back = len(val)

    @staticmethod
    def _read(folder: str) -> mx.gluon.data.vision.ImageFolderDataset:
        if not os.path.isdir(folder):
            raise DataError(f"There is no folder {folder}; --data-dir needs train/CLASS/ and val/CLASS/ in it "
                            "(or give --use-rec for RecordIO files).")
        dataset = mx.gluon.data.vision.ImageFolderDataset(folder)
        if len(dataset) == 0:
            raise DataError(f"No .jpg, .jpeg or .png image was found in {folder}/CLASS/; put some there.")
        return dataset

    @staticmethod
    def _transform(size: int, crop_ratio: float, augment: bool) -> mx.gluon.data.vision.transforms.Compose:
        transforms = mx.gluon.data.vision.transforms
        if augment:
            geometry = [transforms.RandomResizedCrop(size), transforms.RandomFlipLeftRight()]
        else:
            geometry = [transforms.Resize(int(round(size / crop_ratio)), keep_ratio=True), transforms.CenterCrop(size)]
        return transforms.Compose(geometry + [transforms.ToTensor(),
                                              transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)])

    def _loader(self, dataset, **kwargs) -> Iterator[Batch]:
        # Threads, not processes: MXNet's worker threads do not survive a fork reliably.
        loader = mx.gluon.data.DataLoader(dataset, self._batch_size, num_workers=self._workers, thread_pool=True,
                                          **kwargs)
        for images, labels in loader:
            yield images, labels.astype("float32")

    def training(self, epoch: int) -> Iterator[Batch]:
        random.seed(f"{self._seed} {epoch}")
        order = np.random.RandomState([self._seed, epoch]).permutation(len(self._train))
        return self._loader(self._train, sampler=_Order(order), last_batch="discard")

    def validation(self) -> Iterator[Batch]:
        return self._loader(self._val, shuffle=False, last_batch="keep")


class _Order(mx.gluon.data.Sampler):
    """A given order of the images."""

    def __init__(self, order: np.ndarray) -> None:
        self._order = order

    def __iter__(self) -> Iterator[int]:
        return iter(self._order.tolist())

    def __len__(self) -> int:
        return len(self._order)


class Records(Source):
    """RecordIO files of colour images, as ``im2rec`` makes them.

    Parameters
    ----------
    train, train_index : str
        The file to train on; its index, which may be missing (then images are shuffled in chunks only).
    val, val_index : str or None
        The same to validate on; None if there is nothing to validate on.
    classes : int
        Number of classes.
    batch_size, size, seed, crop_ratio, augment, workers
        As of :class:`ImageFolder`.
    """

    def __init__(self, train: str, train_index: str, val: Optional[str], val_index: Optional[str], classes: int,
                 batch_size: int, size: int, seed: int, crop_ratio: float, augment: bool, workers: int) -> None:
        for path in filter(None, (train, val)):
            if not os.path.isfile(path):
                raise DataError(f"There is no RecordIO file {path}; make it with MXNet's im2rec.py.")
        self._train, self._train_index, self._val, self._val_index = train, train_index, val, val_index
        self._seed, self._crop_ratio, self._augment = seed, crop_ratio, augment
        self._iterator_flags = {
            "data_shape": (3, size, size), "batch_size": batch_size, "preprocess_threads": max(1, workers),
            "mean_r": 255 * IMAGENET_MEAN[0], "mean_g": 255 * IMAGENET_MEAN[1], "mean_b": 255 * IMAGENET_MEAN[2],
            "std_r": 255 * IMAGENET_STD[0], "std_g": 255 * IMAGENET_STD[1], "std_b": 255 * IMAGENET_STD[2],
        }
        self._size = size
        self.classes = classes
        images = _count_lines(train_index)
        self.num_batches = None if images is None else -(-images // batch_size)
        self.num_held_back = 0 if val is None else _count_lines(val_index)

    def training(self, epoch: int) -> Iterator[Batch]:
        # A new iterator for each epoch, since its order follows from the seed that it was made with.
        seed = int(np.random.RandomState([self._seed, epoch]).randint(2 ** 31))
        flags = dict(self._iterator_flags, shuffle=True, seed=seed, seed_aug=seed, shuffle_chunk_seed=seed)
        if self._augment:
            flags.update(random_resized_crop=True, min_random_area=0.08, max_random_area=1.0,
                         min_aspect_ratio=3 / 4, max_aspect_ratio=4 / 3, rand_mirror=True)
        else:
            flags.update(resize=self._resized())
        if os.path.isfile(self._train_index):
            flags.update(path_imgidx=self._train_index)
        # The last batch is filled up with images from the start, so all batches are of the same size.
        for batch in mx.io.ImageRecordIter(path_imgrec=self._train, round_batch=True, **flags):
            yield batch.data[0], batch.label[0]

    def validation(self) -> Iterator[Batch]:
        if self._val is None:
            return
        for batch in mx.io.ImageRecordIter(path_imgrec=self._val, shuffle=False, round_batch=True,
                                           resize=self._resized(), **self._iterator_flags):
            count = batch.data[0].shape[0] - batch.pad
            yield batch.data[0][:count], batch.label[0][:count]

    def _resized(self) -> int:
        return int(round(self._size / self._crop_ratio))


def _count_lines(path: Optional[str]) -> Optional[int]:
    if path is None or not os.path.isfile(path):
        return None
    with open(path, encoding="ascii") as lines:
        return sum(1 for line in lines if line.strip())


class RandomImages(Source):
    """One batch of random colour images with random labels, again and again; nothing to validate on."""

    num_held_back = 0

    def __init__(self, batch_size: int, size: int, classes: int, seed: int, num_batches: int) -> None:
        rng = np.random.RandomState(seed)
        self._batch = (mx.nd.array(rng.standard_normal((batch_size, 3, size, size)).astype("float32")),
                       mx.nd.array(rng.randint(0, classes, batch_size)))
        self.classes = classes
        self.num_batches = num_batches

    def training(self, epoch: int) -> Iterator[Batch]:
        for _ in range(self.num_batches):
            yield self._batch

    def validation(self) -> Iterator[Batch]:
        return iter(())


class FirstBatches(Source):
    """Another source whose epochs end after `limit` batches."""

    def __init__(self, source: Source, limit: int) -> None:
        self._source = source
        self.classes, self.num_held_back = source.classes, source.num_held_back
        self.num_batches = limit if source.num_batches is None else min(limit, source.num_batches)

    def training(self, epoch: int) -> Iterator[Batch]:
        for _, batch in zip(range(self.num_batches), self._source.training(epoch)):
            yield batch

    def validation(self) -> Iterator[Batch]:
        return self._source.validation()


def open_source(args: argparse.Namespace) -> Source:
    """The source that the flags name.

    Raises
    ------
    DataError
        If files are missing or do not fit the flags.
    """
    augment = args.augmentation == "standard"
    if args.benchmark:
        return RandomImages(args.batch_size, args.input_size, args.num_classes or 1000, args.seed,
                            args.batches_per_epoch or 50)
    if args.rec_train or args.use_rec:
        source: Source = _open_records(args, augment)
    elif args.data_dir:
        source = ImageFolder(args.data_dir, args.batch_size, args.input_size, args.seed, args.crop_ratio, augment,
                             args.num_data_workers)
    else:
        source = Digits(args.batch_size, args.input_size, args.seed, augment)
    if args.num_classes is not None and args.num_classes < source.classes:
        raise DataError(f"--num-classes {args.num_classes} was given, but the data have {source.classes} classes; "
                        f"give {source.classes} or more, or drop the flag.")
    source.classes = args.num_classes or source.classes
    return source if args.batches_per_epoch is None else FirstBatches(source, args.batches_per_epoch)


def _open_records(args: argparse.Namespace, augment: bool) -> Records:
    train, val = args.rec_train, args.rec_val
    if args.use_rec:
        train, val = (os.path.join(args.data_dir, name) for name in ("train.rec", "val.rec"))
    train_index = args.rec_train_idx or os.path.splitext(train)[0] + ".idx"
    val_index = args.rec_val_idx or (os.path.splitext(val)[0] + ".idx" if val else None)
    return Records(train, train_index, val, val_index, args.num_classes or 1000, args.batch_size, args.input_size,
                   args.seed, args.crop_ratio, augment, args.num_data_workers)
