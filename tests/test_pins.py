"""Pins: what is read, refused and merged; and that the runtime hands them to the planner."""
from __future__ import annotations

import json
from fnmatch import fnmatchcase

import mxnet as mx
import pytest
from mxnet import autograd
from mxnet.gluon import nn

from soybean_mx import core, gluon_front, pins
from soybean_mx.pins import PinError


@pytest.mark.parametrize("text, expected", [
    ("fc*_weight=split 0", {"fc*_weight": "split 0"}), ("a = n , m", {"a": ["n", "m"]}),
    ("x=y=owner", {"x=y": "owner"})])
def test_pins_of_the_command_line(text, expected):
    assert pins.parse(text) == expected


@pytest.mark.parametrize("text", ["a", "=n", "a=", "a=n,,m", "a=split x", "a=split"])
def test_pins_that_cannot_be_read(text):
    if text == "a=split":  # a factor may have any name
        assert pins.parse(text) == {"a": "split"}
        return
    with pytest.raises(PinError) as refused:
        pins.parse(text)
    assert repr(text) in str(refused.value) and "\n" not in str(refused.value)


def test_pins_of_files_and_of_the_environment(tmp_path, monkeypatch):
    value = {"a*": "split 0", "b": ["n", "m"]}
    path = tmp_path / "pins.json"
    path.write_text(json.dumps(value))
    assert pins.read(str(path), "--pins") == value
    for text in (str(path), json.dumps(value)):
        monkeypatch.setenv("SOYBEAN_MX_PINS", text)
        assert pins.from_environment() == value
    monkeypatch.setenv("SOYBEAN_MX_PINS", " ")
    assert pins.from_environment() == {}


@pytest.mark.parametrize("text", ["nowhere.json", "{", '{"a": 3}', '{"a": []}', '{"": "n"}', '{"a": ["n", 1]}'])
def test_json_that_is_refused(text):
    with pytest.raises(PinError) as refused:
        pins.read(text, "SOYBEAN_MX_PINS")
    assert "SOYBEAN_MX_PINS" in str(refused.value) and "\n" not in str(refused.value)


def test_a_list_is_no_set_of_pins(tmp_path):
    (tmp_path / "p.json").write_text("[]")
    with pytest.raises(PinError, match="must map patterns to choices"):
        pins.read(str(tmp_path / "p.json"), "--pins")


def test_one_pattern_has_one_value():
    assert pins.merge([{"a": "n"}, {"a": "n", "b": "m"}]) == {"a": "n", "b": "m"}
    with pytest.raises(PinError, match="'a' is pinned to 'n' and to 'm'"):
        pins.merge([{"a": "n"}, {"a": "m"}])


def test_pins_and_tilings_that_stand():
    decided = {"fc_weight": ["split 0", "split 0"]}
    assert pins.with_decided({"fc*": "split 0", "x": "n"}, decided) == {"fc*": "split 0", "x": "n", **decided}
    assert pins.with_decided({"*": "m"}, decided) == {"*": "m", **decided}  # a factor, so it is not about tensors
    for wanted in ("split 1", ["split 0", "split 1"], ["split 0"]):
        with pytest.raises(PinError) as refused:
            pins.with_decided({"fc*": wanted}, decided)
        assert "'fc*'" in str(refused.value) and "fc_weight" in str(refused.value)


class Expanding:
    """The core, with patterns written out for it as the tensors that they match; keeps what it was asked for."""

    def __init__(self):
        self.asked = []
        self.plan = core.plan

    def __call__(self, graph, options):
        self.asked.append(options["pins"])
        cuts = options["devices"].bit_length() - 1
        written = {}
        for pattern, choices in options["pins"].items():
            for name in graph["variables"]:
                if fnmatchcase(name, pattern):
                    written[name] = [choices] * cuts if isinstance(choices, str) else choices
        return self.plan(graph, {**options, "pins": written})


@pytest.fixture
def asked(monkeypatch):
    planner = Expanding()
    monkeypatch.setattr(core, "plan", planner)
    monkeypatch.setattr(gluon_front.core, "plan", planner)
    return planner.asked


def small_net(prefix: str) -> nn.HybridSequential:
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(64, activation="relu", prefix="fc0_"), nn.Dense(32, prefix="fc1_"))
    net.initialize()
    return net


def train_step(net, batch: int = 32):
    with autograd.record():
        out = net(mx.nd.ones((batch, 128)))
    out.backward()
    return gluon_front.plan_of(net)["tensors"]


@pytest.mark.parametrize("wanted", ("split 0", "split 1"))
def test_the_runtime_obeys_the_pins_of_the_environment(asked, monkeypatch, wanted):
    monkeypatch.setenv("SOYBEAN_MX_PINS", json.dumps({"*_fc0_weight": wanted, "conv*": "split 0"}))
    net = small_net("pinned_")
    net.hybridize(backend="soybean_mx", devices="cpu:2")
    assert train_step(net)["pinned_fc0_weight"] == [wanted]
    assert asked[0] == {"*_fc0_weight": wanted}  # the other pattern is about other blocks
    assert train_step(net, 16)["pinned_fc0_weight"] == [wanted]
    assert asked[-1]["*_fc0_weight"] == wanted and asked[-1]["pinned_fc0_weight"] == [wanted]


@pytest.mark.parametrize("wanted", ("split 0", "split 1"))
def test_the_argument_replaces_the_environment(asked, monkeypatch, wanted):
    monkeypatch.setenv("SOYBEAN_MX_PINS", '{"*": "owner"}')
    net = small_net("argument_")
    net.hybridize(backend="soybean_mx", devices="cpu:2", pins={"*_fc?_weight": wanted})
    tensors = train_step(net)
    assert tensors["argument_fc0_weight"] == tensors["argument_fc1_weight"] == [wanted]


def test_a_pin_against_a_tiling_that_stands_is_refused(asked):
    net = small_net("twice_")
    net.hybridize(backend="soybean_mx", devices="cpu:2", pins={"twice_fc0_weight": "split 0"})
    train_step(net)
    net.hybridize(backend="soybean_mx", devices="cpu:2", pins={"twice_fc0*ght": "split 1"})
    with pytest.raises(PinError) as refused:
        train_step(net)
    assert "'twice_fc0*ght'" in str(refused.value) and "twice_fc0_weight is already tiled" in str(refused.value)


def test_pins_of_a_wrong_form_are_refused_at_once():
    with pytest.raises(PinError, match="The argument pins sets 'a' to 3"):
        small_net("wrong_").hybridize(backend="soybean_mx", devices="cpu:2", pins={"a": 3})
