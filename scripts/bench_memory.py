"""Memory of one training step per device: what the plan says, what is measured, and what one device needs.

For each model two or three processes: plain MXNet on one context; the same program tiled; with ``--recompute`` also
tiled with activations computed again. *Measured* are the arrays that a device holds (``soybean_mx.memory``).
*Counted* is all that MXNet allocated, by its profiler: temporary space, the program's batch and loss on the first
device, and, on CPUs, copies in oneDNN's layouts too; of all devices together, as MXNet's CPU contexts share their
temporary space.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

MODELS = ("mlp4096", "alexnet", "vgg16", "squeezenet1.0", "resnet50_v1")
PARTS = ("parameters", "gradients", "optimizer", "inputs", "activations", "conversions", "workspace")
MEBIBYTE = 2 ** 20


def contexts_counted(kind: str, count: int) -> bool:
    """Whether MXNet's profiler can count that many contexts: on CPUs it has places for the cores and two more."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return kind == "cpu" and count <= cores + 2


def run_child(config: Dict[str, Any], timeout: float) -> Dict[str, Any]:
    """Measure in a process of its own; ``{"error": message}`` if that failed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SOYBEAN_MX")}
    environment.update(OMP_NUM_THREADS="1", MXNET_CPU_TEMP_COPY="64", SOYBEAN_MX="0")
    if config["tiled"]:
        environment.update(SOYBEAN_MX="1", SOYBEAN_MX_DEVICES=config["devices"],
                           SOYBEAN_MX_RECOMPUTE=str(int(config["recompute"])))
    try:
        process = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", json.dumps(config)],
                                 env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 universal_newlines=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"no result after {timeout:g} s"}
    if process.returncode != 0:
        lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        # An exception's message may go on for many lines, the first of which says most.
        exceptions = [line for line in lines if re.match(r"[\w.]+(Error|Exception):", line)]
        return {"error": (exceptions or lines)[-1]}
    return json.loads(process.stdout.strip().splitlines()[-1])


def measure_here(config: Dict[str, Any], folder: str) -> Dict[str, Any]:
    """What a child does: train for three steps and measure the last; a profile goes to the folder."""
    from soybean_mx import startup  # and with it the hook, for where the package is on the path but not installed

    if not config["tiled"]:
        startup.remove()
    import mxnet as mx
    from soybean_mx.benchmark import training_step

    import benchmark_tasks

    kind, numbers = config["contexts"][0][0], [number for _, number in config["contexts"]]
    context = mx.Context(kind, numbers[0])
    profile = os.path.join(folder, "profile.json")
    if config["counted"]:
        mx.profiler.set_config(profile_memory=True, profile_symbolic=False, profile_imperative=False,
                               profile_api=False, filename=profile)
        mx.profiler.set_state("run")
    before = _used(kind, numbers)
    task = benchmark_tasks.task(config["model"])
    net = training_step.make_network(task, dict(config, dtype="float32"), [context])
    trainer = training_step.make_trainer(net, "float32")
    data, labels = task.batch(config["batch_size"], "float32")
    data, labels = data.as_in_context(context), [array.as_in_context(context) for array in labels]

    def step() -> None:
        with mx.autograd.record():
            loss = training_step.total_loss(net(data), labels)
        loss.backward()
        trainer.step(config["batch_size"])

    for _ in range(2):
        step()
    mx.nd.waitall()
    begin = time.time() * 1e6
    step()
    mx.nd.waitall()
    counted = sum(after - earlier for after, earlier in zip(_used(kind, numbers), before)) or None
    if config["counted"]:
        mx.profiler.set_state("stop")
        mx.profiler.dump()
        with open(profile, encoding="utf-8") as events:
            counted = counted_bytes(json.load(events)["traceEvents"], begin)
    result: Dict[str, Any] = {"counted_bytes": counted}
    if config["tiled"]:
        result.update(_of_tiled(net, step, trainer))
    return result


def _used(kind: str, numbers: List[int]) -> List[int]:
    """Bytes in use on each GPU; MXNet's pool never shrinks, so afterwards that is the peak."""
    import mxnet as mx

    if kind != "gpu":
        return []
    return [total - free for free, total in map(mx.context.gpu_memory_info, numbers)]


def counted_bytes(events: List[Dict[str, Any]], begin: float) -> int:
    """The most that all counters of memory of a profile come to, from a time in microseconds on."""
    now: Dict[str, int] = {}
    most = 0
    for event in sorted((event for event in events if event.get("ph") == "C" and event["name"].startswith("Memory: ")),
                        key=lambda event: event["ts"]):
        if event["ts"] >= begin:
            most = max(most, sum(now.values()))
        now[event["name"]] = event["args"][event["name"]]
    return max(most, sum(now.values()))


