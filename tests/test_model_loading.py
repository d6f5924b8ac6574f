"""Models by name: their graphs against those of networks that have really been run."""
from __future__ import annotations

import time

import mxnet as mx
import pytest
from mxnet import gluon
from mxnet.gluon.model_zoo import vision

from soybean_mx import core, graph, model_loading
from soybean_mx.model_loading import ModelError, load


class TwoInputs(gluon.HybridBlock):
    """Has two inputs, a parameter without gradient, and two outputs."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = gluon.nn.Dense(4)
            self.scale = self.params.get("scale", shape=(1, 4), grad_req="null")

    def hybrid_forward(self, F, first, second, scale):
        hidden = self.dense(first)
        return F.broadcast_mul(hidden, scale), [hidden + second]


class Untraceable(gluon.HybridBlock):
    """Asks for a shape, which symbols do not have."""

    def hybrid_forward(self, F, x):
        return x.reshape((x.shape[0], -1))


class TrainsWithTargets(gluon.HybridBlock):
    """Needs targets in training, as detection networks do."""

    def hybrid_forward(self, F, x, target=None):
        return x - target if mx.autograd.is_training() else F.relu(x)


def not_hybrid():
    """Return a block that cannot be hybridized."""
    return gluon.nn.Sequential()


def number():
    """Return no block."""
    return 3


def fails():
    """Fail as a user's function may."""
    raise RuntimeError("no\nsuch thing")


@pytest.mark.parametrize("name", ("resnet18_v1", "squeezenet1.1", "mobilenetv2_0.25", "densenet121"))
def test_the_graph_is_that_of_the_network_as_it_runs(name):
    with mx.name.NameManager():
        net = vision.get_model(name, classes=10)
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((2, 3, 224, 224)))
    _, symbol = net._cached_graph
    parameters = {key: (value.shape, value.dtype) for key, value in net.collect_params().items()}
    trained = {key for key, value in net.collect_params().items() if value.grad_req != "null"}
    expected = graph.describe(symbol, {"data": ((2, 3, 224, 224), "float32")}, parameters, trained, True)
    found = load(name, batch_size=2, classes=10)
    for member in ("shapes", "itemsizes", "variables", "training"):
        assert found.graph[member] == expected[member], member
    assert found.input_shapes == {"data": (2, 3, 224, 224)} and found.batch_size == 2 and not found.notes


def test_the_largest_network_loads_at_once_and_holds_no_array():
    load("resnet18_v1")
    began = time.process_time()
    load("resnet18_v1")
    small = time.process_time() - began
    loaded = load("resnet152_v1")  # 8 times the operators, 5 times the parameters
    assert time.process_time() - began < 25 * small
    assert loaded.batch_size == model_loading.DEFAULT_BATCH_SIZE
    assert loaded.graph["shapes"]["resnetv10_dense0_weight"] == [[1000, 2048]]


def test_names_do_not_depend_on_what_was_loaded_before():
    assert load("resnet18_v1").graph == load("resnet18_v1").graph


def test_default_shapes():
    assert load("inceptionv3", 8).input_shapes == {"data": (8, 3, 299, 299)}
    assert load("alexnet", input_shapes=[(4, 3, 227, 227)]).graph["shapes"]["data"] == [[4, 3, 227, 227]]


def test_gradients_of_inputs_are_asked_for_on_request():
    assert not load("alexnet", 4).graph["variables"]["data"]["requires_grad"]
    assert load("alexnet", 4, input_gradients=True).graph["variables"]["data"]["requires_grad"]


def test_half_precision_keeps_the_statistics_in_single():
    sizes = load("resnet18_v1", 4, dtype="float16").graph["itemsizes"]
    assert sizes["data"] == [2] and sizes["resnetv10_conv0_weight"] == [2]
    assert sizes["resnetv10_batchnorm0_running_mean"] == [4]


