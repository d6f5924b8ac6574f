"""PipeDream's update rules, simulated on one device in float64, against the trainer, step by step.

Run in a child process: ``python -m tests.pipeline.simulation SCHEDULE STAGES [MICROBATCHES [REPLICAS]]``. The
simulation knows nothing of schedules: version t of stage s is made from version t - 1 and a gradient at the versions
that the rule's formula names. With r replicas, it is the mean gradient of the minibatches t*r to t*r + r - 1.
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


def simulate(values, stages, steps, rule, replicas):
    """The losses and the last weights by ``w_s(u+1) = w_s(u) - rate * update(gradient)``.

    The gradient is the mean of those of the minibatches of a round, one for each replica, minibatch t's at version
    ``rule(s, t)`` of every stage s. ``values`` are the weight and the bias of each layer. Plain numpy holds all
    versions.
    """
    place = [stage for stage in stage_of_layers(stages) for _ in range(2)]
    versions = [[value.copy()] for value in values]
    momenta = [np.zeros_like(value) for value in values]
    sums = [np.zeros_like(value) for value in values]
    net, shape = network("mlp")
    net.cast("float64")
    net(next(batches(shape, dtype="float64"))[0])
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for step, (data, label) in enumerate(batches(shape, steps, dtype="float64")):
        parameters = list(net.collect_params().values())
        for index, parameter in enumerate(parameters):
            parameter.set_data(mx.nd.array(versions[index][rule(place[index], step)], dtype="float64"))
        with autograd.record():
            value = loss(net(data), label)
        value.backward()
        losses.append(value.asnumpy())
        for index, parameter in enumerate(parameters):
            sums[index] += parameter.grad().asnumpy()
            count = step % replicas[place[index]] + 1
            if count < replicas[place[index]] and step < steps - 1:
                continue
            # Weight decay is part of the update, so it is of the newest weights.
            newest = versions[index][-1]
            gradient = sums[index] / (count * BATCH) + DECAY * newest
            momenta[index] = MOMENTUM * momenta[index] - RATE * gradient
            versions[index].append(newest + momenta[index])
            sums[index][:] = 0
    return losses, [made[-1] for made in versions]


def rule_of(schedule, stages, replicas):
    """Which version stage s (from 0) of n uses for minibatch t: the formulas of PipeDream and PipeDream-2BW.

    With replicas, a stage is behind by as many rounds as its devices start with forward passes.
    """
    if schedule == "1f1b":
        behind = [(sum(replicas[stage:]) - 1) // replicas[stage] for stage in range(stages)]
        return lambda stage, step: max(0, step // replicas[stage] - behind[stage])
    if schedule == "1f1b-vertical-sync":
        behind_all = (sum(replicas) - 1) // replicas[0]
        return lambda stage, step: max(0, step // replicas[stage] - behind_all)
    return lambda stage, step: max(0, step - 1)


def main(schedule, stages, microbatches, replicas, recoverable):
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
    steps = 12 if set(replicas) == {1} else 17  # the last round of replicas is not complete
    trainer = PipelineTrainer(net, gluon.loss.SoftmaxCrossEntropyLoss(), "sgd",
                              {"learning_rate": RATE, "momentum": MOMENTUM, "wd": DECAY}, f"cpu:{sum(replicas)}",
                              schedule, cut, replicas, microbatches,
                              recoverable=False if schedule == "1f1b" and not recoverable else None)
    got = [trainer.step(data, label).asnumpy() for data, label in batches(shape, steps, dtype="float64")]
    trainer.synchronize()
    losses, last = simulate(values, stages, steps, rule_of(schedule, stages, replicas), replicas)
    ends = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
    print("difference", max(np.abs(a - b).max() for a, b in zip(got + ends, losses + last)))
    print("versions", *trainer.versions_alive())
    print("held", *trainer.most_in_flight())


if __name__ == "__main__":
    *given, recoverable = sys.argv[1:] if sys.argv[-1] == "recoverable" else [*sys.argv[1:], ""]
    each = given[3].split("-") if len(given) > 3 else [1] * int(given[1])
    main(given[0], int(given[1]), int(given[2]) if len(given) > 2 else None, [int(part) for part in each], recoverable)
