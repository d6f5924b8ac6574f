"""Writes docs/mxnet_bugs.md: what each script of this folder says of itself, its text, and how it ended.

python -m tests.mxnet_bugs.page

Each script shows one fault of MXNet in plain MXNet. Its docstring says what, what is expected, what is seen, and how
the project avoids it.
"""
from __future__ import annotations

import ast
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List

from soybean_mx.files import write_text

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "mxnet_bugs.md"
SECONDS = 120
# These read or write memory that is not theirs, and end in one way or another by chance.
BY_CHANCE = ("dsplit_axis", "insert_number", "layouts_of_shared_memory", "profiler_of_many_contexts", "resize_like",
             "sgd_of_many_tensors", "unravel_index", "while_loop_again")

HEAD = """# Faults of MXNet that were met

In MXNet 1.9.1 on CPUs. Each has a script of plain MXNet, here and in `tests/mxnet_bugs/`, that shows it: run it from
the repository, `PYTHONPATH=. python tests/mxnet_bugs/NAME.py`. This page is written by
`python -m tests.mxnet_bugs.page`; a test runs every script and compares how it ends.

"""


def scripts() -> List[Path]:
    """Return the scripts that show a fault, by name."""
    return sorted(path for path in HERE.glob("*.py") if path.stem not in ("__init__", "page"))


def ending(script: Path) -> str:
    """Run a script and say how it ended."""
    if script.stem in BY_CHANCE:
        return "ends in one way or another, as it meets memory that is not its own"
    status = subprocess.run([sys.executable, str(script)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            timeout=SECONDS).returncode
    if status == 0:
        return "runs to its end"
    return "ends with an error" if status == 1 else f"ends by signal {abs(status)}"


def section(script: Path, ended: str) -> str:
    """Return a script's part of the page."""
    source = script.read_text(encoding="utf-8")
    title, _, rest = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    code = source.split('"""\n', 2)[-1].strip()
    return (f"## {title.rstrip('.')}\n\n{rest.strip()}\n\n`tests/mxnet_bugs/{script.name}` {ended}:\n\n"
            f"```python\n{code}\n```\n")


def main() -> None:
    """Run all scripts and write the page."""
    found = scripts()
    with ThreadPoolExecutor(2) as pool:
        endings = list(pool.map(ending, found))
    write_text(str(PAGE), HEAD + "\n".join(map(section, found, endings)))


if __name__ == "__main__":
    main()
