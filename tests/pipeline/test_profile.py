"""Profiles in PipeDream's text format."""
from __future__ import annotations

import pytest

from soybean_mx.pipeline import profile as profiles
from soybean_mx.pipeline.profile import Layer, Profile, ProfileError
from tests.child import ROOT

FOLDER = ROOT / "soybean_mx" / "pipeline" / "profiles"
VALUES = "forward_compute_time=1.500, backward_compute_time=2.000, activation_size=4.0, parameter_size=8.000"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.name.split(".")[0])
def test_the_shipped_profiles_are_read_and_written(path, tmp_path):
    found = profiles.load(str(path))
    lines = path.read_text().splitlines()
    assert len(found.layers) + len(found.edges) == len(lines)
    total = sum(float(line.split("forward_compute_time=")[1].split(",")[0]) for line in lines if line[0] != "\t")
    assert sum(layer.forward_seconds for layer in found.layers) * 1e3 == pytest.approx(total)
    found.write(str(tmp_path / "again.txt"))
    again = profiles.load(str(tmp_path / "again.txt"))
    assert again.edges == found.edges
    for old, new in zip(found.layers, again.layers):
        assert (new.name, new.activation_bytes, new.parameter_bytes, new.stage) == (
            old.name, old.activation_bytes, old.parameter_bytes, old.stage)
        assert new.forward_seconds == pytest.approx(old.forward_seconds, abs=1e-12)


def test_lists_of_sizes_stages_and_inputs():
    text = ("\tb -- c\n\ta -- b\nb -- LSTM(2) -- forward_compute_time=1.5, backward_compute_time=2, "
            f"activation_size=[4.0; 2; 1.0], parameter_size=8 -- stage_id=3\r\nc -- __getitem__(1) -- {VALUES}\n\n"
            f"a -- Input0 -- {VALUES}")
    found = Profile.from_text(text)
    assert found.layers[0] == Layer("b", "LSTM(2)", 0.0015, 0.002, 7.0, 8.0, 3)
    assert found.edges == (("b", "c"), ("a", "b"))
    assert found.inputs() == ["a"] and found.unused_items() == {"c": "b"}
    assert found.without(["a"]).edges == (("b", "c"),)
    assert [layer.stage for layer in found.with_stages([["a", "b"], ["c"]]).layers] == [0, 1, 0]
    assert "activation_size=7.000, parameter_size=8.000 -- stage_id=3\n" in found.to_text()


def test_small_times_keep_their_digits():
    layer = Layer("a", "an -- odd\nname", 1.23456e-7, 0.25, 3.0, 0.0)
    again = Profile.from_text(Profile((layer,), ()).to_text()).layers[0]
    assert again == Layer("a", "an - odd name", pytest.approx(1.23456e-7), 0.25, 3.0, 0.0)


@pytest.mark.parametrize("text, message", [
    ("", "profile: The profile has no layers"),
    ("a -- Conv", "profile, line 1: 'a -- Conv' is no layer: write NAME -- DESCRIPTION"),
    (f"a -- Conv -- {VALUES}\na -- Conv -- {VALUES}", "Two layers of the profile are named 'a'"),
    (f"a -- Conv -- {VALUES}\n\ta -- z", "The edge a -- z names 'z', which is no layer"),
    (f"a -- Conv -- {VALUES}\n\ta", "line 2: 'a' is no edge"),
    (f"\na -- Conv -- {VALUES.replace('2.000', '-2')}", "line 2: backward_compute_time is '-2', but a number of 0"),
    (f"a -- Conv -- {VALUES.replace('4.0', 'inf')}", "activation_size is 'inf'"),
    (f"a -- Conv -- {VALUES.replace('4.0', '[1; x]')}", r"activation_size is '\[1; x\]'"),
    (f"a -- Conv -- {VALUES.replace('parameter_size', 'size')}", "'size=8.000' is no value of a layer"),
    ("a -- Conv -- forward_compute_time=1", "There is no backward_compute_time"),
    (f"a -- Conv -- {VALUES} -- stage=1", "'stage=1' is no stage: write stage_id=0"),
])
def test_other_texts_are_refused(text, message):
    with pytest.raises(ProfileError, match=message):
        Profile.from_text(text)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(ProfileError, match="cannot be read .No such file"):
        profiles.load(str(tmp_path / "none.txt"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match="no text in UTF-8"):
        profiles.load(str(tmp_path / "binary"))
