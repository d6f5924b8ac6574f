"""Predictions of the joint planner beside what they come to: data parallelism, tiling, pipelines and both together.

The links and the speed of the devices are measured first (contexts of a CPU share its cores, which is measured too).
Every plan then trains in this process, in turns, so that a change of the machine's speed meets all; medians count.
Predictions are of the forward and the backward pass, without the update of the weights and the host's own work.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
from functools import partial
from typing import Callable, Dict, List, Optional

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MXNET_CPU_TEMP_COPY", "64")

import mxnet as mx  # noqa: E402
from mxnet import gluon  # noqa: E402
from rich.table import Table  # noqa: E402
from soybean_mx import gluon_front, topology_measurement  # noqa: E402
from soybean_mx.devices import contexts  # noqa: E402
from soybean_mx.files import write_json  # noqa: E402
from soybean_mx.pipeline import PipelineTrainer, combined  # noqa: E402
from soybean_mx.plan_report import console  # noqa: E402

from bench_pipeline import CLASSES, SGD, build, gluon_step, seconds_per_step  # noqa: E402

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def main(argv: Optional[List[str]] = None) -> List[Dict[str, object]]:
    """Plan, measure and print; a row for each plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="vgg11", help="a model of train_vgg.py or train_mlp.py")
    parser.add_argument("--batch-size", type=int, default=32, help="images of a step")
    parser.add_argument("--image-size", type=int, default=32, help="height and width of an image")
    parser.add_argument("--devices", default="cpu:2", help="devices, 2 or more")
    parser.add_argument("--steps", type=int, default=5, help="steps of each turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns")
    parser.add_argument("--json", default=None, help="file to write the rows to")
    args = parser.parse_args(argv)
    gluon_front.install()
    topology, devices = topology_measurement.measure(contexts(args.devices))
    data = mx.nd.random.normal(shape=(args.batch_size, 3, args.image_size, args.image_size), ctx=devices[0])
    label = mx.nd.random.randint(0, CLASSES, (args.batch_size,), ctx=devices[0]).astype("float32")
    steps: Dict[str, Callable[[], mx.nd.NDArray]] = {}
    predicted: Dict[str, float] = {}
    for item in combined.for_block(build(args.model, data, devices[0]), [data.shape], topology):
        net = build(args.model, data, devices[0])
        predicted[item.name] = item.seconds
        if len(item.stages) == 1:
            strategy = "data" if item.name == "data parallelism" else "optimal"
            net.hybridize(backend=gluon_front.BACKEND, devices=devices, strategy=strategy)
            steps[item.name] = gluon_step(net, data, label)
            continue
        own = next(other for other in combined.for_block(net, [data.shape], topology) if other.name == item.name)
        trainer = PipelineTrainer(net, LOSS, "sgd", SGD, devices, "1f1b", [stage.operators for stage in own.stages],
                                  tiled_over=item.group)
        steps[item.name] = partial(trainer.step, data, label)
    times: Dict[str, List[float]] = {name: [] for name in steps}
    for _ in range(args.rounds):
        for name, step in steps.items():
            times[name].append(seconds_per_step(step, args.steps))
    rows = [{"name": name, "predicted_seconds": predicted[name], "seconds": statistics.median(values),
             "times": values} for name, values in times.items()]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("", "predicted", "measured", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    for row in rows:
        table.add_row(row["name"], f"{1e3 * row['predicted_seconds']:.1f} ms", f"{1e3 * row['seconds']:.1f} ms",
                      f"{row['seconds'] / row['predicted_seconds']:.2f}")
    console().print(table)
    if args.json:
        write_json(args.json, {"arguments": vars(args), "topology": topology.to_json(), "rows": rows})
    return rows


if __name__ == "__main__":
    print(json.dumps({row["name"]: row["seconds"] for row in main()}))