def test_a_function_with_two_inputs_and_nested_outputs():
    model = "tests.test_model_loading:TwoInputs"
    loaded = load(model, input_shapes=[(8, 5), (8, 4)])
    assert loaded.input_shapes == {"data0": (8, 5), "data1": (8, 4)}
    assert loaded.graph["shapes"]["twoinputs0_dense0_weight"] == [[4, 5]]
    variables = loaded.graph["variables"]
    assert variables["twoinputs0_scale"] == {"role": "parameter", "requires_grad": False}
    assert core.plan(loaded.graph, {"devices": 2, "strategy": "optimal"})["tensors"]["data0"]
    assert load(model, input_shapes={"data1": (8, 4), "data0": (8, 5)}).graph == loaded.graph
    with pytest.raises(ModelError, match=r"takes 2 inputs \(first, second\), but 1 was given"):
        load(model, input_shapes=[(8, 5)])


def test_targets_that_training_needs_are_done_without_and_said():
    loaded = load("tests.test_model_loading:TrainsWithTargets", input_shapes=[(8, 5)])
    assert len(loaded.notes) == 1 and "without targets" in loaded.notes[0]


def test_an_exported_symbol_is_the_model_that_was_exported(tmp_path):
    with mx.name.NameManager():
        net = vision.get_model("resnet18_v1")
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, 3, 224, 224)))
    net.export(str(tmp_path / "net"))
    path = str(tmp_path / "net-symbol.json")
    found, expected = load(path, input_shapes=[(8, 3, 224, 224)]), load("resnet18_v1", 8)
    for member in ("shapes", "itemsizes", "variables"):
        assert found.graph[member] == expected.graph[member]
    with pytest.raises(ModelError, match="input shape .* is not known here"):
        load(path, batch_size=8)
    with pytest.raises(ModelError, match="no variable image: name its inputs"):
        load(path, input_shapes={"image": (8, 3, 224, 224)})


def test_labels_of_a_plain_symbol_are_inputs_whose_shape_follows(tmp_path):
    data = mx.sym.Variable("data")
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=10, name="fc"), name="softmax")
    symbol.save(str(tmp_path / "s.json"))
    loaded = load(str(tmp_path / "s.json"), input_shapes=[(8, 20)])
    assert loaded.graph["variables"]["softmax_label"] == {"role": "input", "requires_grad": False}
    assert loaded.graph["shapes"]["softmax_label"] == [[8]] and loaded.graph["variables"]["fc_weight"]["requires_grad"]


@pytest.mark.parametrize("arguments, said", [
    ({"model": "resnet19"}, "did you mean"), ({"model": "nowhere:f"}, "No module named 'nowhere'"),
    ({"model": "tests.models:nothing"}, "has no attribute 'nothing'"), ({"model": ":f"}, "There is no :f"),
    ({"model": "tests.test_model_loading:not_hybrid", "input_shapes": [(1, 2)]}, "no HybridBlock"),
    ({"model": "tests.test_model_loading:number"}, "returns int"),
    ({"model": "tests.test_model_loading:fails"}, "RuntimeError: no"),
    ({"model": "tests.test_model_loading:Untraceable", "input_shapes": [(1, 2)]}, "cannot be traced"),
    ({"model": "tests.models:mlp"}, "input shape of tests.models:mlp is not known here"),
    ({"model": "tests.models:mlp", "classes": 3}, "only models of a zoo"),
    ({"model": "tests.models:mlp", "input_shapes": [(0, 30)]}, "1 or more in every dim"),
    ({"model": "alexnet", "input_shapes": [(2, 3, 7, 7)]}, "do not fit alexnet"),
    ({"model": "alexnet", "input_shapes": {"x": (2, 3, 7, 7)}}, "has the inputs data, but 1 shapes were given for x"),
    ({"model": "alexnet", "batch_size": 0}, "batch size is 0"), ({"model": "alexnet", "classes": 0}, "classes is 0"),
    ({"model": "alexnet", "batch_size": 2, "input_shapes": [(2, 3, 224, 224)]}, "give one of them"),
    ({"model": "alexnet", "dtype": "int8"}, "'int8'"),
    ({"model": "nowhere.json"}, "no exported symbol 'nowhere.json'")])
