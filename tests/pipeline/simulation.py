"""PipeDream's update rules, simulated on one device in float64, against the trainer, step by step.

Run in a child process: ``python -m tests.pipeline.simulation SCHEDULE STAGES [MICROBATCHES]``. The
simulation knows nothing of schedules: version t of stage s is made from version t - 1 and a gradient at the versions
that the rule's formula names.
"""
from __future__ import annotations

import sys

import soybean_mx  # noqa: F401  (before MXNet: it sets what MXNet reads at its start)

import mxnet as mx  # isort: skip
import numpy as np
from mxnet import autograd, gluon

from soybean_mx.pipeline import PipelineTrainer
from soybean_mx.pipeline.partition import operator_names
from tests.pipeline.parity import BATCH, batches, network

# Powers of two: MXNet passes these numbers in single precision.
RATE, MOMENTUM, DECAY = 0.25, 0.875, 2.0 ** -10


def stage_of_layers(stages, layers=6):
    """The layers, evenly in order."""
    return [layer * stages // layers for layer in range(layers)]


def simulate(values, stages, steps, rule):
    """The losses and the last weights by ``w_s(t+1) = w_s(t) - rate * update(gradient at version rule(s, t))``.

    ``values`` are the weight and the bias of each layer. Plain numpy holds all versions.
    """
    place = [stage for stage in stage_of_layers(stages) for _ in range(2)]
    versions = [[value.copy() for value in values]]
    momenta = [np.zeros_like(value) for value in values]
    net, shape = network("mlp")
    net.cast("float64")
    net(next(batches(shape, dtype="float64"))[0])
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for step, (data, label) in enumerate(batches(shape, steps, dtype="float64")):
        parameters = list(net.collect_params().values())
        for index, parameter in enumerate(parameters):
            parameter.set_data(mx.nd.array(versions[rule(place[index], step)][index], dtype="float64"))
        with autograd.record():
            value = loss(net(data), label)
        value.backward()
        losses.append(value.asnumpy())
        new = []
        for index, parameter in enumerate(parameters):
            # Weight decay is part of the update, so it is of the newest weights.
            gradient = parameter.grad().asnumpy() / BATCH + DECAY * versions[step][index]
            momenta[index] = MOMENTUM * momenta[index] - RATE * gradient
            new.append(versions[step][index] + momenta[index])
        versions.append(new)
    return losses, versions[-1]


def rule_of(schedule, stages):
    """Which version stage s (from 0) of n uses for minibatch t: the formulas of PipeDream and PipeDream-2BW."""
    if schedule == "1f1b":
        return lambda stage, step: max(0, step - (stages - 1 - stage))
    if schedule == "1f1b-vertical-sync":
        return lambda stage, step: max(0, step - (stages - 1))
    return lambda stage, step: max(0, step - 1)


def main(schedule, stages, microbatches):
    """Print the largest difference of a loss or a weight, and the versions that were alive."""
    net, shape = network("mlp")
    net.cast("float64")
    net(next(batches(shape, dtype="float64"))[0])
    layers = stage_of_layers(stages)
    names = [child.name for child in net._children.values()]
    operators = operator_names(net(mx.sym.var("data")))
    values = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
    cut = [[operator for name, at in zip(names, layers) if at == stage for operator in operators if name in operator]
           for stage in range(stages)]
    steps = 12
    trainer = PipelineTrainer(net, gluon.loss.SoftmaxCrossEntropyLoss(), "sgd",
                              {"learning_rate": RATE, "momentum": MOMENTUM, "wd": DECAY}, f"cpu:{stages}", schedule,
                              cut, microbatches=microbatches)
    got = [trainer.step(data, label).asnumpy() for data, label in batches(shape, steps, dtype="float64")]
    trainer.synchronize()
    losses, last = simulate(values, stages, steps, rule_of(schedule, stages))
    ends = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
    print("difference", max(np.abs(a - b).max() for a, b in zip(got + ends, losses + last)))
    print("versions", *trainer.versions_alive())
    print("held", *trainer.most_in_flight())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
