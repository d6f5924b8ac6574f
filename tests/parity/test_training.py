"""Whole networks train tiled as on one device: outputs, every gradient, and the parameters after 10 steps.

A run is named ``model-optimizer-dtype-devices-strategy`` (tests/parity/train.py) and can be run alone:
``python -m tests.parity.train /tmp mlp-sgd-float64-8-optimal``. Runs of one model share a child process; when one
crashes it, the runs after it go on in another.

By default a selection runs, in which every model meets every number of devices and every strategy; all 384 run with
SOYBEAN_MX_TEST_FULL=1.
"""
from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List

import numpy as np
import pytest

from tests.child import run_each
from tests.models import MODELS
from tests.parity.comparison import disagreements
from tests.parity.train import OPTIMIZERS, Run

DEVICES = (2, 3, 4, 6, 8, 16)
STRATEGIES = ("optimal", "data", "model", "recursive")
DTYPES = ("float64", "float32")
CHILDREN = 2
SECONDS_PER_RUN = 60
FULL = os.environ.get("SOYBEAN_MX_TEST_FULL", "0") not in ("", "0")


def all_runs() -> List[Run]:
    """Return every combination."""
    return [Run(*names) for names in itertools.product(MODELS, OPTIMIZERS, DTYPES, DEVICES, STRATEGIES)]


def selected_runs() -> List[Run]:
    """Return two runs for every model and number of devices, with strategy, optimizer and dtype in turn.

    For every model, each strategy is met three times and each pair of optimizer and dtype three times.
    """
    kinds = list(itertools.product(OPTIMIZERS, DTYPES))
    runs = []
    for m, model in enumerate(MODELS):
        for d, devices in enumerate(DEVICES):
            for k in range(2):
                optimizer, dtype = kinds[(d + 2 * k + m) % len(kinds)]
                strategy = STRATEGIES[(m + d + k + d // 4) % len(STRATEGIES)]
                runs.append(Run(model, optimizer, dtype, devices, strategy))
    return runs


RUNS = all_runs() if FULL else selected_runs()


def run_all(folder: Path, names: List[str]) -> Dict[str, str]:
    """Train the runs of these names and return, by name, why one failed."""
    return run_each("tests.parity.train", folder, names, ".npz", SECONDS_PER_RUN)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of the dumped runs, and the failures by name."""
    folder = tmp_path_factory.mktemp("parity")
    by_model = [[r for r in RUNS if r.model == model] for model in MODELS]
    tasks = [sorted({r.plain.name for r in runs}) for runs in by_model] + [[r.name for r in runs] for runs in by_model]
    failures: Dict[str, str] = {}
    with ThreadPoolExecutor(CHILDREN) as pool:
        for result in pool.map(lambda names: run_all(folder, names), tasks):
            failures.update(result)
    return folder, failures


@pytest.mark.parametrize("run", RUNS, ids=lambda r: r.name)
def test_training_agrees_with_one_device(trained, run):
    folder, failures = trained
    for name in (run.plain.name, run.name):
        if name in failures:
            pytest.fail(failures[name], pytrace=False)
    plain, tiled = (np.load(folder / f"{n}.npz") for n in (run.plain.name, run.name))
    lines = disagreements(plain, tiled, run.dtype)
    if lines:
        pytest.fail("\n".join(lines[:8]), pytrace=False)


def test_a_wrong_gradient_is_found(trained):
    """The comparison itself: a gradient or parameter that is off by 1e-3, or a lost tensor, is reported."""
    folder, _ = trained
    plain = dict(np.load(folder / f"{RUNS[0].plain.name}.npz"))
    dtype = RUNS[0].dtype
    assert not disagreements(plain, plain, dtype)
    for kind in ("gradient of", "parameter", "output 9"):
        name = next(n for n in plain if n.startswith(kind))
        assert disagreements(plain, {**plain, name: plain[name] * 1.001}, dtype)
        assert disagreements(plain, {n: v for n, v in plain.items() if n != name}, dtype)
