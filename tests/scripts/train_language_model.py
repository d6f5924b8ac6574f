"""Trains small networks of scripts/language_models.py and dumps what parity is about.

    python -m tests.scripts.train_language_model OUT_FOLDER NAME [NAME ...]

A NAME is ``model`` for plain MXNet, or ``model-devices-strategy``, as in ``gpt2-4-optimal``. NAME.npz gets the outputs
of every step, the gradients of the first, and the parameters after the last.
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Callable, Dict, List, Sequence, Tuple

import mxnet as mx
import numpy as np

from tests.models import NamedInit
from tests.scripts.script_modules import load

STEPS = 3
BATCH, LENGTH, VOCABULARY = 6, 5, 23

models = load("language_models")

SMALL = {"vocabulary": VOCABULARY, "dropout": 0.0}
ATTENTIVE = {"units": 16, "heads": 4, "max_length": 9, **SMALL}

# Builder, the inputs, and the type. On CPUs MXNet's interleaved operators have float32 only; cells begin with states of
# float32.
MODELS: Dict[str, Tuple[Callable[[], mx.gluon.HybridBlock], Sequence[str], str]] = {
    "bert": (lambda: models.bert_base(layers=2, hidden=24, **ATTENTIVE), ("tokens",), "float64"),
    "bert_masked": (lambda: models.bert_base(layers=1, hidden=24, **ATTENTIVE), ("tokens", "segments", "lengths"),
                    "float64"),
    "gpt2": (lambda: models.gpt2_small(layers=2, **ATTENTIVE), ("tokens",), "float64"),
    "transformer": (lambda: models.transformer_encoder_decoder(1, 1, hidden=24, **ATTENTIVE), ("tokens", "targets"),
                    "float32"),
    "lstm": (lambda: models.lstm_language_model(units=12, length=LENGTH, **SMALL), ("tokens",), "float32"),
    "fused_lstm": (lambda: models.fused_lstm_language_model(units=12, **SMALL), ("tokens",), "float32"),
}


def draw(kind: str, rs: np.random.RandomState, dtype: str) -> mx.nd.NDArray:
    """Draw an input of a network."""
    if kind == "lengths":
        return mx.nd.array(rs.randint(1, LENGTH + 1, BATCH), dtype=dtype)
    if kind == "targets":
        return mx.nd.array(rs.randint(0, VOCABULARY, (BATCH, LENGTH + 2)))
    return mx.nd.array(rs.randint(0, 2 if kind == "segments" else VOCABULARY, (BATCH, LENGTH)))


def train(name: str) -> Dict[str, np.ndarray]:
    """Train and return what is compared, by name."""
    model, *tiled = name.split("-")
    build, kinds, dtype = MODELS[model]
    with mx.name.NameManager():  # names, which seed the parameters, without a count of the networks before
        net = build()
    net.initialize(NamedInit())
    net.cast(dtype)
    if tiled:
        net.hybridize(backend="soybean_mx", devices=f"cpu:{tiled[0]}", strategy=tiled[1])
    else:
        net.hybridize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
    loss_function = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    rs = np.random.RandomState(3)
    parameters = net._collect_params_with_prefix()
    found: Dict[str, np.ndarray] = {}
    for step in range(STEPS):
        inputs = [draw(kind, rs, dtype) for kind in kinds]
        with mx.autograd.record():
            outputs = net(*inputs)
            outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
            labels = [mx.nd.array(rs.randint(0, out.shape[-1], out.shape[:-1])) for out in outputs]
            loss = sum(loss_function(out, label).sum() for out, label in zip(outputs, labels))
        loss.backward()
        found.update({f"output {step} {i}": out.asnumpy() for i, out in enumerate(outputs)})
        if step == 0:
            trained = {n: p for n, p in parameters.items() if p.grad_req != "null"}
            found.update({f"gradient of {n}": p.grad().asnumpy() for n, p in trained.items()})
            spread = {d.context for p in trained.values() for d in p.list_data()}
            if len(spread) != (int(tiled[0]) if tiled else 1):
                raise AssertionError(f"{name}: parameters are on {spread}")
        trainer.step(BATCH * LENGTH)
    found.update({f"parameter {n}": p.data().asnumpy() for n, p in parameters.items()})
    return found


def main(arguments: List[str]) -> None:
    """Train every network named on the command line."""
    folder, names = Path(arguments[0]), arguments[1:]
    if any("-" in name for name in names):
        import soybean_mx.gluon_front

        soybean_mx.gluon_front.install()
    for name in names:
        print(f"run: {name}", file=sys.stderr, flush=True)
        np.savez(folder / f"{name}.npz", **train(name))


if __name__ == "__main__":
    main(sys.argv[1:])
