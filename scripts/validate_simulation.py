"""Simulated training steps beside what they come to on CPU contexts: time, bytes between devices, and memory.

In one process for each network and number of contexts: the links and the speed of the contexts are measured; then, in
every round, each distinct operator, on all contexts at once, and steps of each plan in turn, so that a change of the
machine's speed meets all. Means of operators count, as a machine with other work interrupts few of them, each for long,
and a step meets all of that; and medians of steps. Steps are forward and backward passes, without updates. Bytes are
those of the copies that MXNet's executor makes, seen one by one, and memory is that of the arrays that it writes. A
pipeline has as many stages as there are contexts, and its steps, in steady state, have losses and updates as well.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MXNET_CPU_TEMP_COPY", "64")

from soybean_mx.files import write_json  # noqa: E402 - before MXNet, whose copies the package repairs

NETWORKS = {"mlp": (256, 16), "alexnet": (16, 64), "vgg11": (16, 32), "resnet18": (8, 64)}  # batch, extent of images
STRATEGIES = ("data", "optimal", "model")
PIPELINE, PIPELINED_STEPS = "pipeline", 8


def measure(arguments: argparse.Namespace) -> List[Dict[str, Any]]:
    """The rows of one network on one list of contexts, in this process."""
    import mxnet as mx
    from soybean_mx import gluon_front, memory, topology_measurement
    from soybean_mx.devices import contexts
    from soybean_mx.simulation.measurement import measure_times
    from soybean_mx.simulation.operator_times import MeasuredTimes, OperatorSeconds, Roofline
    from soybean_mx.simulation.pipelines import simulate_pipeline, stage_steps, tiled_stages
    from soybean_mx.simulation.simulator import simulate_step
    from soybean_mx.simulation.steps import step_of

    gluon_front.install()
    name = arguments.networks[0]
    batch, extent = NETWORKS[name]
    topology, devices = topology_measurement.measure(contexts(arguments.devices[0]))
    data = mx.nd.random.normal(shape=(batch, 3, extent, extent), ctx=devices[0])
    nets, steps = {}, {}
    for strategy in arguments.strategies:
        nets[strategy] = net = _network(name)
        net.initialize(mx.init.Xavier(), ctx=devices[0])
        net.hybridize(backend=gluon_front.BACKEND, devices=devices, strategy=strategy)
        _train(net, data)
        graph = net._cached_op
        steps[strategy] = step_of(graph.latest_graph, graph.latest_plan, {"copy_engines": False})
    times: Dict[str, List[float]] = {strategy: [] for strategy in nets}
    pipeline = _pipeline(name, data, topology, devices) if arguments.pipeline else None
    stages = stage_steps(pipeline.graph, pipeline.stages, topology) if pipeline is not None else []
    operators = []
    for _ in range(arguments.rounds):
        operators.append(measure_times([*steps.values(), *stages], devices, arguments.repeats,
                                       counts=statistics.mean))
        if pipeline is not None:
            times.setdefault(PIPELINE, []).extend(_pipelined(pipeline.step, arguments.steps))
        for strategy, net in nets.items():
            _train(net, data)
            for _ in range(arguments.steps):
                start = time.perf_counter()
                _train(net, data)
                times[strategy].append(time.perf_counter() - start)
    found = {key: OperatorSeconds(*map(statistics.mean, zip(*(one.operators[key] for one in operators))))
             for key in operators[0].operators}
    every = MeasuredTimes(found, statistics.mean(one.memory_bandwidth for one in operators), operators[0].source)
    rows = []
    for strategy, net in nets.items():
        predicted = simulate_step(steps[strategy], topology, every)
        usage = memory.measure(net, lambda: _train(net, data))  # noqa: B023 - called at once
        rows.append({
            "network": name, "batch_size": batch, "image_size": extent, "devices": len(devices), "strategy": strategy,
            "seconds": statistics.median(times[strategy]), "times": times[strategy],
            "predicted_seconds": predicted.seconds,
            "roofline_seconds": simulate_step(steps[strategy], topology, Roofline(topology.device)).seconds,
            "bytes": _executed_bytes(net, data), "predicted_bytes": sum(event.sent for event in predicted.events),
            "peak_bytes": [use.peak for use in usage], "predicted_peak_bytes": list(predicted.peak_bytes),
            "communication_share": predicted.communication_share})
    if pipeline is not None:
        predictions = [simulate_pipeline(tiled_stages(pipeline.graph, pipeline.stages, topology, given, 1), "1f1b", 1,
                                         topology).seconds for given in (every, None)]
        rows.append({
            "network": name, "batch_size": batch, "image_size": extent, "devices": len(devices), "strategy": PIPELINE,
            "seconds": statistics.median(times[PIPELINE]), "times": times[PIPELINE],
            "predicted_seconds": predictions[0], "roofline_seconds": predictions[1]})
    return rows


class Pipeline(NamedTuple):
    """A pipeline with a stage on each context: its graph, the planner's stages, and a step of training."""

    graph: Dict[str, Any]
    stages: Tuple[Any, ...]
    step: Callable[[], Any]


def _pipeline(name: str, data, topology, devices) -> Pipeline:
    import mxnet as mx
    from mxnet import gluon
    from soybean_mx.pipeline import PipelineTrainer, combined

    net = _network(name)
    net.initialize(mx.init.Xavier(), ctx=devices[0])
    net.hybridize()
    net(data)
    found = next(item for item in combined.for_block(net, [data.shape], topology) if item.name == "pipeline")
    trainer = PipelineTrainer(net, gluon.loss.SoftmaxCrossEntropyLoss(), "sgd",
                              {"learning_rate": 1e-3, "momentum": 0.9}, devices, "1f1b",
                              [stage.operators for stage in found.stages])
    label = mx.nd.zeros((data.shape[0],), ctx=devices[0])
    return Pipeline(combined.block_graph(net, [data.shape]), found.stages, lambda: trainer.step(data, label))


