"""Steady-state speed of pipelined training beside one device, one thread for each device, in one process.

They take turns, so that a change of the machine's speed meets all; each turn is timed from a full pipeline on, and the
medians are compared. Then some steps are traced: the utilisation of each stage, and the bubble beside its formula and
beside what the schedule makes of the measured times of the stages, which are not equal.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from functools import partial
from typing import Callable, Dict, List, Optional

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MXNET_CPU_TEMP_COPY", "64")

import mxnet as mx  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402
from soybean_mx.devices import contexts  # noqa: E402
from soybean_mx.files import write_json  # noqa: E402
from soybean_mx.pipeline import PipelineTrainer  # noqa: E402
from soybean_mx.pipeline.schedule import SCHEDULES, bubble  # noqa: E402

import models  # noqa: E402

CLASSES = 10
SGD = {"learning_rate": 1e-3, "momentum": 0.9}


def build(name: str, data: mx.nd.NDArray, context: mx.Context) -> gluon.HybridBlock:
    """A network that has seen its input."""
    net = models.create(name, CLASSES)
    net.initialize(mx.init.Xavier(), ctx=context)
    net.hybridize()
    net(data.as_in_context(context))
    return net


def one_device(name: str, data: mx.nd.NDArray, label: mx.nd.NDArray) -> Callable[[], mx.nd.NDArray]:
    """A step of plain MXNet on the first CPU context or GPU."""
    return gluon_step(build(name, data, data.context), data, label)


def gluon_step(net: gluon.HybridBlock, data: mx.nd.NDArray, label: mx.nd.NDArray) -> Callable[[], mx.nd.NDArray]:
    """A step of a network with ``gluon.Trainer``."""
    loss, trainer = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.Trainer(net.collect_params(), "sgd", SGD)

    def step() -> mx.nd.NDArray:
        with autograd.record():
            value = loss(net(data), label)
        value.backward()
        trainer.step(data.shape[0])
        return value

    return step


def seconds_per_step(step: Callable[[], mx.nd.NDArray], steps: int) -> float:
    """The time of a step, between the losses of two steps while the device is kept busy."""
    losses: List[mx.nd.NDArray] = [step() for _ in range(2)]
    losses[-1].wait_to_read()
    begin = time.perf_counter()
    for _ in range(steps):
        losses.append(step())
        losses.pop(0).wait_to_read()  # queues at most two steps ahead, as a program that logs its loss does
    losses[-1].wait_to_read()
    seconds = (time.perf_counter() - begin) / steps
    mx.nd.waitall()
    return seconds


def traced(trainer: PipelineTrainer, step: Callable[[], mx.nd.NDArray], steps: int,
           path: Optional[str]) -> Dict[str, object]:
    """What the stages do in some steps of a full pipeline."""
    for _ in range(2):
        step()
    with trainer.trace(path) as trace:
        for _ in range(max(steps, len(trainer.stages) + 1)):
            step()
    interleaved = trainer.schedule == "interleaved"
    devices = len(trace.contexts)
    return {"utilisation": trace.utilisation(), "bubble": trace.bubble(), "of_times": trace.expected_bubble(),
            "formula": bubble(trainer.schedule, devices, trainer.microbatches,
                              len(trainer.stages) // devices if interleaved else 1)}


def predicted(trainer: PipelineTrainer, devices: int, formula: float) -> Optional[float]:
    """The seconds of a step by the times of the operators and the schedule's bubble; None where none were taken."""
    if trainer.expected_seconds is None:
        return None
    busiest = max(sum(trainer.expected_seconds[device::devices]) for device in range(devices))
    return trainer.microbatches * busiest / (1 - formula)


def main(argv: Optional[List[str]] = None) -> Dict[str, object]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="vgg11", help="a model of train_vgg.py or train_mlp.py")
    parser.add_argument("--batch-size", type=int, default=32, help="images of a step")
    parser.add_argument("--image-size", type=int, default=32, help="height and width of an image")
    parser.add_argument("--devices", default="cpu:2", help="devices of the pipeline")
    parser.add_argument("--schedule", default=["1f1b"], choices=SCHEDULES, nargs="+", help="one or more")
    parser.add_argument("--microbatches", type=int, default=None, help="of a batch (default: the schedule's)")
    parser.add_argument("--stages", default="measured", choices=("auto", "measured"), help="how they are balanced")
    parser.add_argument("--steps", type=int, default=10, help="steps of each turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns")
    parser.add_argument("--trace", default=None, metavar="FILE", help="write the trace of the last schedule to FILE, "
                        "for chrome://tracing or Perfetto")
    parser.add_argument("--json", default=None, help="file to write the result to")
    args = parser.parse_args(argv)
    first = mx.gpu(0) if args.devices.startswith("gpu") else mx.cpu(0)
    data = mx.nd.random.normal(shape=(args.batch_size, 3, args.image_size, args.image_size), ctx=first)
    label = mx.nd.random.randint(0, CLASSES, (args.batch_size,), ctx=first).astype("float32")
    trainers = {schedule: PipelineTrainer(
        build(args.model, data, first), gluon.loss.SoftmaxCrossEntropyLoss(), "sgd",
        SGD, args.devices, schedule, args.stages,
        microbatches=args.microbatches)
        for schedule in args.schedule}
    contenders = {"one device": one_device(args.model, data, label),
                  **{schedule: partial(trainer.step, data, label) for schedule, trainer in trainers.items()}}
    times: Dict[str, List[float]] = {name: [] for name in contenders}
    for _ in range(args.rounds):
        for name, step in contenders.items():
            times[name].append(seconds_per_step(step, args.steps))
    medians = {name: statistics.median(values) for name, values in times.items()}
    traces = {schedule: traced(trainer, contenders[schedule], args.steps, args.trace)
              for schedule, trainer in trainers.items()}
    print(f"one device           {1e3 * medians['one device']:10.1f} ms a step")
    ratios, expected = {}, {}
    for schedule, found in traces.items():
        ratios[schedule] = medians["one device"] / medians[schedule]
        print(f"{schedule:20} {1e3 * medians[schedule]:10.1f} ms a step; utilisation "
              f"{', '.join(f'{share:.2f}' for share in found['utilisation'])}; bubble {found['bubble']:.2f} (formula "
              f"{found['formula']:.2f}, of the stages' times {found['of_times']:.2f})")
        expected[schedule] = predicted(trainers[schedule], len(contexts(args.devices)), found["formula"])
        if expected[schedule] is not None:
            print(f"{'':20} {1e3 * expected[schedule]:10.1f} ms predicted from the times of its operators")
        print(f"The pipeline of {args.devices} ({schedule}) has {ratios[schedule]:.2f} times the speed of one device.")
    result = {"arguments": vars(args), "seconds_per_step": times, "median_seconds": medians, "ratios": ratios,
              "predicted_seconds": expected, "traces": traces}
    if args.json:
        write_json(args.json, result)
    return result


if __name__ == "__main__":
    print(json.dumps(main()["median_seconds"]))
