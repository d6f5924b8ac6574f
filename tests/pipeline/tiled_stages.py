"""A pipeline whose stages are tiled over several devices, beside one whose stages have one device each.

Run in a child process: ``python -m tests.pipeline.tiled_stages NAME``; prints ``difference`` for a comparison.
"""
from __future__ import annotations

import os
import sys
import tempfile

# oneDNN computes nothing in double precision, and MXNet says so of every operator.
os.environ.update(MXNET_MKLDNN_ENABLED="0", MXNET_STORAGE_FALLBACK_LOG_VERBOSE="0")

import soybean_mx  # noqa: E402,F401  (before MXNet: it sets what MXNet reads at its start)

import mxnet as mx  # noqa: E402  # isort: skip
import numpy as np  # noqa: E402
from mxnet import gluon  # noqa: E402
from mxnet.gluon import nn  # noqa: E402

from soybean_mx.pipeline import PipelineTrainer  # noqa: E402
from soybean_mx.pipeline.trainer import PipelineError  # noqa: E402

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()
SGD = {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-3}
SIZES = (12, 12, 12, 12, 7, 12)


class Residual(nn.HybridBlock):
    """A convolution with BatchNorm, beside its input."""

    def __init__(self, channels):
        super().__init__()
        with self.name_scope():
            self.conv = nn.Conv2D(channels, 3, padding=1, in_channels=channels)
            self.norm = nn.BatchNorm(in_channels=channels)

    def hybrid_forward(self, F, x):
        return F.relu(self.norm(self.conv(x)) + x)


def network():
    """Images ``(batch, 3, 8, 8)`` to 10 scores, in double precision."""
    mx.random.seed(3)
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(8, 3, padding=1, in_channels=3), nn.BatchNorm(in_channels=8), nn.Activation("relu"),
                Residual(8), Residual(8), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(64, activation="relu", in_units=128),
                nn.LayerNorm(in_channels=64), nn.Dense(10, in_units=64))
    net.cast("float64")
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


