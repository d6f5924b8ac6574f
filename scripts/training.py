"""Training and validation of an image classifier: a single-device Gluon program.

Nothing here knows of tiling. The network lives on one context, and the loop is forward, loss, backward,
``trainer.step``. Only in a pipeline these are one call, :meth:`PipelinedClassifier.step`.
"""
from __future__ import annotations

import argparse
import inspect
import logging
import math
import os
import sys
import time
from collections import deque
from typing import Deque, Dict, Optional, Tuple

import mxnet as mx
from mxnet import autograd, gluon
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

import checkpoints
import models
from datasets import DataError, open_source
from learning_rates import LearningRate

__all__ = ["DataError", "SettingError", "run"]


class SettingError(ValueError):
    """A flag's value that cannot be used; the message is one sentence for the user."""


class RunningMeans:
    """Mean loss and accuracy of the batches seen, without waiting for the batch that has just been started.

    Reading a result makes Python wait until it has been computed. Reading always the last but one lets MXNet start a
    batch while the one before is still being computed.
    """

    def __init__(self) -> None:
        self._pending: Deque[Tuple[mx.nd.NDArray, Optional[mx.nd.NDArray], int]] = deque()
        self._loss_sum, self._correct, self._count = 0.0, 0.0, 0

    def add(self, loss: mx.nd.NDArray, scores: Optional[mx.nd.NDArray], label: mx.nd.NDArray) -> None:
        """Take in a batch: `loss` ``(batch,)``, `scores` ``(batch, classes)`` if known, `label` ``(batch,)``."""
        correct = None
        if scores is not None:
            correct = (scores.argmax(axis=1).astype("float32") == label.astype("float32")).sum()
        self._pending.append((loss.astype("float32").sum(), correct, label.shape[0]))
        if len(self._pending) > 1:
            self._read()

    def _read(self) -> None:
        loss_sum, correct, count = self._pending.popleft()
        self._loss_sum += loss_sum.asscalar()
        self._correct += math.nan if correct is None else correct.asscalar()
        self._count += count

    def finish(self) -> None:
        """Wait for all batches."""
        while self._pending:
            self._read()

    @property
    def count(self) -> int:
        """Number of images that have been read."""
        return self._count

    @property
    def loss(self) -> float:
        """Mean loss of an image so far."""
        return self._loss_sum / max(1, self._count)

    @property
    def accuracy(self) -> float:
        """Fraction of the images so far of which the class was right; nan where scores were not known."""
        return self._correct / max(1, self._count)


