"""Loads the NVIDIA libraries that pip installed, so that MXNet's CUDA build finds them.

``libmxnet.so`` of ``mxnet-cu112`` asks the dynamic linker for libcudart, libcudnn and so on by name. NVIDIA's wheels
put them below ``site-packages/nvidia``, where the linker does not look; a library that the process has already loaded
is found by its name, so loading them first, dependencies before dependents, takes the place of LD_LIBRARY_PATH.
"""
from __future__ import annotations

import ctypes
import glob
import os
import sys
from importlib import metadata
from typing import List

# (folder below nvidia/, file pattern in its lib/), dependencies first.
_LIBRARIES = (
    ("cuda_runtime", "libcudart.so.11*"),
    ("cuda_nvrtc", "libnvrtc-builtins.so.11*"),
    ("cuda_nvrtc", "libnvrtc.so.11*"),
    ("nvtx", "libnvToolsExt.so.1"),
    ("cublas", "libcublasLt.so.11"),
    ("cublas", "libcublas.so.11"),
    ("cufft", "libcufft.so.10"),
    ("curand", "libcurand.so.10"),
    ("cusparse", "libcusparse.so.11"),
    ("cusolver", "libcusolver.so.11"),
    ("nccl", "libnccl.so.2"),
    # libcudnn opens the others by name when it first needs them.
    ("cudnn", "libcudnn.so.8"),
    ("cudnn", "libcudnn_ops_infer.so.8"),
    ("cudnn", "libcudnn_ops_train.so.8"),
    ("cudnn", "libcudnn_cnn_infer.so.8"),
    ("cudnn", "libcudnn_cnn_train.so.8"),
    ("cudnn", "libcudnn_adv_infer.so.8"),
    ("cudnn", "libcudnn_adv_train.so.8"),
)


def preload() -> List[str]:
    """Load the NVIDIA libraries into this process when MXNet's CUDA build is installed.

    A library that is missing or does not load is left out: the dynamic linker may know another copy, and if not,
    MXNet's own import error names the file.

    Returns
    -------
    list of str
        The paths that were loaded; empty for MXNet's CPU build.
    """
    if not _cuda_build_installed():
        return []
    loaded = []
    for folder, pattern in _LIBRARIES:
        for path in _found(folder, pattern):
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue
            loaded.append(path)
    return loaded


def _cuda_build_installed() -> bool:
    try:
        metadata.distribution("mxnet-cu112")
    except metadata.PackageNotFoundError:
        return False
    return True


def _found(folder: str, pattern: str) -> List[str]:
    for entry in sys.path:
        paths = sorted(glob.glob(os.path.join(entry or ".", "nvidia", folder, "lib", pattern)))
        if paths:
            return paths
    return []
