"""Device lists: the text forms that users write, and MXNet contexts.

===============  =======================================================
``cpu:8``        eight CPU contexts, ``cpu(0)`` to ``cpu(7)``
``gpu:4``        four GPUs, ``gpu(0)`` to ``gpu(3)``
``gpu:0-3``      GPUs 0 to 3, both ends included
``gpu:0,2``      GPUs 0 and 2, in this order
``gpu:0-2,5``    lists and ranges together
===============  =======================================================

A number alone is a count; with a comma or a dash it is an index. This module imports MXNet only inside
:func:`contexts`.
"""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple, Union

from soybean_mx.input_errors import InputError

if TYPE_CHECKING:
    import mxnet as mx

VARIABLE = "SOYBEAN_MX_DEVICES"
TILES_VARIABLE = "SOYBEAN_MX_TILES_PER_DEVICE"
KINDS = ("cpu", "gpu")
MAX_DEVICES = 1024  # far above any machine; keeps a typing error from starting a million threads
DEFAULT_CPU_CONTEXTS = 2
_FORMS = "write a count (cpu:8, gpu:4), a range (gpu:0-3) or a list (gpu:0,2)"

Device = Tuple[str, int]


class DeviceError(InputError):
    """A device list that cannot be used; the message is one sentence for the user."""


def parse_devices(text: str) -> List[Device]:
    """Parse a device list.

    Parameters
    ----------
    text : str
        One of the forms in the module's table.

    Returns
    -------
    list of (str, int)
        Kind (``"cpu"`` or ``"gpu"``) and index of each device, in the order given.

    Raises
    ------
    DeviceError
        For an unknown kind, an empty list, a device twice, kinds mixed, or anything that is not one of the forms.
    """
    given = f"device list {text!r}"
    kind, colon, numbers = text.strip().partition(":")
    kind, numbers = kind.strip(), numbers.strip()
    if not kind and not numbers:
        raise DeviceError(f"The {given} is empty: {_FORMS}.")
    if not colon or not numbers:
        raise DeviceError(f"The {given} has no numbers after a colon: {_FORMS}.")
    if kind not in KINDS:
        raise DeviceError(f"The {given} names the device kind {kind!r}, but only cpu and gpu exist: {_FORMS}.")
    if any(other in numbers for other in KINDS):
        raise DeviceError(f"The {given} mixes or repeats device kinds, but all devices of a list are of one kind, "
                          f"named once: {_FORMS}.")
    if re.fullmatch("[0-9]+", numbers):
        indices = list(range(_counted(numbers, given)))
    else:
        indices = _listed(numbers, given)
    return [(kind, index) for index in indices]


def _counted(number: str, given: str) -> int:
    count = int(number[:9])  # longer numbers are out of range anyhow
    if count == 0:
        raise DeviceError(f"The {given} asks for 0 devices, but at least 1 is needed: a number alone is a count, so "
                          "write 1 for the first device alone, or a range such as 3-3 for one other device.")
    if count > MAX_DEVICES:
        raise DeviceError(f"The {given} asks for more than {MAX_DEVICES} devices: give 1 to {MAX_DEVICES}.")
    return count