class Classifier:
    """A network with its trainer and data.

    Parameters
    ----------
    args : argparse.Namespace
        The flags of ``classification.py``.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.ctx = mx.gpu(0) if mx.context.num_gpus() > 0 and not _is_cpu(args.devices) else mx.cpu(0)
        if args.dtype == "float16" and self.ctx.device_type == "cpu":
            raise SettingError("--dtype float16 was given, but on CPUs MXNet has no fully connected layer in float16; "
                               "give float32 or float64, or train on GPUs.")
        self.source = open_source(args)
        smallest = models.smallest_image(args.model)
        if args.input_size < smallest:
            raise SettingError(f"--input-size {args.input_size} was given, but {args.model} needs images of at least "
                               f"{smallest}; give that or more.")
        mx.random.seed(args.seed)
        self.net = self._make_net()
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=args.label_smoothing == 0)
        self.trainer = self._make_trainer()
        self.learning_rate = LearningRate(args.lr_mode, args.lr, args.num_epochs, args.warmup_epochs, args.warmup_lr,
                                          args.lr_decay, args.lr_decay_epoch)
        self._load()

    def _make_net(self) -> gluon.HybridBlock:
        args = self.args
        try:
            net = models.create(args.model, self.source.classes, args.width)
        except ValueError as error:
            raise SettingError(str(error)) from None
        net.initialize(mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=1.5), ctx=self.ctx)
        net.cast(args.dtype)
        if args.mode == "hybrid":
            net.hybridize(static_alloc=True, static_shape=True)
        if args.no_wd:
            for parameter in net.collect_params(".*beta|.*gamma|.*bias").values():
                parameter.wd_mult = 0.0
        return net

    def _make_trainer(self) -> gluon.Trainer:
        return gluon.Trainer(self.net.collect_params(), self.args.optimizer, optimizer_settings(self.args))

    def _load(self) -> None:
        args = self.args
        for path in filter(None, (args.resume_params, args.resume_states)):
            if not os.path.isfile(path):
                raise SettingError(f"There is no file {path} to resume from; give one that a run has saved.")
        if args.resume_params:
            try:
                self.net.load_parameters(args.resume_params, ctx=self.ctx)
            except (AssertionError, ValueError, mx.MXNetError) as error:
                # MXNet's message may hold a stack trace after its first lines.
                raise SettingError(f"{args.resume_params} does not fit --model {args.model} at --width {args.width:g}; "
                                   f"give the flags of the run that saved it: {str(error)[:300]}") from None
        if args.resume_states:
            self.trainer.load_states(args.resume_states)

    def step(self, images: mx.nd.NDArray, labels: mx.nd.NDArray) -> Tuple[mx.nd.NDArray, mx.nd.NDArray]:
        """One update of the parameters; returns the loss of each image and the scores."""
        target = self._smoothed(labels) if self.args.label_smoothing else labels
        with autograd.record():
            scores = self.net(images)
            loss = self.loss(scores, target)
        loss.backward()
        self.trainer.step(images.shape[0])
        return loss, scores

    def _smoothed(self, labels: mx.nd.NDArray) -> mx.nd.NDArray:
        classes, mass = self.source.classes, self.args.label_smoothing
        return labels.one_hot(classes, on_value=1 - mass + mass / classes, off_value=mass / classes,
                              dtype=self.args.dtype)

    def train_epoch(self, epoch: int) -> RunningMeans:
        """Train on all batches of `epoch` (counted from 0), with a progress bar and the log."""
        args, total = self.args, self.source.num_batches
        mx.random.seed(args.seed + 1 + epoch)  # a resumed run draws the same dropout masks
        means, log = RunningMeans(), SpeedLog(args.log_interval)
        with _progress_bar(total, f"Epoch {epoch + 1}/{args.num_epochs}") as bar:
            for batch, (images, labels) in enumerate(self.source.training(epoch)):
                rate = self.learning_rate.at(epoch + (batch / total if total else 0))
                self.trainer.set_learning_rate(rate)
                images, labels = images.as_in_context(self.ctx).astype(args.dtype), labels.as_in_context(self.ctx)
                loss, scores = self.step(images, labels)
                means.add(loss, scores, labels)
                if means.count:
                    bar.set_postfix(loss=f"{means.loss:.4f}", accuracy=f"{means.accuracy:.4f}", refresh=False)
                bar.update()
                log.batch_done(epoch, batch, images.shape[0], means, rate)
            means.finish()
            bar.set_postfix(loss=f"{means.loss:.4f}", accuracy=f"{means.accuracy:.4f}")
        return means

    def validate(self) -> Optional[Dict[str, float]]:
        """Top-1 and, with more than 10 classes, top-5 accuracy on the held-back images; None if there are none."""
        metrics = {"accuracy": mx.metric.Accuracy()}
        if self.source.classes > 10:
            metrics["top5-accuracy"] = mx.metric.TopKAccuracy(5)
        for images, labels in self.source.validation():
            scores = self.net(images.as_in_context(self.ctx).astype(self.args.dtype))
            for metric in metrics.values():
                metric.update([labels], [scores.astype("float32")])
        if metrics["accuracy"].num_inst == 0:
            return None
        return {name: metric.get()[1] for name, metric in metrics.items()}


class PipelinedClassifier(Classifier):
    """A classifier whose stages are on devices of their own (``--parallel pipeline``)."""

    def _make_trainer(self):
        from soybean_mx.devices import DeviceError
        from soybean_mx.pipeline import PipelineTrainer
        from soybean_mx.pipeline.schedule import ScheduleError

        args = self.args
        try:
            return PipelineTrainer(self.net, self.loss, args.optimizer, optimizer_settings(args), args.devices,
                                   args.schedule, microbatches=args.microbatches)
        except (ScheduleError, DeviceError) as error:
            raise SettingError(str(error)) from None

    def step(self, images: mx.nd.NDArray, labels: mx.nd.NDArray) -> Tuple[mx.nd.NDArray, None]:
        """Queue a batch; returns the loss of each image. The scores stay in the pipeline."""
        target = self._smoothed(labels) if self.args.label_smoothing else labels
        return self.trainer.step(images, target), None

    def validate(self) -> Optional[Dict[str, float]]:
        """As of a classifier, when all batches so far are in the parameters."""
        self.trainer.synchronize()
        return super().validate()


class SpeedLog:
    """Writes the line of gluoncv's log every `interval` batches."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._since, self._images = time.time(), 0

    def batch_done(self, epoch: int, batch: int, images: int, means: RunningMeans, rate: float) -> None:
        """Count a batch of `images` images."""
        self._images += images
        if (batch + 1) % self._interval:
            return
        now = time.time()
        logging.info("Epoch[%d] Batch [%d]\tSpeed: %f samples/sec\taccuracy=%f\tlr=%f", epoch, batch + 1,
                     self._images / max(now - self._since, 1e-9), means.accuracy, rate)
        self._since, self._images = now, 0


