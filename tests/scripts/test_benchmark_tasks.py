"""The networks of the benchmark: their sizes, and that they learn from batches of their kind."""
from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest

from tests.scripts.script_modules import load_with_siblings


@pytest.fixture(scope="module")
def tasks():
    return load_with_siblings("benchmark_tasks")


def shapes_of(net, task):
    """Shapes of all parameters, by inference alone."""
    net.infer_shape(mx.nd.zeros((2, *task.input_shape)))
    return [parameter.shape for parameter in net.collect_params().values()]


@pytest.mark.parametrize("name, filters", [("cnn5_6x6_2048", 2048), ("cnn5_24x24_512", 512)])
def test_the_two_networks_of_the_paper(tasks, name, filters):
    task = tasks.task(name)
    size = int(name[5:].split("x")[0])
    assert task.input_shape == (filters, size, size) and task.labels == (((), filters),)
    assert shapes_of(task.network(), task) == [(filters, filters, 3, 3), (filters,)] * 5


@pytest.mark.parametrize("name, parameters, input_shape, labels", [
    ("mlp4096", 4 * 4097 * 4096, (4096,), [()]), ("mlp", 785 * 512 + 513 * 256 + 257 * 1000, (784,), [()]),
    ("alexnet", 61_100_840, (3, 224, 224), [()]), ("vgg16", 138_357_544, (3, 224, 224), [()]),
    ("resnet152_v1", None, (3, 224, 224), [()]), ("bert_base", None, (128,), [(128,), ()]),
    ("lstm", 2 * (2 * 4 * 1500 * 1500 + 2 * 4 * 1500) + 10_000 * 3001, (35,), [(35,)])])
def test_networks_of_the_evaluation(tasks, name, parameters, input_shape, labels):
    task = tasks.task(name)
    assert task.input_shape == input_shape and [shape for shape, _ in task.labels] == labels
    if parameters is not None:
        assert sum(int(np.prod(shape)) for shape in shapes_of(task.network(), task)) == parameters


@pytest.mark.parametrize("name, length", [("mlp7", None), ("cnn5_4x4_3", None), ("lstm6", 3), ("bert_1x8", 5)])
def test_labels_fit_the_outputs(tasks, name, length):
    task = tasks.task(name, length)
    inputs, labels = task.batch(2, "float32")
    net = task.network()
    net.initialize()
    outputs = net(inputs)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    assert [out.shape for out in outputs] == [(2, *shape, classes) for shape, classes in task.labels]
    for label, (shape, classes) in zip(labels, task.labels):
        assert label.shape == (2, *shape) and 0 <= label.min().asscalar() and label.max().asscalar() < classes
    again, _ = task.batch(2, "float32")
    np.testing.assert_array_equal(inputs.asnumpy(), again.asnumpy())
    half, _ = task.batch(2, "float16")
    assert half.dtype == (np.float16 if task.words is None else np.float32)


@pytest.mark.parametrize("name, length, said", [
    ("lenet", None, "lenet"), ("cnn5_6x7_8", None, "cnn5_SxS_F"), ("mlp0", None, "mlpN"), ("bert_base", 513, "512")])
def test_messages(tasks, name, length, said):
    with pytest.raises(ValueError, match=said):
        tasks.task(name, length)