def _listed(numbers: str, given: str) -> List[int]:
    indices: List[int] = []
    for part in numbers.split(","):
        match = re.fullmatch(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?", part)
        if not match:
            raise DeviceError(f"The {given} holds {part.strip()!r}, which is no device number of 0 or more: {_FORMS}.")
        first = int(match.group(1)[:9])
        last = int((match.group(2) or match.group(1))[:9])
        if last < first:
            raise DeviceError(f"The {given} holds the range {part.strip()!r}, which runs backwards: "
                              f"write {last}-{first}.")
        if last >= MAX_DEVICES:
            raise DeviceError(f"The {given} holds device number {last}: numbers run from 0 to {MAX_DEVICES - 1}.")
        indices.extend(range(first, last + 1))
    for position, index in enumerate(indices):
        if index in indices[:position]:
            raise DeviceError(f"The {given} holds device {index} twice: name each device once.")
    return indices


def contexts(devices: Union[None, str, Sequence[Union["mx.Context", Device]]] = None) -> List["mx.Context"]:
    """Make MXNet contexts of a device list and check that the devices exist.

    Parameters
    ----------
    devices : None, str or sequence, optional
        A text for :func:`parse_devices`, or contexts or (kind, index) pairs. None stands for all GPUs or, where there
        is none, two CPU contexts.

    Returns
    -------
    list of mxnet.Context
        One context per device, in the order given.

    Raises
    ------
    DeviceError
        When the list cannot be used, or names a GPU that is not there.
    """
    import mxnet as mx

    if devices is None:
        return _default_contexts(mx)
    if hasattr(devices, "device_type"):
        devices = [devices]
    pairs = parse_devices(devices) if isinstance(devices, str) else [_pair(device) for device in devices]
    given = repr(devices) if isinstance(devices, str) else str(list(devices))
    _check(pairs, given)
    if pairs[0][0] == "gpu":
        available = mx.context.num_gpus()
        missing = [index for _, index in pairs if index >= available]
        if missing:
            found = f"0 to {available - 1}" if available else "none"
            raise DeviceError(f"The device list {given} names GPU {missing[0]}, but MXNet sees {available} GPUs "
                              f"({found}): name GPUs that are there, or use CPU contexts (cpu:{len(pairs)}).")
    return [mx.Context(kind, index) for kind, index in pairs]


def _default_contexts(mx) -> List["mx.Context"]:
    available = mx.context.num_gpus()
    if available:
        return [mx.gpu(index) for index in range(available)]
    return [mx.cpu(index) for index in range(DEFAULT_CPU_CONTEXTS)]


def _pair(device: Union["mx.Context", Device]) -> Device:
    if isinstance(device, tuple) and len(device) == 2 and isinstance(device[1], int):
        return device
    if hasattr(device, "device_type") and hasattr(device, "device_id"):
        return device.device_type, device.device_id
    raise DeviceError(f"The device {device!r} is no MXNet context: give contexts such as mx.gpu(0), or {_FORMS}.")


def _check(pairs: Sequence[Device], given: str) -> None:
    if not pairs:
        raise DeviceError(f"The device list {given} is empty: {_FORMS}.")
    for kind, index in pairs:
        if kind not in KINDS:
            raise DeviceError(f"The device list {given} names the device kind {kind!r}, but only cpu and gpu can be "
                              "trained on: give mx.cpu or mx.gpu contexts.")
        if kind != pairs[0][0]:
            raise DeviceError(f"The device list {given} mixes {pairs[0][0]} and {kind}: give devices of one kind.")
        if pairs.count((kind, index)) > 1:
            raise DeviceError(f"The device list {given} holds {kind}({index}) twice: name each device once.")


def with_tiles(devices: Sequence["mx.Context"], value: Optional[str]) -> List["mx.Context"]:
    """Each device as often as ``SOYBEAN_MX_TILES_PER_DEVICE`` says.

    A device that is named n times runs the work of n devices. That is for measuring what partitioning itself costs,
    where nothing crosses devices.

    Parameters
    ----------
    devices : sequence of mxnet.Context
        Different devices.
    value : str or None
        The variable's value; None and the empty text stand for 1.

    Raises
    ------
    DeviceError
        When the value is no number of 1 or more, or there would be more than 1024 tiles.
    """
    if not value:
        return list(devices)
    most = MAX_DEVICES // len(devices)
    if not re.fullmatch("[0-9]{1,9}", value) or not 1 <= int(value) <= most:
        raise DeviceError(f"{TILES_VARIABLE} is {value!r}: give a number of 1 to {most} (with {len(devices)} devices).")
    return [device for device in devices for _ in range(int(value))]


def devices_from_environment(value: Optional[str]) -> Optional[List[Device]]:
    """Parse the value of ``SOYBEAN_MX_DEVICES``; None, when it is not set, stays None.

    Raises
    ------
    DeviceError
        As :func:`parse_devices`; the message names the variable.
    """
    if value is None:
        return None
    try:
        return parse_devices(value)
    except DeviceError as error:
        raise DeviceError(f"{VARIABLE}: {error}") from None