def _progress_bar(total: Optional[int], title: str) -> tqdm:
    # Where the bar cannot move in place, in a file or a pipe, it is written seldom.
    return tqdm(total=total, desc=title, unit="batch", mininterval=0.2 if sys.stderr.isatty() else 10.0)


def _is_cpu(devices: Optional[str]) -> bool:
    return devices is not None and devices.strip().startswith("cpu")


def optimizer_settings(args: argparse.Namespace) -> Dict[str, object]:
    """Keyword arguments of the optimizer ``args.optimizer``.

    Raises
    ------
    SettingError
        If MXNet has no such optimizer, or it has no momentum and ``--momentum`` was given.
    """
    registry = mx.optimizer.Optimizer.opt_registry
    if args.optimizer.lower() not in registry:
        raise SettingError(f"--optimizer {args.optimizer} is unknown to MXNet; give one of "
                           f"{', '.join(sorted(registry))}.")
    settings: Dict[str, object] = {"learning_rate": args.lr, "wd": args.wd}
    if "momentum" in inspect.signature(registry[args.optimizer.lower()].__init__).parameters:
        settings["momentum"] = 0.9 if args.momentum is None else args.momentum
    elif args.momentum is not None:
        raise SettingError(f"--momentum {args.momentum} was given, but --optimizer {args.optimizer} has none; "
                           "drop --momentum, or use sgd or nag.")
    if args.dtype == "float16":
        settings["multi_precision"] = True
    return settings


def configure_logging(args: argparse.Namespace) -> None:
    """Log to the terminal and to a file."""
    path = args.logging_file or os.path.join(args.save_dir, "train.log")
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True,
                        handlers=[logging.StreamHandler(), logging.FileHandler(path)])
    logging.info("%s", args)


def run(args: argparse.Namespace) -> None:
    """Train and validate as the flags say.

    Raises
    ------
    DataError, SettingError
        Before anything is trained, if a flag cannot be followed.
    """
    classifier = PipelinedClassifier(args) if args.parallel == "pipeline" else Classifier(args)
    configure_logging(args)
    begin, scores = time.time(), None
    with logging_redirect_tqdm():
        for epoch in range(args.resume_epoch, args.num_epochs):
            scores = train_and_validate(classifier, epoch)
    if scores is not None:
        logging.info("Accuracy on %s held-back images: %.2f %% after %d epochs (%.0f s)",
                     classifier.source.num_held_back or "the", 100 * scores["accuracy"], args.num_epochs,
                     time.time() - begin)


def train_and_validate(classifier: Classifier, epoch: int) -> Optional[Dict[str, float]]:
    """One epoch with its validation and checkpoint; returns what :meth:`Classifier.validate` does."""
    args, begin = classifier.args, time.time()
    means = classifier.train_epoch(epoch)
    seconds = time.time() - begin
    logging.info("[Epoch %d] training: accuracy=%f loss=%f", epoch, means.accuracy, means.loss)
    logging.info("[Epoch %d] speed: %.1f samples/sec\ttime cost: %f", epoch, means.count / seconds, seconds)
    scores = classifier.validate()
    if scores is not None:
        logging.info("[Epoch %d] validation: %s", epoch, " ".join(f"{k}={v:f}" for k, v in scores.items()))
    done = epoch + 1
    if args.save_frequency > 0 and (done % args.save_frequency == 0 or done == args.num_epochs):
        paths = checkpoints.save(args.save_dir, args.model, done, classifier.net, classifier.trainer)
        logging.info("[Epoch %d] saved %s and %s", epoch, *paths)
    return scores
