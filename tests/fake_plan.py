"""A planner that returns all members of a plan that docs/interface.md names, whatever it is asked for."""
from __future__ import annotations

import json
from typing import Any, Dict

from soybean_mx.core import PlanError


class FakePlanner:
    """Stands for ``soybean_mx.core.plan``; keeps what it was asked for.

    The plan splits the batch everywhere, at cuts of 2, gathers every weight and has made-up costs; ``zero`` is refused.
    """

    def __init__(self) -> None:
        self.options: Dict[str, Any] = {}
        self.asked = []

    def __call__(self, graph: Dict[str, Any], options: Dict[str, Any]) -> Dict[str, Any]:
        self.options = json.loads(json.dumps(options))
        self.asked.append(options["strategy"])
        if options["strategy"] == "zero":
            raise PlanError("zero needs\nan optimizer")
        cuts = [2] * (options["devices"].bit_length() - 1)
        nodes = json.loads(graph["symbol"])["nodes"]
        operators = {node["name"]: ["n"] * len(cuts) for node in nodes if node["op"] != "null"}
        weights = [name for name in graph["shapes"] if name.endswith("weight")]
        user = {nodes[source[0]]["name"]: node["name"] for node in nodes for source in node["inputs"]}
        conversions = [{"tensor": name, "from": ["split 0"] * len(cuts), "to": ["replicated"] * len(cuts),
                        "user": user[name], "bytes": 1024 * (1 + index)} for index, name in enumerate(weights)]
        moved = sum(item["bytes"] for item in conversions)
        timed = {"communication": 0.01, "compute": 0.5, "total": 0.51} if "topology" in options else None
        return {
            "version": 1, "devices": options["devices"], "cuts": cuts, "strategy": options["strategy"],
            "tensors": {name: ["split 0"] * len(cuts) for name in graph["shapes"]}, "operators": operators,
            "whole": ["odd_op"], "bytes": {"forward": moved // 2, "backward": moved - moved // 2, "total": moved},
            "messages": 12, "exact": False, "lower_bound_bytes": moved // 2, "objective": "bytes",
            "objective_value": moved, "lower_bound": moved // 2, "gap": 1.0, "search_seconds": 0.25, "nodes": 7,
            "width": 3, "conversions": conversions,
            "memory": {"parameters": 1, "gradients": 1, "optimizer": 0, "activations": 1, "conversions": 1,
                       "workspace": 1, "peak": 13 * 2 ** 30},
            **({"predicted_seconds": timed} if timed else {}),
        }
