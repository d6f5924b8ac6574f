"""NVIDIA's libraries are loaded from pip's folders, dependencies first, and only for MXNet's CUDA build."""
from __future__ import annotations

import shutil
import sys

import pytest

import soybean_mx
from soybean_mx import cuda_libraries


@pytest.fixture
def nvidia(tmp_path, monkeypatch):
    """A folder as pip fills it; any library that loads stands for NVIDIA's."""
    for folder, name in (
            ("cudnn", "libcudnn.so.8"), ("cuda_runtime", "libcudart.so.11.0"), ("cublas", "libcublas.so.11")):
        target = tmp_path / "nvidia" / folder / "lib"
        target.mkdir(parents=True)
        shutil.copy(soybean_mx.library_path(), str(target / name))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "elsewhere"), str(tmp_path)])
    return tmp_path / "nvidia"


def test_in_the_order_of_dependence(nvidia, monkeypatch):
    monkeypatch.setattr(cuda_libraries, "_cuda_build_installed", lambda: True)
    assert cuda_libraries.preload() == [str(nvidia / path) for path in (
        "cuda_runtime/lib/libcudart.so.11.0", "cublas/lib/libcublas.so.11", "cudnn/lib/libcudnn.so.8")]


def test_a_library_that_does_not_load_is_left_to_the_linker(nvidia, monkeypatch):
    monkeypatch.setattr(cuda_libraries, "_cuda_build_installed", lambda: True)
    (nvidia / "cublas" / "lib" / "libcublas.so.11").write_text("no library")
    assert len(cuda_libraries.preload()) == 2


def test_nothing_is_loaded_for_the_cpu_build(nvidia, monkeypatch):
    monkeypatch.setattr(cuda_libraries, "_cuda_build_installed", lambda: False)
    assert cuda_libraries.preload() == []
