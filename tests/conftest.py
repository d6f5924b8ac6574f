"""Settings of every test: one thread per CPU context, set before MXNet is first imported."""
from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MXNET_CPU_TEMP_COPY", "64")


def pytest_configure(config):
    config.addinivalue_line("markers", "full: the whole matrix; run with SOYBEAN_MX_TEST_FULL=1")
