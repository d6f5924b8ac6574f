"""``soybean-mx bench`` on networks so small that only its bookkeeping matters."""
from __future__ import annotations

import importlib
import json

import mxnet as mx
import numpy as np
import pytest

from soybean_mx import bench_command, cli
from soybean_mx.benchmark import contenders as running
from soybean_mx.benchmark import model_task, training_step
from tests.child import run_child

NETWORKS = """
from mxnet.gluon import nn

def perceptron():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(8, activation="relu", prefix="fc0_"), nn.Dense(6, prefix="fc1_"))
    return net

class Words(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.table = nn.Embedding(50, 8)
            self.scores = nn.Dense(6, flatten=False)

    def hybrid_forward(self, F, words, more):
        return self.scores(F.broadcast_add(self.table(words), more)), more * 2
"""
PARAMETER_BYTES = 4 * ((16 * 8 + 8) + (8 * 6 + 6))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "small_networks.py").write_text(NETWORKS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def measured(capsys, *arguments):
    assert cli.main(["bench", *arguments, "--steps", "2", "--rounds", "1", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_contenders_train_alike(capsys, folder):
    report = measured(capsys, "small_networks:perceptron", "--input-shape", "8,16", "--strategies", "optimal,model")
    assert report["batch_size"] == 8 and report["machine"]["mxnet"] == "1.9.1"
    by_name = {item["name"]: item for item in report["contenders"]}
    assert list(by_name) == ["serial", "serial_all_cores", "data_parallel", "soybean_mx:optimal", "soybean_mx:model"]
    serial, parallel, tiled = by_name["serial"], by_name["data_parallel"], by_name["soybean_mx:optimal"]
    assert serial["bytes_moved"] == 0 and parallel["bytes_moved"] == 2 * PARAMETER_BYTES > tiled["bytes_moved"] > 0
    for item in by_name.values():
        # The same weights, batch and rule.
        assert item["last_loss"] == pytest.approx(serial["last_loss"], rel=1e-5) != item["first_loss"]
        assert item["error"] is None and item["peak_bytes"] > 2 ** 20 and len(item["seconds_all"]) == 2
        assert item["seconds_min"] <= item["seconds"] <= item["seconds_max"]
        found = item["over_data_parallel"]["speedup"]
        assert found == pytest.approx(parallel["seconds"] / item["seconds"])


def test_an_exported_symbol(folder, monkeypatch):
    """Its parameters begin as those of its layers would: biases with 0."""
    monkeypatch.syspath_prepend(str(folder))
    net = importlib.import_module("small_networks").perceptron()
    net.initialize()
    net.hybridize()
    net(mx.nd.zeros((8, 16)))
    net.export("net")
    task = model_task.loaded_task("net-symbol.json", None, [[8, 16]], "float32", None)
    (data,), (label,) = task.batch(8, "float32")
    made = training_step.make_network(task, {"dtype": "float32"}, [mx.cpu()])
    assert made(data).shape == (8, 6) and label.shape == (8,)
    parameters = {name: parameter.data() for name, parameter in made.collect_params().items()}
    assert sorted(parameters) == ["net_fc0_bias", "net_fc0_weight", "net_fc1_bias", "net_fc1_weight"]
    assert all((abs(value).sum().asscalar() == 0) == name.endswith("bias") for name, value in parameters.items())


def test_symbols_with_batch_norm_and_a_loss(folder):
    data = mx.sym.BatchNorm(mx.sym.Variable("data"), name="norm", fix_gamma=False)
    mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=3, name="fc"), name="softmax").save("old-symbol.json")
    task = model_task.loaded_task("old-symbol.json", None, [[4, 5]], "float32", None)
    assert [item.shape for item in task.inputs] == [(4, 5), (4,)]
    step = training_step.serial_step(task, training_step.make_network(task, {"dtype": "float32"}, [mx.cpu()]),
                                     {"batch_size": 4, "dtype": "float32"}, mx.cpu())
    assert step()[0].shape == (4,) and np.isfinite(step()[0].asnumpy()).all()


def test_several_inputs_and_outputs(folder):
    task = model_task.loaded_task("small_networks:Words", None, [[8, 5], [8, 5, 8]], "float32", None)
    assert [item.whole_below for item in task.inputs] == [50, None] and task.outputs == ((8, 5, 6), (8, 5, 8))
    (words, more), labels = task.batch(8, "float32")
    assert words.shape == (8, 5) and 0 <= words.min().asscalar() and words.max().asscalar() < 50
    assert more.shape == (8, 5, 8) and labels == [None, None]
    net = task.network()
    net.initialize()
    assert [output.shape for output in net(words, more)] == [(8, 5, 6), (8, 5, 8)]


def test_failures_are_told_and_ratios_are_of_rounds(capsys, folder, monkeypatch):
    """Data parallelism fails in the second round, the tiled program in both."""
    def result(contender, *_):
        calls.append(contender.name)
        if contender.name.startswith("soybean_mx") or calls.count("data_parallel") == 2 == len(calls) // 3:
            return {"error": "no memory"}
        seconds = [2.0, 4.0] if contender.name == "serial" else [1.0, 1.0]
        return {"seconds_all": seconds, "issue_seconds_all": seconds, "issue_wall_seconds_all": seconds,
                "processor_seconds_all": seconds, "peak_bytes": 1, "bytes_moved": 0, "first_loss": 1.0,
                "last_loss": 1.0}

    calls = []
    monkeypatch.setattr(running, "run_contender", result)
    assert cli.main(["bench", "small_networks:perceptron", "--input-shape", "8,16", "--rounds", "2", "--json"]) == 1
    by_name = {item["name"]: item for item in json.loads(capsys.readouterr().out)["contenders"]}
    assert by_name["serial"]["seconds"] == 3.0
    assert by_name["data_parallel"]["over_one_device"]["speedup"] == 3.0
    assert by_name["soybean_mx:optimal"] == {
        "name": "soybean_mx:optimal", "title": "soybean_mx, optimal", "devices": 2,
        "threads_per_device": max(1, running.cores() // 2), "error": "no memory"}
    calls.clear()
    assert cli.main(["bench", "small_networks:perceptron", "--input-shape", "8,16", "--rounds", "1"]) == 1
    out = capsys.readouterr().out
    assert "soybean_mx, optimal: every round failed: no memory" in out and "3.00x" in out


@pytest.mark.parametrize("arguments, said", [
    (["--input-shape", "1,16"], "batch is of 1 samples"),
    (["--input-shape", "8,16", "--devices", "cpu:1"], "one device"),
    (["--input-shape", "8,16", "--devices", "tpu:2"], "'tpu'"), (["--input-shape", "8,16", "--steps", "0"], "--steps"),
    (["--input-shape", "8,16", "--strategies", "data,best"], "'best'"),
    (["--input-shape", "8,16", "--timeout", "0"], "--timeout"), (["--batch-size", "0"], "is 0"),
    (["--input-shape", "8,0"], "1 or more in every dim")])
def test_arguments_that_are_refused(capsys, folder, arguments, said):
    assert cli.main(["bench", "small_networks:perceptron", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 1 and said in err


@pytest.mark.skipif(mx.context.num_gpus() > 0, reason="there are GPUs")
def test_gpus_that_are_not_there(capsys, folder):
    assert cli.main(["bench", "small_networks:perceptron", "--input-shape", "8,16", "--devices", "gpu:2"]) == 2
    assert "MXNet sees 0 GPUs" in capsys.readouterr().err


def test_inputs_of_different_batches(capsys, folder):
    assert cli.main(["bench", "small_networks:Words", "--input-shape", "8,5", "--input-shape", "1,5,8"]) == 2
    assert "same first extent" in capsys.readouterr().err


def test_contenders_of_gpus_have_no_threads_to_share(monkeypatch):
    arguments = bench_command.argparse.Namespace(devices="gpu:0,2", strategies="data")
    found = bench_command._contenders(arguments)
    assert [(item.name, len(item.devices)) for item in found] == [
        ("serial", 1), ("data_parallel", 2), ("soybean_mx:data", 2)]


def test_plain_contenders_see_nothing_of_the_start_up_hook():
    program = ("from soybean_mx import startup\nstartup.remove()\nimport mxnet, sys\n"
               "print(sorted(name for name in sys.modules if name.startswith('soybean_mx')))\n"
               "print(mxnet.gluon.HybridBlock.hybridize.__module__)")
    modules, hybridize = run_child(program).splitlines()
    assert "gluon_front" not in modules and hybridize == "mxnet.gluon.block"
