"""One contender of ``bench_train.py``, run in a process of its own: ``bench_contender.py CONFIGURATION``.

The configuration is a JSON object: that of ``soybean_mx.benchmark.training_step.run``, with ``model`` and
``sequence_length`` for ``benchmark_tasks.py``. The last line of the output is the result. The environment (threads,
``SOYBEAN_MX``) is the parent's to set.
"""
from __future__ import annotations

import json
import sys
from typing import Any, Dict

from soybean_mx import startup


def run(config: Dict[str, Any]) -> Dict[str, Any]:
    """Measure one contender."""
    if config["kind"] != "soybean_mx":
        startup.remove()
    from soybean_mx.benchmark import training_step

    import benchmark_tasks

    return training_step.run(config, benchmark_tasks.task(config["model"], config.get("sequence_length")))


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
