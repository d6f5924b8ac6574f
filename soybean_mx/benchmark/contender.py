"""One contender of a benchmark, in a process of its own: ``python -m soybean_mx.benchmark.contender CONFIGURATION``.

The configuration is a JSON object: that of :func:`soybean_mx.benchmark.training_step.run`, with ``task``, a
``module:function`` and its arguments. The last line of the output is the result. The environment (threads,
``SOYBEAN_MX``) is the parent's to set.
"""
from __future__ import annotations

import importlib
import json
import sys
from typing import Any, Dict

from soybean_mx import startup


def run(config: Dict[str, Any]) -> Dict[str, Any]:
    """Measure one contender. Plain MXNet's sees nothing of soybean_mx."""
    if config["kind"] != "soybean_mx":
        startup.remove()
    from soybean_mx.benchmark import training_step  # imports MXNet

    name, *arguments = config["task"]
    module, _, function = name.partition(":")
    task = getattr(importlib.import_module(module), function)(*arguments)
    return training_step.run(config, task)


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