def test_what_is_refused(arguments, said, capfd):
    with pytest.raises(ModelError) as refused:
        load(**arguments)
    assert said in str(refused.value) and "\n" not in str(refused.value)
    assert capfd.readouterr().out == ""


def test_a_file_that_is_no_symbol_is_refused(tmp_path):
    (tmp_path / "s.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot read the symbol"):
        load(str(tmp_path / "s.json"))


class TestGluonCV:
    """Models of GluonCV, where it is installed."""

    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("gluoncv")

    @pytest.mark.parametrize("name, size, outputs", [
        ("cifar_resnet20_v1", 32, 1), ("resnet50_v1d", 224, 1), ("ssd_512_mobilenet1.0_voc", 512, 3),
        ("yolo3_mobilenet0.25_voc", 416, 14), ("psp_resnet50_ade", 480, 2), ("fcn_resnet50_voc", 480, 2),
        ("center_net_resnet18_v1b_voc", 512, 3)])
    def test_networks_of_every_kind_load(self, name, size, outputs, capfd):
        loaded = load(name, batch_size=2)
        assert loaded.input_shapes == {"data": (2, 3, size, size)} and not loaded.notes
        assert len(mx.sym.load_json(loaded.graph["symbol"]).list_outputs()) == outputs
        assert sum(variable["requires_grad"] for variable in loaded.graph["variables"].values()) > 10
        assert capfd.readouterr().out == ""

    def test_regions_are_planned_without_targets(self):
        loaded = load("faster_rcnn_resnet50_v1b_voc", batch_size=1)
        assert "without targets" in loaded.notes[0]

    def test_two_crops_are_two_inputs(self):
        loaded = load("siamrpn_alexnet_v2_otb15", input_shapes=[(4, 3, 127, 127), (4, 3, 255, 255)])
        assert list(loaded.input_shapes) == ["data0", "data1"]

    def test_classes_reach_networks_that_name_them(self):
        loaded = load("ssd_512_mobilenet1.0_custom", batch_size=1, classes=4)
        assert load("ssd_512_mobilenet1.0_custom", batch_size=1, classes=5).graph != loaded.graph

    @pytest.mark.parametrize("name", ("resnet50_v1b_custom", "vgg16_ucf101", "resnet50_v1b_gn"))
    def test_networks_that_cannot_be_made_without_weights_are_refused(self, name):
        with pytest.raises(ModelError) as refused:
            load(name)
        assert name in str(refused.value) and "\n" not in str(refused.value)
        assert mx.gluon.model_zoo.model_store.download is mx.gluon.utils.download


def test_a_block_that_is_there_is_described_as_one_that_is_made():
    made = load(f"{__name__}:TwoInputs", input_shapes=[(6, 3), (6, 4)])
    with mx.name.NameManager():
        there = model_loading.of_block("two", TwoInputs(), [(6, 3), (6, 4)])
    assert there.input_shapes == made.input_shapes and there.batch_size == 6 and there.name == "two"
    assert sorted(map(str, there.graph["shapes"].values())) == sorted(map(str, made.graph["shapes"].values()))
    with pytest.raises(ModelError, match="takes 2 inputs"):
        model_loading.of_block("two", TwoInputs(), [(6, 3)])
    with pytest.raises(ModelError, match="do not fit"):
        model_loading.of_block("two", TwoInputs(), [(6, 3), (5, 5)])


def test_blocks_of_models():
    assert model_loading.block("squeezenet1.1", classes=7).output is not None
    assert isinstance(model_loading.block(f"{__name__}:TwoInputs"), TwoInputs)
    with pytest.raises(ModelError, match="no exported symbol"):
        model_loading.block("nowhere-symbol.json")
