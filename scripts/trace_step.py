"""Trace one training step, tiled, in two orders: layer by layer as the nodes stand, and list-scheduled.

For every device: when it is busy and idle, how long copies run while operators run, and how much of the reduction of
gradients and of the updates runs before the backward pass has ended. Each order runs in a process of its own, in turn,
in every round; the steps that are timed are not traced, and the one that is traced is not timed.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from soybean_mx.simulation.chrome_trace import Ran as Event
from soybean_mx.simulation.chrome_trace import read_profile as read_events
from soybean_mx.tracing import PROFILED_CPUS

ORDERS = ("serial", "scheduled")

Span = Tuple[float, float]


def is_copy(event: Event) -> bool:
    """Whether an event moves data between contexts."""
    return event.name.startswith("Copy")


def is_update(event: Event) -> bool:
    """Whether an event is the optimizer's."""
    return event.name.endswith("_update")


def is_sum(event: Event) -> bool:
    """Whether an event adds up gradients."""
    return event.name in ("add_n", "elemwise_add", "ElementWiseSum")


def union(spans: Iterable[Span]) -> List[Span]:
    """Spans that neither overlap nor touch, in order, which cover the same time."""
    out: List[Span] = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def length(spans: Iterable[Span]) -> float:
    """How long spans are, together."""
    return sum(end - begin for begin, end in spans)


def common(some: Sequence[Span], others: Sequence[Span]) -> float:
    """For how long some span of each of two unions is there."""
    total, i, j = 0.0, 0, 0
    while i < len(some) and j < len(others):
        total += max(0.0, min(some[i][1], others[j][1]) - max(some[i][0], others[j][0]))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return total


def spans_of(events: Iterable[Event]) -> List[Span]:
    """The union of the events' times."""
    return union((event.begin, event.end) for event in events)


def backward_end(events: Sequence[Event]) -> float:
    """When the last operator of the backward pass ends."""
    return max((event.end for event in events if event.name.startswith("_backward")), default=0.0)


def device_report(events: Sequence[Event], seconds: float) -> Dict[str, Dict[str, float]]:
    """By device: ``busy``, ``idle``, ``copies``, and ``copies_while_computing``, in seconds.

    The last counts the time in which the device copies and it or another one computes.
    """
    computing = spans_of(event for event in events if not is_copy(event))
    report = {}
    for device in sorted({event.device for event in events}):
        own = [event for event in events if event.device == device]
        copies = spans_of(filter(is_copy, own))
        busy = length(spans_of(own))
        report[device] = {"busy": busy, "idle": seconds - busy, "copies": length(copies),
                          "copies_while_computing": common(copies, computing)}
    return report


def share_before(events: Sequence[Event], end: float) -> Dict[str, float]:
    """Of some events: their ``count``, their ``seconds``, and the ``share`` of these before a time."""
    seconds = sum(event.end - event.begin for event in events)
    before = sum(max(0.0, min(event.end, end) - event.begin) for event in events)
    return {"count": len(events), "seconds": seconds, "share": before / seconds if seconds else 0.0}


