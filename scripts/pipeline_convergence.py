"""Epochs that a small VGG needs on handwritten digits: synchronous, with weight stashing, and without.

The last is no schedule of the trainer's: each stage's weights are written in place, so that a backward pass meets
newer weights than its forward pass used. It is there for contrast.
"""
from __future__ import annotations

import argparse
import os
import statistics
import sys
from typing import Any, Dict, List, Optional

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MXNET_CPU_TEMP_COPY", "64")

import mxnet as mx  # noqa: E402
from mxnet import gluon  # noqa: E402
from mxnet.ndarray import NDArray  # noqa: E402
from soybean_mx.files import write_json  # noqa: E402
from soybean_mx.pipeline import PipelineTrainer  # noqa: E402
from soybean_mx.pipeline.weight_versions import Versions  # noqa: E402
from tqdm import tqdm  # noqa: E402

import models  # noqa: E402
from datasets import Digits  # noqa: E402

IMAGE_SIZE = 32
WITHOUT = "1f1b without stashing"
KINDS = ("flush", "1f1b", "1f1b-vertical-sync", WITHOUT)


class OneVersion(Versions):
    """A parameter of which only the newest version is kept, whatever is under way."""

    def value(self, number: int) -> NDArray:
        """The newest version, in place of any."""
        return super().value(self.newest)

    def take(self, number: int) -> NDArray:
        """The newest version, in place of any."""
        return super().value(self.newest)

    def give_back(self, number: int) -> None:
        """Nothing is counted."""


class WithoutStashing(PipelineTrainer):
    """1F1B in which a backward pass uses the newest weights, not those of its forward pass."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, recoverable=False, **options)  # which keeps no versions besides

    def _build(self, data, label) -> None:
        super()._build(data, label)
        for worker in self._workers.values():
            worker.weights = {name: OneVersion(versions.value(0)) for name, versions in worker.weights.items()}


class Run:
    """One training run.

    Parameters
    ----------
    kind : str
        One of KINDS.
    args : argparse.Namespace
        The flags.
    seed : int
        Seed of the initial weights, the order of the digits, and dropout.
    """

    def __init__(self, kind: str, args: argparse.Namespace, seed: int):
        mx.random.seed(seed)
        self.source = Digits(args.batch_size, IMAGE_SIZE, seed, shift=True)
        self._net = models.create(args.model, self.source.classes, args.width)
        if not args.dropout:
            self._net.apply(_without_dropout)
        self._net.initialize(mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=1.5), ctx=mx.cpu(0))
        self._net.hybridize()
        trainer = WithoutStashing if kind == WITHOUT else PipelineTrainer
        schedule = "1f1b" if kind == WITHOUT else kind
        # A batch is one microbatch everywhere, so that BatchNorm has the same statistics.
        self._trainer = trainer(self._net, gluon.loss.SoftmaxCrossEntropyLoss(), "sgd",
                                {"learning_rate": args.lr, "momentum": args.momentum, "wd": 5e-4},
                                f"cpu:{args.stages}", schedule, microbatches=1)
        self._evaluate_every = max(1, self.source.num_batches // args.evaluations)

    def accuracies(self, epochs: int, bar: tqdm) -> Dict[float, float]:
        """The accuracy on the held-back digits, by the number of epochs."""
        result, done = {}, 0
        for epoch in range(epochs):
            for images, labels in self.source.training(epoch):
                self._trainer.step(images, labels)
                done += 1
                if done % self._evaluate_every == 0:
                    result[done / self.source.num_batches] = self._accuracy()
                bar.update()
        return result

    def _accuracy(self) -> float:
        self._trainer.synchronize()
        metric = mx.metric.Accuracy()
        for images, labels in self.source.validation():
            metric.update([labels], [self._net(images)])
        return metric.get()[1]


def _without_dropout(block: gluon.Block) -> None:
    if isinstance(block, gluon.nn.Dropout):
        block._rate = 0


def epochs_to(accuracies: Dict[float, float], target: float) -> Optional[float]:
    """When an accuracy is reached; None if it never is."""
    return next((epochs for epochs, accuracy in accuracies.items() if accuracy >= target), None)


def parse(argv: Optional[List[str]]) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", default="vgg11_bn", help="a model of train_vgg.py")
    parser.add_argument("--width", type=float, default=0.25, help="factor on the hidden layers")
    parser.add_argument("--stages", type=int, default=4, help="stages, one CPU context each")
    parser.add_argument("--dropout", action="store_true", help="keep VGG's dropout, with which so narrow a network "
                        "learns slowly")
    parser.add_argument("--batch-size", type=int, default=32, help="images of a step")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate")
    parser.add_argument("--momentum", type=float, default=0.9, help="momentum")
    parser.add_argument("--epochs", type=int, default=7, help="epochs of each run")
    parser.add_argument("--evaluations", type=int, default=4, help="in each epoch; each drains the pipeline")
    parser.add_argument("--target", type=float, default=0.97, help="accuracy on the held-back digits to be reached")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kind")
    parser.add_argument("--kinds", default=list(KINDS), choices=KINDS, nargs="+", help="what is compared")
    parser.add_argument("--json", default=None, help="file to write the result to")
    return parser.parse_args(argv)


def main(argv: Optional[List[str]] = None) -> Dict[str, List[Optional[float]]]:
    """Train, and print the epochs of each kind."""
    args = parse(argv)
    reached: Dict[str, List[Optional[float]]] = {kind: [] for kind in args.kinds}
    best: Dict[str, List[float]] = {kind: [] for kind in args.kinds}
    for kind in args.kinds:
        for seed in range(args.seeds):
            run = Run(kind, args, seed)
            with tqdm(total=args.epochs * run.source.num_batches, desc=f"{kind}, seed {seed}", unit="batch",
                      mininterval=0.2 if sys.stderr.isatty() else 10.0) as bar:
                accuracies = run.accuracies(args.epochs, bar)
            reached[kind].append(epochs_to(accuracies, args.target))
            best[kind].append(max(accuracies.values(), default=0.0))
    print(f"{'':24}epochs to {100 * args.target:g} %{'':14}median  best accuracy")
    for kind in args.kinds:
        each = ", ".join("never" if value is None else f"{value:.2f}" for value in reached[kind])
        median = statistics.median(args.epochs + 1 if value is None else value for value in reached[kind])
        text = "never" if median > args.epochs else f"{median:.2f}"
        print(f"{kind:24}{each:28}{text:8}{100 * statistics.median(best[kind]):.1f} %")
    if args.json:
        write_json(args.json, {"arguments": vars(args), "epochs": reached, "best": best})
    return reached


if __name__ == "__main__":
    main()
