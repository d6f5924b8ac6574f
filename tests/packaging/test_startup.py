"""The start-up hook, each time in a new process: silent without the variable, in time with it, clear when it fails."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, Optional, Tuple

import pytest

from tests.child import ROOT, run_child

HOOK = ROOT / "soybean_mx.pth"

# What Python does with the hook when it starts.
RUN_HOOK = f"import sys\nexec(open({str(HOOK)!r}).read())\n"

# A front that says what it is given, in place of soybean_mx.gluon_front.
FRONT = """
import types
front = types.ModuleType("soybean_mx.gluon_front")
front.install = lambda devices: print("patched", devices, "gluon" in dir(sys.modules["mxnet"]))
sys.modules["soybean_mx.gluon_front"] = front
"""

NOT_SET: Dict[str, Optional[str]] = {"SOYBEAN_MX": None, "SOYBEAN_MX_DEVICES": None, "OMP_NUM_THREADS": None,
                                     "MXNET_CPU_TEMP_COPY": None}


def on(devices: Optional[str] = "cpu:2", **more: str) -> Dict[str, Optional[str]]:
    return {**NOT_SET, "SOYBEAN_MX": "1", "SOYBEAN_MX_DEVICES": devices, **more}


def run_failing(source: str, env: Dict[str, Optional[str]]) -> Tuple[str, str]:
    """Standard output and error of a program that must end with a failure, and not by a signal."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **{k: v for k, v in env.items() if v is not None}}
    for name in (name for name, value in env.items() if value is None):
        environment.pop(name, None)
    result = subprocess.run([sys.executable, "-c", source], env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, universal_newlines=True, timeout=120)
    assert result.returncode > 0
    return result.stdout, result.stderr


@pytest.mark.parametrize("value", [None, "", "0"])
def test_nothing_is_imported_without_the_variable(value):
    source = ("import sys\nbefore = set(sys.modules)\n" + RUN_HOOK +
              "assert set(sys.modules) <= before | {'os'}, set(sys.modules) - before\n"
              "assert not any('soybean' in repr(finder) for finder in sys.meta_path if 'editable' not in repr(finder))")
    run_child(source, env={**NOT_SET, "SOYBEAN_MX": value})


def test_the_hook_alone_imports_neither_mxnet_nor_numpy():
    run_child(RUN_HOOK + "assert 'soybean_mx' in sys.modules\n"
              "assert not {'mxnet', 'numpy', 'soybean_mx.gluon_front'} & set(sys.modules)", env=on())


def test_patched_as_soon_as_mxnet_is_imported():
    source = RUN_HOOK + FRONT + "import json\nprint('before')\nimport mxnet\nprint('after', mxnet.__spec__.loader)"
    lines = run_child(source, env=on("cpu:1,3")).splitlines()
    assert lines[:2] == ["before", "patched [cpu(1), cpu(3)] True"]
    assert "SourceFileLoader" in lines[2]


def test_patched_when_a_part_of_mxnet_is_imported():
    source = RUN_HOOK + FRONT + "from mxnet.gluon import nn\nfrom mxnet import autograd"
    assert run_child(source, env=on()) == "patched [cpu(0), cpu(1)] True\n"


def test_default_devices():
    assert run_child(RUN_HOOK + FRONT + "import mxnet", env=on(None)).startswith("patched [")


