"""Profiles of models, measured, and the command `profile`."""
from __future__ import annotations

import json
import re
import time

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn, rnn

from soybean_mx import cli, model_loading
from soybean_mx.pipeline import layer_times
from soybean_mx.pipeline import profile as profiles
from soybean_mx.pipeline.partition import operator_names, partition
from tests.child import run_child


class Reader(mx.gluon.HybridBlock):
    """Words to scores: an embedding, an LSTM whose state's shape follows from its use, and the largest two of each."""

    def __init__(self):
        super().__init__(prefix="reader_")
        with self.name_scope():
            self.embedding = nn.Embedding(20, 6)
            self.lstm = rnn.LSTM(5, layout="NTC", input_size=6)
            self.scores = nn.Dense(7, flatten=False, in_units=5)

    def hybrid_forward(self, F, x):
        scores = self.scores(self.lstm(self.embedding(x)))
        values, places = F.topk(scores, k=2, ret_typ="both")
        dropped = F.Dropout(F.slice_axis(scores, axis=2, begin=0, end=2), p=0.5)
        return F.broadcast_add(dropped, values), F.BlockGrad(places)


def tied():
    """Two layers with one weight."""
    net = nn.HybridSequential(prefix="tied_")
    with net.name_scope():
        first = nn.Dense(8, in_units=8, activation="relu")
        net.add(first, nn.Dense(8, in_units=8, params=first.params), nn.BatchNorm(in_channels=8))
    return net


def measured(model, shapes, repeats=1):
    loaded = model_loading.load(model, None, shapes)
    return loaded, layer_times.measure(loaded.graph, loaded.input_shapes, "float32", repeats)


@pytest.mark.parametrize("model, shapes", [
    ("tests.pipeline.test_layer_times:tied", [(3, 8)]), ("tests.pipeline.test_layer_times:Reader", [(2, 4)]),
    ("resnet18_v1", [(2, 3, 32, 32)])])
def test_sizes_and_edges_are_those_of_the_symbol(model, shapes):
    loaded, found = measured(model, shapes)
    symbol = mx.sym.load_json(loaded.graph["symbol"])
    layers = {layer.name: layer for layer in found.profile.layers}
    assert found.profile.inputs() == ["data"] and list(layers)[0] == "data"
    assert list(layers)[1:] == operator_names(symbol)
    arguments = dict(zip(symbol.list_arguments(), symbol.infer_shape(data=shapes[0])[0]))
    parameters = sum(int(np.prod(shape)) * 4 for name, shape in arguments.items() if name != "data")
    assert sum(layer.parameter_bytes for layer in layers.values()) == parameters
    internals = symbol.get_internals()
    heads = json.loads(internals.tojson())
    sizes = dict.fromkeys(layers, 0)
    for (node, *_), shape in zip(heads["heads"], internals.infer_shape(data=shapes[0])[1]):
        if heads["nodes"][node]["name"] in sizes:
            sizes[heads["nodes"][node]["name"]] += int(np.prod(shape)) * 4
    assert {name: layer.activation_bytes for name, layer in layers.items()} == sizes
    assert all(layer.forward_seconds > 0 for name, layer in layers.items() if name != "data")
    nodes = json.loads(loaded.graph["symbol"])["nodes"]
    reads = {(nodes[source]["name"], node["name"]) for node in nodes for source, *_ in node["inputs"]
             if nodes[source]["name"] in layers}
    assert set(found.profile.edges) == reads and len(found.profile.edges) == len(reads)


def test_operators_alike_are_measured_once():
    _, found = measured("resnet18_v1", [(1, 3, 32, 32)])
    layers = {layer.name: layer for layer in found.profile.layers}
    first, second = (layers[f"resnetv10_stage1_conv{number}_fwd"] for number in (0, 1))
    assert first.seconds == second.seconds and found.measured < len(layers) / 2
    assert layers["resnetv10_conv0_fwd"].seconds != first.seconds


def test_passes_without_a_gradient_take_no_time():
    _, found = measured("tests.pipeline.test_layer_times:Reader", [(2, 4)])
    layers = found.profile.layers
    assert all(layer.backward_seconds == 0 for layer in layers if layer.description.startswith(("_zeros", "Input")))
    assert any(layer.description.startswith("_zeros") for layer in layers)
    assert all(layer.backward_seconds > 0 for layer in layers if layer.description.startswith(("RNN", "Embedding")))


