"""Stages that take a known time, traced; run in a child process: ``python -m tests.pipeline.traced FILE``.

A layer sleeps in its passes, so that the times are the same on any number of cores.
"""
from __future__ import annotations

import json
import sys
import time

import soybean_mx  # noqa: F401  (before MXNet: it sets what MXNet reads at its start)

import mxnet as mx  # isort: skip
from mxnet import gluon
from mxnet.gluon import nn

from soybean_mx.pipeline import PipelineTrainer
from soybean_mx.pipeline.partition import operator_names
from soybean_mx.pipeline.schedule import SCHEDULES, bubble

FORWARD_SECONDS, STAGES, BATCH, BATCHES = 0.02, 4, 8, 2


class _Sleep(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        time.sleep(FORWARD_SECONDS)
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        time.sleep(2 * FORWARD_SECONDS)
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("sleep")
class _SleepProperties(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return _Sleep()


class Sleeping(nn.HybridBlock):
    """A dense layer that takes its time."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(4, in_units=4)

    def hybrid_forward(self, F, x):
        return F.Custom(self.dense(x), op_type="sleep")


def main(path):
    """Print, for each schedule, the stages' utilisation, the bubble, its formula, and that of the measured times."""
    for schedule in SCHEDULES:
        net = nn.HybridSequential()
        net.add(*(Sleeping() for _ in range(STAGES)))
        net.initialize()
        devices = STAGES // 2 if schedule == "interleaved" else STAGES
        names = operator_names(net(mx.sym.var("data")))  # two of each layer
        stages = [names[2 * stage:2 * stage + 2] for stage in range(STAGES)]
        trainer = PipelineTrainer(net, gluon.loss.L2Loss(), "sgd", {"learning_rate": 0.1}, f"cpu:{devices}", schedule,
                                  stages, microbatches=1 if schedule.startswith("1f1b") else BATCH)
        x = mx.nd.ones((BATCH, 4))
        per_minibatch = trainer.microbatches == 1
        for _ in range(STAGES if per_minibatch else 1):
            trainer.step(x, x)
        with trainer.trace(path) as trace:
            for _ in range(BATCHES * BATCH if per_minibatch else BATCHES):
                trainer.step(x, x)
        passes = [event for event in trace.events() if event.kind != "update"]
        assert all(event.end - event.begin > 0.9 * FORWARD_SECONDS for event in passes)
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["traceEvents"]
        assert len([row for row in rows if row["ph"] == "X"]) == len(trace.events())
        for device in range(devices):  # one pass at a time
            own = [event for event in passes if event.device == device]
            assert all(first.end <= second.begin for first, second in zip(own, own[1:]))
        formula = bubble(schedule, devices, trainer.microbatches, STAGES // devices)
        print(schedule, "bubble", trace.bubble(), "formula", formula, "of_times", trace.expected_bubble(),
              "utilisation", *trace.utilisation())


if __name__ == "__main__":
    main(sys.argv[1])
