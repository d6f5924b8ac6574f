"""Trains one of tests/models.py for a few steps and dumps every number that parity is about.

    python -m tests.parity.train OUT_FOLDER NAME [NAME ...]

A NAME is ``model-optimizer-dtype`` for plain MXNet, or ``model-optimizer-dtype-devices-strategy`` for the tiled path,
as in ``mlp-sgd-float64-8-optimal``; several share this process. NAME.npz gets the outputs of every step, the gradients
of the first step, the gradient of the data, and the parameters and moving statistics after the last.
"""
from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

import mxnet as mx
import numpy as np

from tests.models import MODELS, NamedInit, batches

STEPS = 10
BATCH = 10  # few numbers of devices divide it

# Adam's step is near lr * sign(gradient) where a gradient is far above epsilon, and a gradient that is 0 in exact
# arithmetic (of a bias before BatchNorm) is made of rounding errors. With MXNet's epsilon of 1e-8 those errors move
# parameters in float32, so that one device does not agree with itself under another order of summation. In float32
# epsilon is therefore 1e-3; in float64 the errors are far below 1e-8 and Adam runs as it comes.
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.002, "momentum": 0.9, "wd": 1e-3},
    "adam": {"learning_rate": 1e-4, "wd": 1e-3},
}
FLOAT32_ADAM_EPSILON = 1e-3


@dataclass(frozen=True)
class Run:
    """One training run; `devices` is None for plain MXNet."""

    model: str
    optimizer: str
    dtype: str
    devices: Optional[int] = None
    strategy: Optional[str] = None

    @classmethod
    def parse(cls, name: str) -> "Run":
        """Return the run of a name."""
        parts = name.split("-")
        if len(parts) == 3:
            return cls(*parts)
        return cls(*parts[:3], devices=int(parts[3]), strategy=parts[4])

    @property
    def name(self) -> str:
        """The name that `parse` reads."""
        tail = [] if self.devices is None else [str(self.devices), str(self.strategy)]
        return "-".join([self.model, self.optimizer, self.dtype, *tail])

    @property
    def plain(self) -> "Run":
        """The run of plain MXNet that this one is compared with."""
        return Run(self.model, self.optimizer, self.dtype)

    @property
    def optimizer_arguments(self) -> Dict[str, float]:
        """The arguments of the optimizer."""
        arguments = dict(OPTIMIZERS[self.optimizer])
        if self.optimizer == "adam" and self.dtype == "float32":
            arguments["epsilon"] = FLOAT32_ADAM_EPSILON
        return arguments


def hybridize(net: mx.gluon.HybridBlock, run: Run) -> None:
    """Hybridize as a script would, tiled or plain."""
    if run.devices is None:
        net.hybridize()
    else:
        net.hybridize(backend="soybean_mx", devices=f"cpu:{run.devices}", strategy=run.strategy)


def train(run: Run, steps: int = STEPS) -> Dict[str, np.ndarray]:
    """Train and return what parity compares, by name."""
    net = MODELS[run.model][0]()
    net.initialize(NamedInit())
    net.cast(run.dtype)
    hybridize(net, run)
    trainer = mx.gluon.Trainer(net.collect_params(), run.optimizer, run.optimizer_arguments)
    loss_function = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    found: Dict[str, np.ndarray] = {}
    for step, (data, label) in enumerate(batches(run.model, BATCH, steps, run.dtype)):
        if step == 0:
            data.attach_grad()
        with mx.autograd.record():
            out = net(data)
            loss = loss_function(out, label)
        loss.backward()
        found[f"output {step}"] = out.asnumpy()
        if step == 0:
            found["gradient of data"] = data.grad.asnumpy()
            found.update(_gradients(net))
            _check_tiled(net, run)
        trainer.step(data.shape[0])
    found.update({f"parameter {n}": p.data().asnumpy() for n, p in net.collect_params().items()})
    found["evaluation"] = net(data).asnumpy()
    return found


def _gradients(net: mx.gluon.HybridBlock) -> Dict[str, np.ndarray]:
    trained = {n: p for n, p in net.collect_params().items() if p.grad_req != "null"}
    return {f"gradient of {n}": p.grad().asnumpy() for n, p in trained.items()}


def _check_tiled(net: mx.gluon.HybridBlock, run: Run) -> None:
    """Raise when a run that is to be tiled runs on one device, where parity would be no surprise."""
    spread = {d.context for p in net.collect_params().values() for d in p.list_data()}
    if run.devices is None:
        if spread != {mx.cpu(0)}:
            raise AssertionError(f"plain MXNet holds parameters on {spread}")
    elif len(spread) != run.devices:
        raise AssertionError(f"{run.name}: parameters are on {len(spread)} contexts, not on {run.devices}: {spread}")


def main(arguments: List[str]) -> None:
    """Train every run named on the command line."""
    folder, runs = Path(arguments[0]), [Run.parse(name) for name in arguments[1:]]
    if any(run.devices for run in runs):
        import soybean_mx.gluon_front

        soybean_mx.gluon_front.install()
    for run in runs:
        print(f"run: {run.name}", file=sys.stderr, flush=True)
        start = time.time()
        found = train(run)
        np.savez(folder / f"{run.name}.npz", **found)
        print(f"{run.name} {time.time() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