def _of_tiled(net, step, trainer) -> Dict[str, Any]:
    """The plan's memory with the trainer's one state per parameter, and what each device holds."""
    from soybean_mx import memory, plan_of

    planned = dict(plan_of(net)["memory"])
    planned["optimizer"] = planned["parameters"]
    planned["peak"] = sum(planned[part] for part in PARTS)
    held = [dict(device._asdict(), context=str(device.context), peak=device.peak)
            for device in memory.measure(net, step, trainer)]
    return {"planned": planned, "devices": held, "measured_bytes": max(device["peak"] for device in held)}


def compare(model: str, args: argparse.Namespace) -> Dict[str, Any]:
    """All figures of one model."""
    kind, count = args.contexts[0][0], len(args.contexts)
    config = {"model": model, "batch_size": args.batch_size, "devices": args.device_list, "recompute": False}
    serial = run_child(dict(config, tiled=False, contexts=args.contexts[:1], counted=kind == "cpu"), args.timeout)
    result: Dict[str, Any] = {"model": model, "batch_size": args.batch_size, "serial": serial}
    for name, recompute in (("tiled", False), ("recompute", True)):
        if recompute and not args.recompute:
            continue
        tiled = run_child(dict(config, tiled=True, recompute=recompute, contexts=args.contexts,
                               counted=contexts_counted(kind, count)), args.timeout)
        if "error" not in tiled:
            tiled["planned_to_measured"] = tiled["planned"]["peak"] / tiled["measured_bytes"]
            share = (serial.get("counted_bytes") or 0) / count
            tiled["measured_to_serial_share"] = tiled["measured_bytes"] / share if share else None
            tiled["counted_to_serial"] = (tiled["counted_bytes"] / (share * count)
                                          if share and tiled["counted_bytes"] else None)
        result[name] = tiled
    return result


HEADINGS = ("model", "", "serial MiB", "planned", "measured", "planned/measured", "x serial/devices",
            "counted x serial")


def table(results: List[Dict[str, Any]]) -> str:
    """The results for people; planned and measured in MiB on the fullest device."""
    rows: List[List[str]] = [list(HEADINGS)]
    for result in results:
        for name in ("tiled", "recompute"):
            tiled = result.get(name)
            if tiled is None:
                continue
            if "error" in tiled:
                rows.append([result["model"], name, "failed: " + tiled["error"]])
                continue
            serial = result["serial"].get("counted_bytes")
            rows.append([result["model"], name, f"{serial / MEBIBYTE:.0f}" if serial else "-",
                         f"{tiled['planned']['peak'] / MEBIBYTE:.1f}" if name == "tiled" else "-",
                         f"{tiled['measured_bytes'] / MEBIBYTE:.1f}",
                         f"{tiled['planned_to_measured']:.2f}" if name == "tiled" else "-",
                         _ratio(tiled["measured_to_serial_share"]), _ratio(tiled["counted_to_serial"])])
    full = [row for row in rows if len(row) == len(HEADINGS)]
    widths = [max(len(row[column]) for row in full) for column in range(len(HEADINGS))]
    return "\n".join("  ".join(cell.ljust(width) if column < 2 else cell.rjust(width)
                               for column, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows)


def _ratio(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:.2f}"


def parse_arguments(argv: Optional[List[str]] = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", nargs="+", default=list(MODELS), metavar="NAME", help="as of bench_train.py")
    parser.add_argument("--batch-size", type=int, default=16, help="images per step, all devices together")
    parser.add_argument("--devices", default="cpu:4", help="cpu:8, gpu:4 (that many), gpu:0-3, gpu:0,2 (these)")
    parser.add_argument("--recompute", action="store_true", help="also with activations computed again in backward")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds after which a process is given up")
    parser.add_argument("--json", default=None, metavar="FILE", help="write the results to FILE; -: to the output, "
                        "instead of the table")
    parser.add_argument("--child", default=None, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.batch_size < 1:
        parser.error(f"--batch-size {args.batch_size} was given, but at least 1 is needed.")
    if args.child is None:
        from soybean_mx.devices import DeviceError, parse_devices

        try:
            args.contexts = parse_devices(args.devices)
        except DeviceError as error:
            parser.error(f"--devices: {error}")
        kind, numbers = args.contexts[0][0], ",".join(str(number) for _, number in args.contexts)
        # A lone number would be read as a count.
        args.device_list = f"{kind}:{numbers}" if "," in numbers else f"{kind}:{numbers}-{numbers}"
    return args


def main(argv: Optional[List[str]] = None) -> None:
    """Measure and print."""
    args = parse_arguments(argv)
    if args.child is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure_here(json.loads(args.child), folder)))
        return
    results = []
    for model in args.model:
        print(f"{model}, batch {args.batch_size}, {args.devices}", file=sys.stderr, flush=True)
        results.append(compare(model, args))
    if args.json != "-":
        print(table(results))
    if args.json:
        text = json.dumps({"devices": args.devices, "models": results}, indent=1)
        if args.json == "-":
            print(text)
        else:
            from soybean_mx.files import write_text

            write_text(args.json, text + "\n")
    if all("error" in result["tiled"] for result in results):
        sys.exit("bench_memory.py: every model failed: " + results[0]["tiled"]["error"])


if __name__ == "__main__":
    main()
