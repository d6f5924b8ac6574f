"""Networks trained in a pipeline and on one device; prints the largest difference of a parameter, relative.

Run in a child process: ``python -m tests.pipeline.parity NETWORK SCHEDULE STAGES [MICROBATCHES] [REPLICAS]``.
"""
from __future__ import annotations

import sys

import soybean_mx  # noqa: F401  (before MXNet: it sets what MXNet reads at its start)

import mxnet as mx  # isort: skip
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn
from mxnet.gluon.model_zoo import vision

from soybean_mx.pipeline import PipelineTrainer

BATCH, STEPS = 8, 10
# BatchNorm over a few values makes rounding errors of single precision large within some steps.
TYPES = {"resnet18_v1": "float64"}


class Transformer(nn.HybridBlock):
    """Tokens ``(batch, 6)`` to scores ``(batch, 11)``; the decoder shares the embedding's weight."""

    def __init__(self, layers=2, units=16, heads=2, words=11):
        super().__init__()
        self._heads, self._words = heads, words
        with self.name_scope():
            self.embedding = self.params.get("embedding", shape=(words, units))
            self.layers = []
            for index in range(layers):
                parts = [nn.Dense(3 * units, flatten=False), nn.Dense(units, flatten=False), nn.LayerNorm(),
                         nn.Dense(4 * units, flatten=False, activation="relu"), nn.Dense(units, flatten=False),
                         nn.LayerNorm()]
                for part, block in enumerate(parts):
                    setattr(self, f"part{index}_{part}", block)
                self.layers.append(parts)

    def hybrid_forward(self, F, x, embedding):
        units = embedding.shape[1] if hasattr(embedding, "shape") else 16
        x = F.Embedding(x, embedding, input_dim=self._words, output_dim=units)
        for mixed, joined, norm, wide, narrow, norm2 in self.layers:
            y = F.transpose(mixed(x), (1, 0, 2))
            scores = F.contrib.interleaved_matmul_selfatt_qk(y, heads=self._heads)
            y = F.contrib.interleaved_matmul_selfatt_valatt(y, F.softmax(scores), heads=self._heads)
            x = norm(x + joined(F.transpose(y, (1, 0, 2))))
            x = norm2(x + narrow(wide(x)))
        return F.FullyConnected(x.mean(axis=1), embedding, no_bias=True, num_hidden=self._words)


def network(name):
    """A network, initialised always alike, without dropout, and the shape of a sample of its input."""
    mx.random.seed(1)
    np.random.seed(1)
    if name == "transformer":
        net, shape = Transformer(), (6,)
    elif name == "mlp":
        net, shape = nn.HybridSequential(), (5,)
        net.add(*(nn.Dense(units, activation="tanh") for units in (7, 6, 5, 6, 7)), nn.Dense(10))
    elif name == "alexnet":
        net, shape = vision.alexnet(classes=10), (3, 67, 67)
    else:
        net, shape = vision.get_model(name, classes=10), (3, 64, 64) if name.startswith("resnet") else (3, 32, 32)
    net.apply(lambda block: setattr(block, "_rate", 0) if isinstance(block, nn.Dropout) else None)
    net.initialize(mx.init.Xavier())
    net.cast(TYPES.get(name, "float32"))
    return net, shape


def batches(shape, count=STEPS, batch=BATCH, words=11, dtype="float32"):
    """The same batches every time."""
    random = np.random.RandomState(3)
    for _ in range(count):
        data = random.randint(0, words, (batch, *shape)) if len(shape) == 1 and shape[0] == 6 else \
            random.normal(size=(batch, *shape))
        yield mx.nd.array(data, dtype=dtype), mx.nd.array(random.randint(0, 10, (batch,)), dtype=dtype)


def on_one_device(name, microbatches, optimizer, settings, sizes):
    """The parameters after training on one device, microbatch by microbatch."""
    net, shape = network(name)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), optimizer, settings)
    net.hybridize()
    net(next(batches(shape, dtype=TYPES.get(name, "float32")))[0])
    parameters = net.collect_params()
    parameters.setattr("grad_req", "add")
    parameters.zero_grad()
    losses = []
    for (data, label), size in zip(batches(shape, dtype=TYPES.get(name, "float32")), sizes):
        data, label = data[:size], label[:size]
        parts = min(microbatches, size)
        ends = [size * (part + 1) // parts for part in range(parts)]
        found = []
        for start, end in zip([0, *ends], ends):
            with autograd.record():
                value = loss(net(data[start:end]), label[start:end])
            value.backward()
            found.append(value.asnumpy())
        losses.append(np.concatenate(found))
        trainer.step(size)
        parameters.zero_grad()
    return [parameter.data().asnumpy() for parameter in parameters.values()], losses


def difference(name, schedule, stages, microbatches, replicas=None, optimizer="sgd", sizes=(BATCH,) * STEPS):
    """The largest relative difference of parameters and of losses."""
    settings = {"learning_rate": 0.01, "wd": 1e-3, **({"momentum": 0.9} if optimizer == "sgd" else {})}
    expected, losses = on_one_device(name, microbatches, optimizer, settings, sizes)
    net, shape = network(name)
    devices = sum(replicas) if replicas else stages // 2 if schedule == "interleaved" else stages
    trainer = PipelineTrainer(net, gluon.loss.SoftmaxCrossEntropyLoss(), optimizer, settings, f"cpu:{devices}",
                              schedule, stages, replicas, microbatches)
    given = zip(batches(shape, dtype=TYPES.get(name, "float32")), sizes)
    got = [trainer.step(data[:size], label[:size]) for (data, label), size in given]
    trainer.synchronize()
    values = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
    pairs = [*zip(values, expected), *zip([value.asnumpy() for value in got], losses)]
    print("versions", trainer.versions_alive(), "in flight", trainer.most_in_flight())
    return max(np.abs(a - b).max() / max(1e-6, np.abs(b).max()) for a, b in pairs)


if __name__ == "__main__":
    name, schedule, stages, microbatches, *rest = sys.argv[1:]
    print("difference", difference(name, schedule, int(stages), int(microbatches),
                                   [int(part) for part in rest[0].split("-")] if rest else None))