def test_larger_layers_take_longer():
    def wide():
        net = nn.HybridSequential()
        net.add(nn.Dense(1000, in_units=10, flatten=False), nn.Dense(1000, in_units=1000, flatten=False))
        return net

    tests_wide = wide()
    data = tests_wide(mx.sym.var("data"))
    graph = model_loading.graph.describe(data, {"data": ((200, 10), "float32")}, {
        name: (parameter.shape, "float32") for name, parameter in tests_wide.collect_params().items()},
        set(tests_wide.collect_params()), True)
    layers = layer_times.measure(graph, {"data": (200, 10)}, "float32", 3).profile.layers
    assert layers[2].forward_seconds > 5 * layers[1].forward_seconds  # a hundred times the multiplications


def test_the_operators_take_together_about_what_the_network_takes():
    """1.0 to 1.04 times as long on a quiet machine; both are measured at about the same time."""
    loaded = model_loading.load("mobilenet1.0", None, [(4, 3, 64, 64)])
    symbol = mx.sym.load_json(loaded.graph["symbol"])
    executor = symbol.simple_bind(mx.cpu(), data=(4, 3, 64, 64), grad_req={
        name: "null" if name == "data" else "write" for name in symbol.list_arguments()})
    for array in executor.arg_arrays:
        array[:] = 0.01

    def whole():
        start = time.perf_counter()
        scores = executor.forward(is_train=True)[0]
        executor.backward(mx.nd.ones_like(scores))
        mx.nd.waitall()
        return time.perf_counter() - start

    whole()
    before = min(whole() for _ in range(3))
    alone = sum(layer.seconds for layer in layer_times.measure(
        loaded.graph, loaded.input_shapes, "float32", 3).profile.layers)
    least, most = sorted([before, min(whole() for _ in range(3))])
    assert least / 3 < alone < 3 * most


def test_an_operator_that_cannot_run_is_named():
    graph = {"symbol": (mx.sym.var("a") + mx.sym.var("b")).tojson(), "variables": {
        name: {"role": "input", "requires_grad": False} for name in "ab"},
        "shapes": {"a": [[2]], "b": [[3]], "_plus0": [[2]]}, "itemsizes": {"a": [4], "b": [4], "_plus0": [4]}}
    name = json.loads(graph["symbol"])["nodes"][2]["name"]
    graph["shapes"][name], graph["itemsizes"][name] = [[2]], [4]
    with pytest.raises(profiles.ProfileError, match=f"The operator {name} .*cannot be run on its own"):
        layer_times.measure(graph, {"a": (2,), "b": (3,)}, "float32", 1)


def test_stages_of_a_profile_cut_the_model(capsys, tmp_path):
    path = str(tmp_path / "resnet.txt")
    arguments = ["resnet18_v1", "--input-shape", "2,3,32,32", "--repeats", "1", "-o", path, "--json"]
    assert cli.main(["profile", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["output"] == path and found["batch_size"] == 2 and found["measured_operators"] > 10
    assert found["forward_ms"] > 0 and found["layers"][0]["name"] == "data" and found["edges"][0][0] == "data"
    assert [item.name for item in tmp_path.iterdir()] == ["resnet.txt"]
    assert cli.main(["stages", path, "--devices", "3", "--bandwidth", "1kB/s", "--json"]) == 0
    stages = json.loads(capsys.readouterr().out)["operators"]
    symbol = mx.sym.load_json(model_loading.load("resnet18_v1", None, [(2, 3, 32, 32)]).graph["symbol"])
    assert sum(len(stage) for stage in stages) == len(operator_names(symbol))
    assert len(partition(symbol, stages, ["data"])) == len(stages) > 1


def test_the_program_prints_its_table(tmp_path):
    out = run_child("soybean_mx", ["profile", "tests.pipeline.test_layer_times:tied", "--input-shape", "4,8",
                                   "-o", str(tmp_path / "tied.txt")])
    assert "tied, data 4x8: " in out and "different operators of 4 measured" in out
    assert f"written to {tmp_path / 'tied.txt'}" in out and "FullyConnected" in out
    assert len(profiles.load(str(tmp_path / "tied.txt")).layers) == 5


@pytest.mark.parametrize("arguments, said", [
    (["resnet18_v1", "--repeats", "0"], "repeats is 0"), (["resnet18_v1", "-o", "nowhere/x"], "cannot be written"),
    (["resnet18_v9"], "no model 'resnet18_v9'"), (["resnet18_v1", "--input-shape", "x"], "no list of numbers"),
    (["tests.pipeline.test_layer_times:tied"], "input shape of .* is not known"),
    (["resnet18_v1", "--batch-size", "0"], "batch size is 0")])
def test_arguments_that_cannot_be_used(capsys, tmp_path, monkeypatch, arguments, said):
    monkeypatch.syspath_prepend(".")
    assert cli.main(["profile", *arguments, *([] if "-o" in arguments else ["-o", str(tmp_path / "x.txt")])]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and re.search(said, err)
    assert list(tmp_path.iterdir()) == []
