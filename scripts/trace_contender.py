"""One order of ``trace_step.py``, run in a process of its own: ``trace_contender.py CONFIGURATION``.

The configuration is a JSON object: ``model``, ``batch_size``, ``dtype``, ``warmup``, ``repeat``, ``contexts``, and
``trace``, the file for MXNet's trace of one step more, or null. The last line of the output is the result:
``seconds_all``, ``first_loss``, ``last_loss``, the ``schedule`` of the lowered step and its ``backward`` operators in
the order in which MXNet is given them. The environment (threads, ``SOYBEAN_MX``, ``SOYBEAN_MX_ORDER``) is the
parent's to set.
"""
from __future__ import annotations

import json
import sys
from typing import Any, Dict, List

import soybean_mx  # noqa: F401  its start-up hook, for where the package is on the path but not installed
from soybean_mx import core

import mxnet as mx  # isort: skip

from soybean_mx.benchmark import training_step  # isort: skip

import benchmark_tasks


def record_lowering() -> List[Dict[str, Any]]:
    """Have all lowered graphs of this process kept, with the timeline of the model."""
    kept, lower = [], core.lower

    def kept_lower(graph: Dict[str, Any], plan: Dict[str, Any], options: Dict[str, Any]) -> Dict[str, Any]:
        kept.append(lower(graph, plan, {**options, "timeline": True}))
        return kept[-1]

    core.lower = kept_lower
    return kept


def backward_operators(lowered: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The operators of the backward pass, in order: ``operator``, ``node`` and ``device`` of the forward ones."""
    operators = {node["name"]: node["op"] for node in json.loads(lowered["symbol"])["nodes"]}
    return [{"operator": operators[event["node"]], "node": event["node"], "device": event["device"]}
            for event in lowered["timeline"] if event["kind"] == "backward"]


def run(config: Dict[str, Any]) -> Dict[str, Any]:
    """Time the steps, and then trace one."""
    lowerings = record_lowering()
    contexts = [mx.Context(kind, index) for kind, index in config["contexts"]]
    task = benchmark_tasks.task(config["model"])
    net = training_step.make_network(task, config, contexts[:1])
    step = training_step.serial_step(task, net, config, contexts[0])
    timed = training_step.time_steps(step, config["warmup"], config["repeat"])
    if config["trace"]:
        mx.profiler.set_config(profile_all=True, filename=config["trace"], aggregate_stats=False)
        mx.profiler.set_state("run")
        step()
        mx.nd.waitall()
        mx.profiler.set_state("stop")
        mx.profiler.dump()
    lowered = max(lowerings, key=lambda item: len(item["symbol"]))  # the network's, not the loss's
    return {"seconds_all": timed["seconds_all"], "first_loss": timed["first_loss"], "last_loss": timed["last_loss"],
            "schedule": lowered["schedule"], "backward": backward_operators(lowered)}


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
