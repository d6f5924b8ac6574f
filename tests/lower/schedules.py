"""Schedules of random programs under random plans, held against what they say of themselves and against MXNet.

    python -m tests.lower.schedules --seeds 0-100            what can be seen without MXNet's executor
    python -m tests.lower.schedules --seeds 0-100 --bind     and the order in which the executor runs the nodes
    python -m tests.lower.schedules --seeds 0-100 --run      and what both orders compute

A failure prints the seed and what is wrong.
"""
from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from soybean_mx import core
from tests.lower.execution import TiledExecutor, graph_of, head_gradients, run_lowered
from tests.lower.random_plans import draw_case, plan_of, seed_ranges

ROUNDING = 1e-9  # relative to the whole step
EVENT = Tuple[str, str]  # kind and node


def lowered_both_ways(graph: Dict, plan: Dict, copy_engines: bool) -> Dict[str, Dict]:
    """The lowered graph in each order, with the model's timeline."""
    return {order: core.lower(graph, plan, {"order": order, "copy_engines": copy_engines, "timeline": True})
            for order in ("serial", "scheduled")}


def nodes_of(lowered: Dict) -> List[Dict]:
    """The nodes of the lowered symbol, in order."""
    return json.loads(lowered["symbol"])["nodes"]


def graph_problems(lowered: Dict[str, Dict]) -> List[str]:
    """Where the two orders are not orders of the same graph."""
    problems, written = [], {}
    for order, item in lowered.items():
        nodes = nodes_of(item)
        for i, node in enumerate(nodes):
            if any(source >= i for source, *_ in node["inputs"]):
                problems.append(f"{order}: {node['name']} stands before what it takes")
            if node.get("control_deps", []) != ([i - 1] if i else []):
                problems.append(f"{order}: {node['name']} does not follow the node before it")
        written[order] = {n["name"]: (n["op"], n["attrs"], [(nodes[i]["name"], k) for i, k, *_ in n["inputs"]])
                          for n in nodes}
    if written["serial"] != written["scheduled"]:
        problems.append("the orders have different nodes")
    same = ("variables", "outputs", "bytes", "messages")
    if any(lowered["serial"][key] != lowered["scheduled"][key] for key in same):
        problems.append("the orders differ in more than the order")
    return problems


def figure_problems(lowered: Dict[str, Dict]) -> List[str]:
    """Where what the schedules state cannot be."""
    problems = []
    serial, scheduled = (lowered[order]["schedule"] for order in ("serial", "scheduled"))
    margin = ROUNDING * serial["seconds"]
    if scheduled["unscheduled"] != {"seconds": serial["seconds"], "idle": serial["idle"]}:
        problems.append("the unscheduled step is not the one in the serial order")
    if scheduled["seconds"] > serial["seconds"]:
        problems.append(f"scheduled, a step takes {scheduled['seconds']}, and {serial['seconds']} if not")
    for order, schedule in (("serial", serial), ("scheduled", scheduled)):
        if schedule["seconds"] < schedule["critical_path"] - margin:
            problems.append(f"{order}: {schedule['seconds']} is below the critical path, {schedule['critical_path']}")
    return problems


class Timeline:
    """The events of one lowered graph: ``(kind, node)`` of operators, and the copies of a node's output or gradient."""

    def __init__(self, lowered: Dict, copy_engines: bool) -> None:
        self.lowered, self.copy_engines = lowered, copy_engines
        self.nodes = {node["name"]: node for node in nodes_of(lowered)}
        self.names = list(self.nodes)
        self.events = lowered["timeline"]
        self.of: Dict[EVENT, Dict] = {(e["kind"], e["node"]): e for e in self.events if e["kind"] != "copy"}
        self.copies = [e for e in self.events if e["kind"] == "copy"]
        self.seconds = max((e["end"] for e in self.events), default=0.0)
        self.margin = ROUNDING * self.seconds

    def edges(self) -> List[Tuple[EVENT, EVENT]]:
        """What must end before what begins, copies and sums in between aside."""
        found = []
        for name, node in self.nodes.items():
            if node["op"] == "null":
                continue
            sources = [self.names[i] for i, *_ in node["inputs"]]
            found += [(("forward", s), ("forward", name)) for s in sources if self.nodes[s]["op"] != "null"]
            if ("backward", name) in self.of:
                found.append((("forward", name), ("backward", name)))
                found += [(("backward", name), ("backward", s)) for s in sources if ("backward", s) in self.of]
        return found

    def problems(self) -> List[str]:
        """Where the events cannot be."""
        found = self._order_problems() + self._device_problems()
        chain = self._longest_chain()
        if self.lowered["schedule"]["critical_path"] < chain - self.margin:
            found.append(f"a chain of {chain} s is longer than the critical path")
        return found

    def _order_problems(self) -> List[str]:
        return [f"{after} begins before {before} has ended" for before, after in self.edges()
                if self.of[after]["begin"] < self.of[before]["end"] - self.margin]

    def _longest_chain(self) -> float:
        before = defaultdict(list)
        for source, target in self.edges():
            before[target].append(source)
        longest: Dict[EVENT, float] = {}
        # In the order in which they are handed over, nothing comes before what it needs.
        for event in self.events:
            if event["kind"] in ("forward", "backward"):
                key = (event["kind"], event["node"])
                chains = [longest[source] for source in before[key]]
                longest[key] = event["end"] - event["begin"] + max(chains, default=0.0)
        return max(longest.values(), default=0.0)

    def _device_problems(self) -> List[str]:
        problems, schedule = [], self.lowered["schedule"]
        if abs(schedule["seconds"] - self.seconds) > self.margin:
            problems.append(f"the step ends at {self.seconds}, not {schedule['seconds']}")
        for device, idle in enumerate(schedule["idle"]):
            own = sorted((e for e in self.events if e["device"] == device
                          and not (self.copy_engines and e["kind"] == "copy")), key=lambda e: (e["begin"], e["end"]))
            problems += [f"{a['node']} and {b['node']} run on device {device} at one time"
                         for a, b in zip(own, own[1:]) if b["begin"] < a["end"] - self.margin]
            busy = sum(e["end"] - e["begin"] for e in own)
            if abs(self.seconds - busy - idle) > self.margin:
                problems.append(f"device {device} is idle for {self.seconds - busy}, not {idle}")
            if schedule["critical_path"] < busy - self.margin:
                problems.append(f"device {device} has {busy} s to do, more than the critical path")
            products = [e for e in self.events if e["device"] == device and e["kind"] != "copy"
                        and self.nodes[e["node"]]["op"] in ("FullyConnected", "Convolution", "dot")]
            problems += [f"{b['node']} overtakes {a['node']}" for a, b in zip(products, products[1:])
                         if b["begin"] < a["end"] - self.margin]
        return problems