class Tied(nn.HybridBlock):
    """Tokens ``(batch, 6)`` to scores of 11 words; the last layer shares the embedding's weight."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embedding = self.params.get("embedding", shape=(11, 16))
            self.wide = nn.Dense(32, activation="tanh", in_units=16)
            self.narrow = nn.Dense(16, in_units=32)

    def hybrid_forward(self, F, x, embedding):
        x = F.Embedding(x, embedding, input_dim=11, output_dim=16).mean(axis=1)
        return F.FullyConnected(self.narrow(self.wide(x)), embedding, no_bias=True, num_hidden=11)


def tied_network():
    """A network whose first and last stage share a weight, in double precision."""
    mx.random.seed(3)
    net = Tied()
    net.cast("float64")
    net.initialize(mx.init.Xavier())
    return net


def batches(tied):
    """Images or tokens, and labels, of some batches."""
    rng = np.random.RandomState(0)
    for size in SIZES:
        data = rng.randint(0, 11, (size, 6)) if tied else rng.normal(size=(size, 3, 8, 8))
        label = rng.randint(0, 10, size)
        yield mx.nd.array(data, dtype="float64"), mx.nd.array(label, dtype="float64")


def trained(devices, schedule, optimizer="sgd", settings=None, tied=False, **options):
    """Losses and values of all parameters after some batches, and the trainer."""
    net = tied_network() if tied else network()
    trainer = PipelineTrainer(net, LOSS, optimizer, settings or SGD, devices, schedule, **options)
    losses = [trainer.step(*batch) for batch in batches(tied)]
    trainer.synchronize()
    values = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
    return [*(loss.asnumpy() for loss in losses), *values], trainer


def difference(whole, tiled, schedule, optimizer="sgd", settings=None, **options):
    """The largest difference of any number; `whole` and `tiled` are the devices and options of the two."""
    expected, plain = trained(whole[0], schedule, optimizer, settings, **options, **whole[1])
    found, trainer = trained(tiled[0], schedule, optimizer, settings, **options, **tiled[1])
    if schedule != "1f1b":  # there, how many there are depends on how far the stages are apart
        assert trainer.versions_alive() == plain.versions_alive(), (trainer.versions_alive(), plain.versions_alive())
    assert trainer.most_in_flight() == plain.most_in_flight(), (trainer.most_in_flight(), plain.most_in_flight())
    return max(float(np.abs(a - b).max()) for a, b in zip(expected, found))


def schedules():
    """Each schedule, over groups of one size and of two."""
    worst = 0.0
    for schedule in ("flush", "gpipe", "2bw", "1f1b", "1f1b-vertical-sync"):
        options = {} if schedule.startswith("1f1b") else {"microbatches": 3}
        if schedule != "2bw":
            worst = max(worst, difference(("cpu:2", {}), ("cpu:8", {"tiled_over": 4}), schedule, **options))
        worst = max(worst, difference(("cpu:2", {}), ("cpu:6", {"tiled_over": [4, 2]}), schedule, **options))
    return worst


def replicas():
    """Several replicas of a tiled stage, and stages of one device among tiled ones."""
    return max(
        difference(("cpu:3", {}), ("cpu:5", {"tiled_over": [2, 1]}), "flush", microbatches=4, replicas=[2, 1]),
        difference(("cpu:3", {}), ("cpu:5", {"tiled_over": [1, 3]}), "flush", microbatches=4, replicas=[2, 1]),
        difference(("cpu:3", {}), ("cpu:8", {"tiled_over": [1, 4, 3]}), "1f1b"))


def options():
    """Optimizers with other states, and what the planner of tilings is told."""
    adam = {"learning_rate": 0.01}
    return max(
        difference(("cpu:2", {}), ("cpu:4", {"tiled_over": 2}), "1f1b", "adam", adam),
        difference(("cpu:2", {}), ("cpu:4", {"tiled_over": 2, "tiling": {"strategy": "model"}}), "flush"),
        difference(("cpu:2", {}), ("cpu:4", {"tiled_over": 2, "recompute": True}), "gpipe"),
        difference(("cpu:2", {}), ("cpu:6", {"tiled_over": 3, "tiling": {"strategy": "data"}}), "flush", "nag", SGD))


def tied():
    """A weight that the first and the last stage use, whichever of them is tiled."""
    adam = {"learning_rate": 0.01}
    groups = [("cpu:4", {"tiled_over": [2, 2]}), ("cpu:4", {"tiled_over": [3, 1]}), ("cpu:4", {"tiled_over": [1, 3]})]
    return max(
        *(difference(("cpu:2", {}), group, schedule, tied=True, stages=2)
          for group, schedule in zip(groups, ("flush", "1f1b", "1f1b-vertical-sync"))),
        difference(("cpu:2", {}), groups[1], "2bw", tied=True, microbatches=3),
        difference(("cpu:2", {}), groups[0], "gpipe", "adam", adam, tied=True, recompute=True),
        difference(("cpu:3", {}), ("cpu:5", {"tiled_over": [2, 1]}), "flush", tied=True, microbatches=4,
                   replicas=[2, 1]))


def resumed():
    """A run goes on from its files over other groups of devices, and on single ones."""
    worst = 0.0
    for schedule, optimizer, settings in (("1f1b", "sgd", SGD), ("flush", "adam", {"learning_rate": 0.01})):
        values = {}
        with tempfile.TemporaryDirectory() as folder:
            files = os.path.join(folder, "net.params"), os.path.join(folder, "net.states")
            for name, devices, tiled_over in (("all", "cpu:6", [4, 2]), ("plain", "cpu:2", 1), ("tiled", "cpu:4", 2)):
                net = network()
                if name != "all":
                    net.load_parameters(files[0])
                trainer = PipelineTrainer(net, LOSS, optimizer, settings, devices, schedule, tiled_over=tiled_over)
                if name != "all":
                    trainer.load_states(files[1])
                for number, batch in enumerate(batches(tied=False)):
                    if name == "all" or number >= 3:
                        trainer.step(*batch)
                    if name == "all" and number == 2:
                        trainer.save_parameters(files[0])
                        trainer.save_states(files[1])
                trainer.synchronize()
                values[name] = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
        for name in ("plain", "tiled"):
            worst = max(worst, *(float(np.abs(a - b).max()) for a, b in zip(values["all"], values[name])))
    return worst


def refusals():
    """What cannot be tiled is refused before anything is trained."""
    def refused(text, *args, **kwargs):
        try:
            trainer = PipelineTrainer(network(), LOSS, *args, **kwargs)
            trainer.step(mx.nd.zeros((4, 3, 8, 8), dtype="float64"), mx.nd.zeros((4,), dtype="float64"))
        except ValueError as error:  # ScheduleError
            message = str(error)
        except PipelineError as error:
            message = str(error)
        else:
            raise AssertionError(f"not refused: {text}")
        assert text in message, message

    refused("looks at whole parameters", "lamb", devices="cpu:4", tiled_over=2)
    refused("add up to the devices", "sgd", devices="cpu:6", tiled_over=4)
    refused("add up to the devices", "sgd", devices="cpu:6", tiled_over=[4, 1])
    refused("were to be tiled over 0 devices", "sgd", devices="cpu:6", tiled_over=0)
    refused("no stages over several devices", "sgd", devices="cpu:4", tiled_over=2, schedule="interleaved")
    refused("unknown option 'recompute'", "sgd", devices="cpu:4", tiled_over=2, tiling={"recompute": True})
    return 0.0


if __name__ == "__main__":
    print("difference", globals()[sys.argv[1]]())
