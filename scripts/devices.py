"""From ``--devices`` to an environment in which an ordinary Gluon program trains on those devices."""
from __future__ import annotations

import os
import sys
from typing import Optional

DEFAULT = "cpu:2"
STRATEGIES = ("optimal", "data", "model", "owt", "megatron", "zero", "spartan", "recursive")

PARALLEL = ("tiling", "pipeline")
# As of soybean_mx.pipeline.schedule, which the parser of the flags does not need to be there.
SCHEDULES = ("gpipe", "flush", "interleaved", "1f1b", "1f1b-vertical-sync", "2bw")
DEFAULT_SCHEDULE = "1f1b"


def requested(flag: Optional[str]) -> Optional[str]:
    """The devices to train on: what ``--devices`` says, else the environment, else ``cpu:2``.

    Parameters
    ----------
    flag : str or None
        The value of ``--devices``, None when it was not given.

    Returns
    -------
    str or None
        A device list such as ``cpu:8``; None stands for plain MXNet on one device.

    Raises
    ------
    SystemExit
        With a message, if ``--devices none`` and the environment contradict each other.
    """
    switch = os.environ.get("SOYBEAN_MX")
    if flag is not None and flag.strip().lower() != "none":
        return flag
    if flag is not None:
        # The start-up hook has seen the variable already, and would tile.
        if switch not in (None, "", "0"):
            sys.exit(f"--devices none was given with SOYBEAN_MX={switch} in the environment; unset SOYBEAN_MX.")
        return None
    if switch in ("", "0"):
        return None
    return os.environ.get("SOYBEAN_MX_DEVICES", DEFAULT)


def set_up(devices: Optional[str], strategy: Optional[str], parallel: str = "tiling") -> None:
    """Make the ``import mxnet`` that comes next the one that tiles over `devices`; call it before that import.

    The same as starting the program with ``SOYBEAN_MX=1 SOYBEAN_MX_DEVICES=...``.

    Parameters
    ----------
    devices : str or None
        A device list; None for plain MXNet.
    strategy : str or None
        The strategy's name; None leaves ``SOYBEAN_MX_STRATEGY`` as it is.
    parallel : str
        "tiling", or "pipeline": then blocks stay MXNet's, for a trainer that has the devices from the program.
    """
    if devices is None:
        os.environ["SOYBEAN_MX"] = "0"
        return
    os.environ["SOYBEAN_MX"] = "1" if parallel == "tiling" else "0"
    os.environ["SOYBEAN_MX_DEVICES"] = devices
    if strategy is not None:
        os.environ["SOYBEAN_MX_STRATEGY"] = strategy
    try:
        from soybean_mx import startup
        from soybean_mx.devices import DeviceError, parse_devices
    except ImportError:
        sys.exit(f"Training on {devices} needs soybean_mx, which is not installed: run `pip install .[cpu]` in the "
                 "repository, or give --devices none for plain MXNet.")
    if parallel == "pipeline":
        try:
            startup.set_environment(parse_devices(devices))
        except DeviceError as error:
            sys.exit(f"--devices: {error}")
    startup.install()
