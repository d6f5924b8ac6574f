"""Device lists: the forms that are read, the messages for all others, and the contexts made of them."""
from __future__ import annotations

import mxnet as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soybean_mx.devices import MAX_DEVICES, DeviceError, contexts, devices_from_environment, parse_devices


@pytest.mark.parametrize("text, expected", [
    ("cpu:1", [("cpu", 0)]),
    ("cpu:3", [("cpu", 0), ("cpu", 1), ("cpu", 2)]),
    ("gpu:2", [("gpu", 0), ("gpu", 1)]),
    ("gpu:0-3", [("gpu", 0), ("gpu", 1), ("gpu", 2), ("gpu", 3)]),
    ("cpu:3-3", [("cpu", 3)]),
    ("gpu:2,0", [("gpu", 2), ("gpu", 0)]),
    ("gpu:0-1,5", [("gpu", 0), ("gpu", 1), ("gpu", 5)]),
    ("  gpu: 0 , 2 ", [("gpu", 0), ("gpu", 2)]),
])
def test_forms(text, expected):
    assert parse_devices(text) == expected


@pytest.mark.parametrize("text, part", [
    ("", "is empty"),
    ("   ", "is empty"),
    ("8", "no numbers after a colon"),
    ("gpu", "no numbers after a colon"),
    ("gpu:", "no numbers after a colon"),
    (":3", "only cpu and gpu"),
    ("tpu:3", "'tpu'"),
    ("GPU:3", "'GPU'"),
    ("cpu:0", "0 devices"),
    ("cpu:-1", "'-1'"),
    ("cpu:1.5", "'1.5'"),
    ("cpu:1,", "''"),
    ("cpu:0,,1", "''"),
    ("cpu:0,x", "'x'"),
    ("cpu:0-", "'0-'"),
    ("cpu:0-1-2", "'0-1-2'"),
    ("gpu:3-0", "backwards"),
    ("gpu:0,0", "device 0 twice"),
    ("gpu:0-3,2", "device 2 twice"),
    ("gpu:0,cpu:1", "mixes"),
    ("cpu:2,gpu:2", "mixes"),
    ("cpu:1025", "more than 1024"),
    ("cpu:99999999999999999999", "more than 1024"),
    ("gpu:0-99999999999999999999", "number 999999999"),
    ("cpu:²", "'²'"),
])
def test_messages(text, part):
    with pytest.raises(DeviceError) as failure:
        parse_devices(text)
    message = str(failure.value)
    assert part in message and repr(text) in message
    assert message.endswith(".") and "\n" not in message


@given(st.text(alphabet="cpug:0123456789-, x", max_size=12) | st.text(max_size=12))
def test_any_text_is_read_or_refused(text):
    try:
        devices = parse_devices(text)
    except DeviceError:
        return
    assert devices and len(set(devices)) == len(devices) <= MAX_DEVICES
    assert len({kind for kind, _ in devices}) == 1
    assert all(kind in ("cpu", "gpu") and 0 <= index < MAX_DEVICES for kind, index in devices)


@given(st.lists(st.integers(0, MAX_DEVICES - 1), min_size=2, max_size=20, unique=True), st.sampled_from(["cpu", "gpu"]))
def test_lists_are_read_in_their_order(indices, kind):
    assert parse_devices(f"{kind}:{','.join(map(str, indices))}") == [(kind, index) for index in indices]


@given(st.integers(0, MAX_DEVICES - 1), st.integers(0, MAX_DEVICES - 1))
def test_ranges_hold_both_ends(first, last):
    first, last = sorted((first, last))
    assert parse_devices(f"gpu:{first}-{last}") == [("gpu", index) for index in range(first, last + 1)]


def test_environment_names_the_variable():
    assert devices_from_environment(None) is None
    assert devices_from_environment("cpu:2") == [("cpu", 0), ("cpu", 1)]
    with pytest.raises(DeviceError, match="SOYBEAN_MX_DEVICES: .*'nonsense'"):
        devices_from_environment("nonsense")


def test_contexts():
    two = [mx.cpu(0), mx.cpu(1)]
    assert contexts("cpu:2") == two
    assert contexts(two) == two
    assert contexts(parse_devices("cpu:2")) == two
    assert contexts(mx.cpu(1)) == [mx.cpu(1)]


def test_default_is_all_gpus_or_two_cpu_contexts(monkeypatch):
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 0)
    assert contexts() == [mx.cpu(0), mx.cpu(1)]
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 3)
    assert contexts() == [mx.gpu(0), mx.gpu(1), mx.gpu(2)]


@pytest.mark.parametrize("devices, part", [
    ("gpu:4", "GPU 2, but MXNet sees 2 GPUs (0 to 1)"),
    ([mx.gpu(5)], "GPU 5"),
    ([], "is empty"),
    ([mx.cpu(0), mx.gpu(0)], "mixes cpu and gpu"),
    ([mx.cpu(0), mx.cpu(0)], "cpu(0) twice"),
    ([mx.cpu_pinned(0)], "'cpu_pinned'"),
    ([3], "3"),
    ([("cpu", "x")], "no MXNet context"),
])
def test_contexts_that_cannot_be(monkeypatch, devices, part):
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 2)
    with pytest.raises(DeviceError) as failure:
        contexts(devices)
    assert part in str(failure.value)


def test_no_gpu_at_all(monkeypatch):
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 0)
    with pytest.raises(DeviceError, match=r"'gpu:2' names GPU 0, but MXNet sees 0 GPUs \(none\).*cpu:2"):
        contexts("gpu:2")