def _pipelined(step: Callable[[], Any], turns: int) -> List[float]:
    """Seconds of a step while the pipeline is full, so many times."""
    for _ in range(4):
        step().wait_to_read()
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        losses = [step() for _ in range(PIPELINED_STEPS)]
        losses[-1].wait_to_read()
        times.append((time.perf_counter() - start) / PIPELINED_STEPS)
    return times


def _network(name: str):
    from mxnet.gluon import nn
    from mxnet.gluon.model_zoo import vision

    if name == "mlp":
        net = nn.HybridSequential()
        net.add(nn.Flatten(), *(nn.Dense(1024, activation="relu") for _ in range(3)), nn.Dense(10))
        return net
    if name == "vgg11":  # a narrow one
        net = nn.HybridSequential()
        convolutions = list(vision.VGG([1, 1, 2, 2, 2], [32, 64, 128, 256, 256]).features)[:-4]
        net.add(*convolutions, *(nn.Dense(512, activation="relu") for _ in range(2)), nn.Dense(10))
        return net
    return {"alexnet": vision.alexnet, "resnet18": vision.resnet18_v1}[name](classes=10)


def _train(net, data) -> None:
    import mxnet as mx
    from mxnet import autograd

    with autograd.record():
        out = net(data)
    out.backward()
    mx.nd.waitall()


def _executed_bytes(net, data) -> int:
    """Bytes of all copies between contexts that the executor makes in a step, one by one."""
    import numpy as np
    from mxnet.base import NDArrayHandle
    from mxnet.ndarray import NDArray

    total = 0
    graph = net._cached_op

    def look(bound) -> None:
        copies = {line.split("Name=")[1].strip() + "_output" for line in bound._executor.debug_str().splitlines()
                  if line.startswith("Op:_CrossDeviceCopy")}

        def count(name, handle) -> None:
            nonlocal total
            array = NDArray(NDArrayHandle(handle), writable=False)
            if name.decode() in copies:
                total += array.size * np.dtype(array.dtype).itemsize

        bound._executor.set_monitor_callback(count)

    graph.watch(look)
    try:
        _train(net, data)
    finally:
        graph.watch(None)
    return total


def in_children(arguments: argparse.Namespace) -> List[Dict[str, Any]]:
    """The rows of all networks, each in a process of its own: MXNet may crash."""
    rows: List[Dict[str, Any]] = []
    for devices in arguments.devices:
        for network in arguments.networks:
            print(f"{network} on {devices}", file=sys.stderr, flush=True)
            command = [sys.executable, os.path.abspath(__file__), "--child", "--networks", network, "--devices",
                       devices, "--strategies", *arguments.strategies]
            for option in ("steps", "rounds", "repeats"):
                command += [f"--{option}", str(getattr(arguments, option))]
            command += ["--pipeline"] if arguments.pipeline else []
            process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
            if process.returncode != 0:
                last = (process.stderr.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
                sys.exit(f"validate_simulation.py: {network} on {devices} failed: {last}")
            rows += json.loads(process.stdout.strip().splitlines()[-1])
    return rows


def table(rows: List[Dict[str, Any]]) -> str:
    """The rows in Markdown; times in milliseconds."""
    lines = ["| network | contexts | plan | measured, ms | predicted, ms | error | by roofline | bytes | memory |",
             "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        spread = f"{1e3 * min(row['times']):.1f} to {1e3 * max(row['times']):.1f}"
        bytes_moved = memory = "-"
        if "bytes" in row:
            bytes_moved = "equal" if row["bytes"] == row["predicted_bytes"] else "differ"
            memory = f"{max(row['predicted_peak_bytes']) / max(row['peak_bytes']):.2f}"
        lines.append(
            f"| {row['network']} | {row['devices']} | {row['strategy']} | {1e3 * row['seconds']:.1f} ({spread}) | "
            f"{1e3 * row['predicted_seconds']:.1f} | {_error(row, 'predicted_seconds')} | "
            f"{_error(row, 'roofline_seconds')} | {bytes_moved} | {memory} |")
    errors = [abs(row["predicted_seconds"] / row["seconds"] - 1) for row in rows]
    lines.append("")
    lines.append(f"Error of time: {100 * statistics.median(errors):.0f} % in the median, {100 * max(errors):.0f} % at "
                 "most.")
    return "\n".join(lines)


def _error(row: Dict[str, Any], predicted: str) -> str:
    return f"{100 * (row[predicted] / row['seconds'] - 1):+.0f} %"


def parse_arguments(argv: Optional[List[str]] = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=tuple(NETWORKS), default=list(NETWORKS), help="which")
    parser.add_argument("--devices", nargs="+", default=["cpu:2", "cpu:4"], help="lists of contexts")
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), help="of the planner")
    parser.add_argument("--pipeline", action="store_true", help="a pipeline of a stage on each context, too")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each plan in a round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds through the operators and the plans")
    parser.add_argument("--repeats", type=int, default=3, help="how often each operator is timed in a round")
    parser.add_argument("--json", default=None, metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    for option in ("steps", "rounds", "repeats"):
        if getattr(arguments, option) < 1:
            parser.error(f"--{option} {getattr(arguments, option)} was given, but at least 1 is needed.")
    return arguments


def main(argv: Optional[List[str]] = None) -> None:
    """Measure, and print the table."""
    arguments = parse_arguments(argv)
    if arguments.child:
        print(json.dumps(measure(arguments)))
        return
    rows = in_children(arguments)
    if arguments.json is not None:
        write_json(arguments.json, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