def layer_report(events: Sequence[Event], backward: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """What happens behind the backward operator of each layer with weights, device by device.

    MXNet's trace has no names of nodes. Those of operators that share a context's temporary space are known all the
    same: they run in the order in which they were handed over.

    Parameters
    ----------
    backward : list of dict
        ``operator``, ``node`` and ``device``, in that order.

    Returns
    -------
    list of dict
        ``device``, ``layer``; ``computed``, when its backward operator ends; and of what runs before the next such:
        ``sums`` and ``updates``, and ``updated``, when the last of these ends (or None). Times are in seconds before
        the end of the backward pass; below 0: after it.
    """
    end, kinds, rows = backward_end(events), ("Convolution", "FullyConnected"), []
    devices = sorted({event.device for event in events}, key=lambda name: int(name.partition(":")[2] or 0))
    for index, device in enumerate(devices):
        own = [event for event in events if event.device == device]
        names = [item for item in backward if item["device"] == index and item["operator"] in kinds]
        ran = [event for event in own if event.name in tuple(f"_backward_{kind}" for kind in kinds)]
        if Counter(f"_backward_{item['operator']}" for item in names) != Counter(event.name for event in ran):
            continue  # not all of them are the network's own
        for position, (item, event) in enumerate(zip(names, ran)):
            until = ran[position + 1].begin if position + 1 < len(ran) else float("inf")
            behind = [other for other in own if event.end <= other.begin < until]
            updates = list(filter(is_update, behind))
            rows.append({"device": device, "layer": item["node"].partition("@")[0], "computed": end - event.end,
                         "sums": sum(map(is_sum, behind)), "updates": len(updates),
                         "updated": end - updates[-1].end if updates else None})
    return rows


def trace_report(trace: Dict[str, Any], backward: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """What one trace shows: ``seconds``, ``devices``, ``updates`` and ``sums`` before the end of the backward pass,
    and ``layers``."""
    events = read_events(trace)
    seconds, end = max((event.end for event in events), default=0.0), backward_end(events)
    begins = [event.begin for event in events if event.name.startswith("_backward")]
    sums = [event for event in events if is_sum(event) and begins and event.begin >= min(begins)]
    return {"seconds": seconds, "backward_end": end, "devices": device_report(events, seconds),
            "updates": share_before(list(filter(is_update, events)), end), "sums": share_before(sums, end),
            "layers": layer_report(events, backward)}


def environment(order: str, devices: Sequence[Tuple[str, int]]) -> Dict[str, str]:
    """The environment of a process that runs in one order."""
    found = {key: value for key, value in os.environ.items() if not key.startswith("SOYBEAN_MX")}
    cpus = devices[0][0] == "cpu"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    indices = ",".join(str(index) for _, index in devices)
    found.update(OMP_NUM_THREADS=str(max(1, cores // len(devices)) if cpus else cores), MXNET_CPU_TEMP_COPY="64",
                 SOYBEAN_MX="1", SOYBEAN_MX_ORDER=order,
                 SOYBEAN_MX_DEVICES=f"{devices[0][0]}:{indices if ',' in indices else f'{indices}-{indices}'}")
    return found


def run_order(order: str, args: argparse.Namespace, trace: Optional[str]) -> Dict[str, Any]:
    """Run one order in a process of its own.

    Raises
    ------
    SystemExit
        With the last line that it printed, when it failed.
    """
    config = {"model": args.model, "batch_size": args.batch_size, "dtype": "float32", "warmup": args.warmup,
              "repeat": args.repeat, "contexts": args.contexts, "trace": trace}
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trace_contender.py")
    process = subprocess.run([sys.executable, script, json.dumps(config)], env=environment(order, args.contexts),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    if process.returncode != 0:
        lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        sys.exit(f"trace_step.py: the {order} order failed: {lines[-1]}")
    return json.loads(process.stdout.strip().splitlines()[-1])


def measure(args: argparse.Namespace) -> Dict[str, Any]:
    """All rounds: by order, ``seconds`` (the median of all steps), ``seconds_all``, ``model`` (the schedule's own
    figures) and ``trace`` (None where MXNet cannot profile the devices)."""
    results: Dict[str, Any] = {order: {"seconds_all": []} for order in ORDERS}
    with tempfile.TemporaryDirectory(prefix="soybean_mx_") as folder:
        for number in range(args.rounds):
            for order in ORDERS:
                print(f"round {number + 1}/{args.rounds}: {order}", file=sys.stderr, flush=True)
                trace = os.path.join(folder, f"{order}.json") if args.profiled and number == 0 else None
                ran = run_order(order, args, trace)
                result = results[order]
                result["seconds_all"] += ran["seconds_all"]
                result.update(first_loss=ran["first_loss"], last_loss=ran["last_loss"], model=ran["schedule"])
                if number == 0:
                    result["trace"] = _traced(trace, ran["backward"], args.output if order == "scheduled" else None)
    for result in results.values():
        result["seconds"] = statistics.median(result["seconds_all"])
    return results


def _traced(path: Optional[str], backward: Sequence[Dict[str, Any]], output: Optional[str]) -> Optional[Dict[str, Any]]:
    if path is None:
        return None
    from soybean_mx import files

    with open(path, encoding="utf-8") as file:
        text = file.read()
    if output:
        files.write_text(output, text)
    return trace_report(json.loads(text), backward)


def table(results: Dict[str, Any]) -> str:
    """The results for people, times in milliseconds."""
    lines = []
    for order, result in results.items():
        model, trace = result["model"], result["trace"]
        lines.append(f"{order}: {1e3 * result['seconds']:.1f} ms a step ({1e3 * min(result['seconds_all']):.1f} to "
                     f"{1e3 * max(result['seconds_all']):.1f}); in the model {1e3 * model['seconds']:.1f}, idle "
                     f"{1e3 * statistics.mean(model['idle']):.1f} a device, no order below "
                     f"{1e3 * model['critical_path']:.1f}")
        if trace is None:
            continue
        lines.append(f"  traced: {1e3 * trace['seconds']:.1f} ms, the backward pass ends at "
                     f"{1e3 * trace['backward_end']:.1f}")
        for device, found in trace["devices"].items():
            lines.append(f"  {device}: busy {1e3 * found['busy']:.1f}, idle {1e3 * found['idle']:.1f}, copies "
                         f"{1e3 * found['copies']:.1f}, of these {1e3 * found['copies_while_computing']:.1f} while a "
                         "device computes")
        for what, title in (("sums", "sums of gradients"), ("updates", "updates")):
            lines.append(f"  {title}: {trace[what]['count']} in {1e3 * trace[what]['seconds']:.1f} ms, "
                         f"{100 * trace[what]['share']:.0f} % before the end of the backward pass")
        lines += [f"    {row['device']}  {row['layer']}: computed {1e3 * row['computed']:.1f} ms before that end, then "
                  f"{row['sums']} sums, {row['updates']} updates"
                  + ("" if row["updated"] is None else f" until {1e3 * row['updated']:.1f} ms before it")
                  for row in trace["layers"]]
    return "\n".join(lines)


def parse_arguments(argv: Optional[List[str]] = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", default="alexnet", help="as for bench_train.py")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step, all devices together")
    parser.add_argument("--devices", default="cpu:2", help="cpu:2, gpu:4 (that many), gpu:0-3, gpu:0,2 (these); above "
                        f"{PROFILED_CPUS} CPU contexts, steps are timed but not traced")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the timed ones, in each round")
    parser.add_argument("--repeat", type=int, default=3, help="timed steps in each round")
    parser.add_argument("--rounds", type=int, default=1, help="rounds through both orders; the first is traced, too")
    parser.add_argument("-o", "--output", default=None, metavar="FILE", help="write MXNet's trace of the scheduled "
                        "order to FILE, for chrome://tracing or Perfetto")
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead")
    args = parser.parse_args(argv)
    for flag in ("batch_size", "repeat", "rounds", "warmup"):
        if getattr(args, flag) < 1:
            parser.error(f"--{flag.replace('_', '-')} {getattr(args, flag)} was given, but at least 1 is needed.")
    args.contexts = _contexts(parser, args.devices)
    args.profiled = not any(kind == "cpu" and index >= PROFILED_CPUS for kind, index in args.contexts)
    if args.output and not args.profiled:
        parser.error(f"--output {args.output} was given for {args.devices}, but MXNet 1.9.1 cannot trace CPU contexts "
                     f"above number {PROFILED_CPUS - 1}: give fewer, or leave --output out.")
    if args.output and not os.path.isdir(os.path.dirname(os.path.abspath(args.output))):
        parser.error(f"--output {args.output} is in a folder that is not there: make it first.")
    return args


def _contexts(parser: argparse.ArgumentParser, text: str) -> List[Tuple[str, int]]:
    try:
        from soybean_mx.devices import DeviceError, parse_devices
    except ImportError:
        sys.exit("trace_step.py needs soybean_mx, which is not installed: run `pip install .[cpu]` in the repository.")
    try:
        return list(parse_devices(text))
    except DeviceError as error:
        return parser.error(f"--devices: {error}")


def main(argv: Optional[List[str]] = None) -> None:
    """Measure and print."""
    args = parse_arguments(argv)
    results = measure(args)
    if args.json:
        print(json.dumps({"model": args.model, "batch_size": args.batch_size, "devices": args.devices, **results}))
    else:
        print(f"{args.model}, batch {args.batch_size}, {args.devices}")
        print(table(results))


if __name__ == "__main__":
    main()
