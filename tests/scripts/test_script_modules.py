"""Models, learning rates and checkpoints of the scripts."""
from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest

from tests.scripts.script_modules import load

models = load("models")
checkpoints = load("checkpoints")
LearningRate = load("learning_rates").LearningRate


@pytest.mark.parametrize("name", ["alexnet", "vgg11", "vgg16_bn"])
def test_parameters_have_the_names_and_shapes_of_the_model_zoo(name):
    images = mx.nd.zeros((1, 3, 64, 64))

    def shapes(net):
        # Shapes are known after inference alone; nothing is initialised or run.
        net.infer_shape(images)
        return {key: value.shape for key, value in net._collect_params_with_prefix().items()}

    assert shapes(models.create(name, 10)) == shapes(mx.gluon.model_zoo.vision.get_model(name, classes=10))


def test_width_scales_hidden_layers_only():
    net = models.create("alexnet", 10, width=0.125)
    net.infer_shape(mx.nd.zeros((1, 1, 64, 64)))
    shapes = {key: value.shape for key, value in net._collect_params_with_prefix().items()}
    assert shapes["features.0.weight"] == (8, 1, 11, 11)
    assert shapes["features.2.weight"] == (24, 8, 5, 5)
    assert shapes["output.weight"] == (10, 512)


def test_square_mlp():
    net = models.create("mlp48", 10)
    assert [layer.weight.shape[0] for layer in net] == [48] * 4


@pytest.mark.parametrize("name, width, said", [("lenet", 1, "lenet"), ("resnet18_v1", 0.5, "drop --width")])
def test_model_errors(name, width, said):
    with pytest.raises(ValueError, match=said):
        models.create(name, 10, width)


def test_warm_up_then_mode():
    rate = LearningRate("cosine", base=0.4, epochs=10, warmup_epochs=2, warmup_base=0.2)
    assert [rate.at(epoch) for epoch in (0, 1, 2)] == pytest.approx([0.2, 0.3, 0.4])
    assert [rate.at(epoch) for epoch in (6, 10, 11)] == pytest.approx([0.2, 0, 0])


@pytest.mark.parametrize("mode, expected", [
    ("step", [1, 0.1, 0.1, 0.01]), ("poly", [1, 0.5625, 0.25, 0.0625]), ("constant", [1, 1, 1, 1])])
def test_modes(mode, expected):
    rate = LearningRate(mode, base=1.0, epochs=4, decay=0.1, decay_epochs=(1, 3))
    assert [rate.at(epoch) for epoch in (0, 1, 2, 3)] == pytest.approx(expected)


def test_checkpoint_is_complete_or_absent(tmp_path):
    net = models.create("mlp", 10)
    net.initialize()
    net(mx.nd.zeros((1, 8)))
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})
    params, states = checkpoints.save(str(tmp_path), "mlp", 3, net, trainer)
    assert params.endswith("mlp-0003.params") and states.endswith("mlp-0003.states")
    np.testing.assert_array_equal(mx.nd.load(params)["0.weight"].asnumpy(), net[0].weight.data().asnumpy())

    def fail(path):
        with open(path, "w") as half:
            half.write("half")
        raise OSError("the disk is full")

    net.save_parameters = fail
    with pytest.raises(OSError):
        checkpoints.save(str(tmp_path), "mlp", 4, net, trainer)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlp-0003.params", "mlp-0003.states", "mlp-0004.states"]