def executor_order(executor: Any) -> List[str]:
    """The names of all nodes of an executor, as it hands them to the engine."""
    return re.findall(r"^Op:\S+, Name=(\S+)", executor.debug_str(), re.M)


def binding_problems(lowered: Dict, executor: Any) -> List[str]:
    """Where MXNet's order is another than the model's. Sums have names of MXNet's own, and some gradients no node."""
    suffix = {"forward": "", "backward": "_backward"}
    model = [e["node"] + suffix[e["kind"]] for e in lowered["timeline"] if e["kind"] in suffix]
    theirs = executor_order(executor)
    both = set(model) & set(theirs)
    ours, theirs = [n for n in model if n in both], [n for n in theirs if n in both]
    if ours == theirs:
        return []
    place = next(i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b)
    return [f"MXNet runs {theirs[place:place + 3]} where the model has {ours[place:place + 3]} ({place} alike)"]


def check_seed(seed: int, bind: bool, run: bool) -> Tuple[List[str], int]:
    """Return what is wrong with the schedules of a seed, and how many are not the serial order."""
    case = draw_case(seed)
    graph = graph_of(case.program)
    plan = plan_of(case, graph, core)
    problems, moved = [], 0
    for copy_engines in (False, True):
        lowered = lowered_both_ways(graph, plan, copy_engines)
        problems += graph_problems(lowered) + figure_problems(lowered)
        differs = lowered["serial"]["symbol"] != lowered["scheduled"]["symbol"]
        moved += differs
        for order, item in lowered.items():
            problems += [f"{order}: {p}" for p in Timeline(item, copy_engines).problems()]
            if bind and (differs or order == "serial"):
                tiled = TiledExecutor(case.program, item, case.devices)
                problems += [f"{order}: {p}" for p in binding_problems(item, tiled.executor)]
        if run and differs:
            heads = head_gradients(case.program, seed)
            results = [run_lowered(case.program, lowered[o], case.devices, heads) for o in lowered]
            problems += _different(*(result.tensors() for result in results))
    return problems, moved


def _different(some: Dict[str, np.ndarray], others: Dict[str, np.ndarray]) -> List[str]:
    return [f"{name} depends on the order" for name, value in some.items()
            if not np.allclose(value, others[name], rtol=1e-4, atol=1e-6 * max(1.0, np.abs(value).max(initial=0)),
                               equal_nan=True)]


def main(arguments: Optional[List[str]] = None) -> int:
    """Check the seeds that the command line gives; the exit status is 1 when one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-20", help="3, 0-500 or 1,7,20-30")
    parser.add_argument("--bind", action="store_true")
    parser.add_argument("--run", action="store_true")
    args = parser.parse_args(arguments)
    failed = moved = seeds = 0
    for seed in seed_ranges(args.seeds):
        print(f"seed {seed}", file=sys.stderr, flush=True)
        problems, differ = check_seed(seed, args.bind, args.run)
        seeds, failed, moved = seeds + 1, failed + bool(problems), moved + differ
        for problem in problems[:4]:
            print(f"FAILED seed {seed}: {problem}")
    print(f"{seeds} seeds, {failed} failed, {moved} schedules that are not the serial order")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
