"""``soybean-mx doctor``: what is found, what is wrong, and that a crash is a line of the report."""
from __future__ import annotations

import json

import pytest

from soybean_mx import cli, doctor
from soybean_mx.doctor import NOTE, OK, WRONG


def by_check(findings):
    return {finding.check: finding for finding in findings}


def test_this_installation(capsys):
    """All is well but for the start-up hook, which a checkout on PYTHONPATH alone does not have, and the explorer's
    libraries, which are not there where npm was not when the package was built."""
    status = cli.main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    found = {finding["check"]: finding for finding in report["findings"]}
    missing = [found.pop(check)["status"] for check in ("start-up hook", "plan explorer")]
    assert all(finding["status"] != WRONG for finding in found.values()), found
    assert {"Python", "MXNet", "numpy", "planner", "graph pass", "a training step on 2 CPU contexts"} <= set(found)
    assert (status, report["well"]) == ((1, False) if WRONG in missing else (0, True))


def test_a_crash_is_a_line_of_the_report(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -SEGV $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(doctor.sys, "executable", str(python))
    finding, = doctor._training()
    assert finding.status == WRONG and finding.found == "it ends by SIGSEGV" and finding.remedy
    assert [finding.status for finding in doctor._library()] == [WRONG] * 3


def test_a_probe_that_fails_says_why():
    with pytest.raises(doctor._ProbeError, match="fails: KeyError: 'nothing'"):
        doctor._probe("nothing")


def test_a_check_that_fails_leaves_the_others(monkeypatch, capsys):
    def fails():
        raise OSError("no such thing")

    for name in ("_python", "_mxnet", "_library", "_training", "_hook"):
        monkeypatch.setattr(doctor, name, fails)
    assert cli.main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("cannot be checked: OSError: no such thing") == 5 and "numpy" in printed


@pytest.mark.parametrize("variables, check, status, words", [
    ({}, "environment", OK, "nothing is set"),
    ({"SOYBEAN_MX_DEVICE": "cpu:2"}, "SOYBEAN_MX_DEVICE", WRONG, "SOYBEAN_MX_DEVICES?"),
    ({"SOYBEAN_MX_DEVICES": "tpu:2"}, "SOYBEAN_MX_DEVICES", WRONG, "only cpu and gpu exist"),
    ({"SOYBEAN_MX_DEVICES": "cpu:8"}, "SOYBEAN_MX_DEVICES", OK, ""),
    ({"SOYBEAN_MX_PINS": "{"}, "SOYBEAN_MX_PINS", WRONG, "cannot be read"),
    ({"SOYBEAN_MX_STRATEGY": "best"}, "SOYBEAN_MX_STRATEGY", WRONG, "optimal"),
    ({"SOYBEAN_MX_STRATEGY": "random:3"}, "SOYBEAN_MX_STRATEGY", OK, ""),
    ({"SOYBEAN_MX_MICROBATCHES": "0"}, "SOYBEAN_MX_MICROBATCHES", WRONG, "1 or more"),
    ({"SOYBEAN_MX_CONVERSIONS": "local"}, "SOYBEAN_MX_CONVERSIONS", NOTE, "mean nothing"),
    ({"MXNET_EXEC_INPLACE_GRAD_SUM_CAP": "1"}, "MXNET_EXEC_INPLACE_GRAD_SUM_CAP", WRONG, "unset"),
    ({"MXNET_ENGINE_TYPE": "NaiveEngine"}, "MXNET_ENGINE_TYPE", NOTE, "unset"),
    ({"SOYBEAN_MX_DEVICES": "cpu:8", "MXNET_CPU_TEMP_COPY": "4"}, "MXNET_CPU_TEMP_COPY", NOTE, "8 contexts share 4"),
    ({"SOYBEAN_MX_DEVICES": "cpu:64", "OMP_NUM_THREADS": "9"}, "OMP_NUM_THREADS", NOTE, "64 contexts of 9"),
])
def test_environment_variables(variables, check, status, words):
    finding = by_check(doctor.environment(variables))[check]
    assert finding.status == status and words in f"{finding.found} {finding.remedy}"


@pytest.mark.parametrize("listed, cuda, status, words", [
    (None, False, OK, "none"),
    (None, True, WRONG, "nvidia-smi"),
    ("0, Tesla K80, 11441 MiB, 3.7\n", True, WRONG, "Maxwell to Ampere"),
    ("0, Tesla V100-SXM2-16GB, 16160 MiB, 7.0\n", True, OK, "capability 7.0"),
    ("0, NVIDIA H200, 143771 MiB, 9.0\n", True, WRONG, "CPU contexts"),
    ("0, NVIDIA A10G, 23028 MiB, 8.6\n", False, NOTE, "build for CPUs"),
])
def test_gpus(listed, cuda, status, words):
    finding, = doctor.gpu_findings(listed, cuda)
    assert finding.status == status and words in f"{finding.found} {finding.remedy}"
