"""One model of ``bench_planner.py``, planned in a process of its own: ``plan_measurement.py REQUEST``.

The request is a JSON object with the members of ``Request`` in ``bench_planner.py``. The output is one JSON object per
line, as soon as it is known, so that a process that is ended leaves what it has measured: ``{"devices": ..., ...}`` for
every plan. A model that cannot be loaded gives ``{"skipped": reason}``.
"""
from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any, Dict, List

from soybean_mx import core, model_loading
from soybean_mx.benchmark.training_step import process_peak_bytes

MEASURED = ("lower_bound_bytes", "exact", "gap", "nodes", "width")


def loaded(request: Dict[str, Any], devices: int) -> model_loading.LoadedModel:
    """The model with the batch for a number of devices."""
    batch = request["batch_size"] or request["samples_per_device"] * devices
    if request["sample_shapes"] is None:
        return model_loading.load(request["model"], batch)
    return model_loading.load(request["model"], input_shapes=[(batch, *shape) for shape in request["sample_shapes"]])


def optimal(model: model_loading.LoadedModel, devices: int, request: Dict[str, Any]) -> Dict[str, Any]:
    """Plan a model ``repeat`` times, or until ``patience`` seconds have passed.

    Returns
    -------
    dict
        ``seconds``, the median time of the search; ``call_seconds``, of a whole call of the planner; ``repeats``; the
        plan's ``bytes`` and MEASURED; ``peak_bytes`` of the process so far, ``base_bytes`` before the plan.
    """
    base, searches, calls = process_peak_bytes(), [], []
    began = time.perf_counter()
    while len(calls) < request["repeat"] and (not calls or time.perf_counter() - began < request["patience"]):
        start = time.perf_counter()
        plan = core.plan(model.graph, {"devices": devices})
        calls.append(time.perf_counter() - start)
        searches.append(plan["search_seconds"])
    return {"devices": devices, "strategy": "optimal", "batch_size": model.batch_size,
            "seconds": statistics.median(searches), "call_seconds": statistics.median(calls), "repeats": len(calls),
            "bytes": plan["bytes"]["total"], **{name: plan[name] for name in MEASURED},
            "base_bytes": base, "peak_bytes": process_peak_bytes()}


def baseline(model: model_loading.LoadedModel, devices: int, strategy: str) -> Dict[str, Any]:
    """Plan a model once by the rule of a baseline: its ``bytes`` and ``seconds``, or the ``error`` that refused it."""
    found: Dict[str, Any] = {"devices": devices, "strategy": strategy}
    try:
        plan = core.plan(model.graph, {"devices": devices, "strategy": strategy})
    except core.PlanError as error:
        return {**found, "error": " ".join(str(error).split())}
    return {**found, "bytes": plan["bytes"]["total"], "seconds": plan["search_seconds"]}


def main(argv: List[str]) -> None:
    """Plan and print. Baselines come last, so that peak memory is that of the optimal plans."""
    request = json.loads(argv[0])

    def tell(item: Dict[str, Any]) -> None:
        print(json.dumps(item), flush=True)

    for strategy in ("optimal", *request["baselines"]):
        for devices in sorted(request["devices"]):
            try:
                model = loaded(request, devices)
            except model_loading.ModelError as error:
                return tell({"skipped": str(error)})
            tell(optimal(model, devices, request) if strategy == "optimal" else baseline(model, devices, strategy))


if __name__ == "__main__":
    main(sys.argv[1:])