def test_settings_that_mxnet_reads_at_its_start():
    names = ["MXNET_CPU_TEMP_COPY", "OMP_NUM_THREADS"]
    source = RUN_HOOK + FRONT + f"import os, mxnet\nprint(*[os.environ[name] for name in {names}])"
    cores = len(os.sched_getaffinity(0))
    assert run_child(source, env=on("cpu:2")).split()[-2:] == ["64", str(max(1, cores // 2))]
    assert run_child(source, env=on("cpu:100", OMP_NUM_THREADS="3")).split()[-2:] == ["100", "3"]
    assert run_child(source, env=on("cpu:2", MXNET_CPU_TEMP_COPY="5")).split()[-2] == "5"


@pytest.mark.parametrize("devices, part", [
    ("gpux", "has no numbers after a colon"),
    ("", "is empty"),
    ("cpu:1,1", "device 1 twice"),
    ("gpu:900", "MXNet sees"),
])
def test_a_device_list_that_cannot_be_used_ends_the_program_in_one_sentence(devices, part):
    source = RUN_HOOK + FRONT + ("print('started', flush=True)\ntry:\n    import mxnet\nexcept Exception:\n    pass\n"
                                 "print('went on')")
    out, err = run_failing(source, on(devices))
    assert out == "started\n"
    lines = [line for line in err.splitlines() if line]
    assert len(lines) == 1, err
    assert lines[0].startswith("soybean_mx: SOYBEAN_MX_DEVICES: ") and part in lines[0] and repr(devices) in lines[0]


def test_a_program_without_mxnet_is_not_disturbed_by_a_bad_device_list():
    source = RUN_HOOK + "import json, importlib.util\nimportlib.util.find_spec('mxnet')\nprint('done')"
    assert run_child(source, env=on("nonsense")) == "done\n"


def test_a_front_that_fails_is_reported():
    source = RUN_HOOK + FRONT + ("def fail(devices):\n    raise RuntimeError('the reason')\n"
                                 "front.install = fail\nimport mxnet")
    _, err = run_failing(source, on())
    assert "RuntimeError: the reason" in err


def test_a_missing_mxnet_gives_the_usual_error():
    source = RUN_HOOK + ("import soybean_mx.startup\nreal = sys.path[:]\n"
                         "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\nimport mxnet")
    _, err = run_failing(source, on())
    assert "ModuleNotFoundError: No module named 'mxnet'" in err


def test_other_import_hooks_work_beside_it():
    source = RUN_HOOK + FRONT + """
import importlib.abc, importlib.util
class Other(importlib.abc.MetaPathFinder):
    active = False
    def find_spec(self, name, path=None, target=None):
        if name != "mxnet" or Other.active:
            return None
        Other.active = True
        try:
            return importlib.util.find_spec(name)
        finally:
            Other.active = False
sys.meta_path.insert(0, Other())
sys.meta_path.append(Other())
import mxnet
"""
    assert run_child(source, env=on()) == "patched [cpu(0), cpu(1)] True\n"


def test_a_module_of_ours_may_be_what_imports_mxnet(tmp_path):
    """Patching waits until the module that imports MXNet is itself complete."""
    (tmp_path / "probe.py").write_text("import mxnet\ncomplete = True\n")
    (tmp_path / "gluon_front.py").write_text(
        "from soybean_mx.probe import complete\n"
        "def install(devices):\n    print('patched', complete)\n")
    for first in ("gluon_front", "probe"):
        source = RUN_HOOK + (f"import soybean_mx\nsoybean_mx.__path__.insert(0, {str(tmp_path)!r})\n"
                             f"import soybean_mx.{first}\nprint('done')")
        assert run_child(source, env=on()) == "patched True\ndone\n"


def test_too_late_is_patched_with_a_warning():
    source = "import os, sys, warnings, mxnet\n" + FRONT + """
os.environ["SOYBEAN_MX"] = "1"
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import soybean_mx
print([str(w.message) for w in seen if "soybean_mx" in str(w.message)])
"""
    # Set within the process: an installed hook would have been in time.
    out = run_child(source, env={**on(), "SOYBEAN_MX": None})
    assert out.startswith("patched [cpu(0), cpu(1)] True\n")
    assert "after MXNet had been imported" in out


def test_importing_the_package_without_the_variable_imports_nothing_heavy():
    run_child("import sys, soybean_mx\nassert not {'mxnet', 'numpy'} & set(sys.modules)\nsoybean_mx.library_path",
              env=NOT_SET)


@pytest.mark.parametrize("imports", ["import soybean_mx, mxnet", "import mxnet, soybean_mx"])
def test_importing_the_package_makes_the_backend_known(imports):
    source = f"import sys\n{FRONT}\nfront.install = lambda devices: print('patched', devices)\n{imports}"
    assert run_child(source, env={**NOT_SET, "SOYBEAN_MX_DEVICES": "nonsense"}) == "patched None\n"


GLUON_PROGRAM = """
import mxnet as mx
from mxnet import autograd, gluon
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.Dense(4))
net.initialize(mx.init.Xavier())
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
data, label = mx.nd.ones((8, 6)), mx.nd.zeros((8,))
for _ in range(3):
    with autograd.record():
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label)
    loss.backward()
    trainer.step(8)
print(sorted({str(tile.context) for p in net.collect_params().values() for tile in p.list_data()}))
"""


@pytest.mark.parametrize("devices, contexts", [("cpu:2", "['cpu(0)', 'cpu(1)']"), ("cpu:3,1", "['cpu(1)', 'cpu(3)']")])
def test_an_unchanged_program_trains_on_the_devices(devices, contexts):
    assert run_child(RUN_HOOK + GLUON_PROGRAM, env=on(devices)).splitlines()[-1] == contexts
    assert run_child(RUN_HOOK + GLUON_PROGRAM, env=NOT_SET).splitlines()[-1] == "['cpu(0)']"


def run_command(arguments, tmp_path: Path) -> Tuple[int, str, str]:
    environment = {k: v for k, v in os.environ.items() if k not in NOT_SET}
    result = subprocess.run([sys.executable, "-m", "soybean_mx", *arguments], cwd=str(tmp_path),
                            env={**environment, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, universal_newlines=True, timeout=120)
    return result.returncode, result.stdout, result.stderr


def test_run_command(tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    (tmp_path / "script.py").write_text(
        "import sys\n" + FRONT + "import mxnet, beside\nprint(__name__, sys.argv, beside.VALUE)\nsys.exit(3)\n")
    arguments = ["run", "--devices", "cpu:3", "script.py", "--epochs", "2", "--devices", "x"]
    status, out, err = run_command(arguments, tmp_path)
    assert (status, out) == (3, "patched [cpu(0), cpu(1), cpu(2)] True\n"
                                "__main__ ['script.py', '--epochs', '2', '--devices', 'x'] 7\n"), err


@pytest.mark.parametrize("arguments, part", [
    (["run", "--devices", "gpu:0-x", "script.py"], "'gpu:0-x'"),
    (["run", "missing.py"], "'missing.py'"),
    (["run"], "script"),
    (["fly"], "fly"),
])
def test_run_command_refuses(tmp_path, arguments, part):
    (tmp_path / "script.py").write_text("print('ran')\n")
    status, out, err = run_command(arguments, tmp_path)
    assert status == 2 and out == "" and part in err and "Traceback" not in err


def test_version(tmp_path):
    import soybean_mx
    assert run_command(["--version"], tmp_path)[:2] == (0, f"soybean_mx {soybean_mx.__version__}\n")
