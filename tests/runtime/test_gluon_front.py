"""Hybridized blocks run tiled, and everything else that a program does with a block goes on working."""
from __future__ import annotations

import warnings

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

from soybean_mx import core, gluon_front
from soybean_mx.gluon_front import BlockError, TiledGraph, plan_of
from soybean_mx.parameters import is_tiled

from ..child import run_child
from .pairs import assert_close, assert_same_parameters, convolutional, mlp, pair, parameters, samples, train


def _loss(net, *inputs):
    with autograd.record():
        loss = ((net(*inputs) + 1) ** 2).sum()
    loss.backward()
    return loss


@pytest.mark.parametrize("devices", ["cpu:1", "cpu:2", "cpu:3", "cpu:6", "cpu:8", "cpu:16", "cpu:2,5,1"])
@pytest.mark.parametrize("strategy", ["optimal", "data", "model", "recursive"])
def test_forward_and_gradients(devices, strategy):
    nets = pair(mlp(batch_norm=True), samples(8, 10), devices=devices, strategy=strategy)
    for net in nets:
        net.losses = [_loss(net, samples(8, 10, seed=seed)) for seed in range(2)]
    for theirs, ours in zip(nets[0].losses, nets[1].losses):
        assert_close(ours, theirs)
    assert_same_parameters(nets[1], nets[0], 1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_types(dtype):
    nets = pair(mlp(), samples(8, 10, dtype=dtype), dtype=dtype)
    losses = [_loss(net, samples(8, 10, dtype=dtype)) for net in nets]
    assert losses[1].dtype == np.dtype(dtype).type
    assert_close(losses[1], losses[0], 1e-12 if dtype == "float64" else 1e-5)


def test_other_batch_sizes_and_modes():
    nets = pair(mlp(batch_norm=True), samples(8, 10))
    for batch in (8, 3, 8, 1, 5):
        if batch > 1:
            for net in nets:
                _loss(net, samples(batch, 10))
            assert_same_parameters(nets[1], nets[0], 1e-4)
        assert_close(nets[1](samples(batch, 10)), nets[0](samples(batch, 10)))
    results = []
    for net in nets:
        with autograd.train_mode():
            results.append(net(samples(8, 10)))
        with autograd.record(), autograd.predict_mode():
            results.append(net(samples(8, 10)))
    assert_close(results[2], results[0])
    assert_close(results[3], results[1])


def test_outputs_are_not_overwritten_by_later_calls():
    _, net = pair(mlp(), samples(8, 10))
    first = net(samples(8, 10))
    before = first.asnumpy().copy()
    net(samples(8, 10, seed=1))
    assert (first.asnumpy() == before).all()
    first[:] = 7
    assert_close(net(samples(8, 10)), before)


def test_the_order_comes_from_the_environment(monkeypatch):
    """For scripts/trace_step.py."""
    monkeypatch.setenv("SOYBEAN_MX_ORDER", "sideways")
    with pytest.raises(ValueError, match="option order is 'sideways': 'scheduled' or 'serial' are possible"):
        pair(mlp(), samples(8, 10))[1](samples(8, 10))


def test_many_shapes_keep_few_executors():
    nets = pair(mlp(), samples(8, 10))
    for batch in range(1, 25):
        assert_close(nets[1](samples(batch, 10)), nets[0](samples(batch, 10)))
    assert len(nets[1]._cached_op._signatures) <= 16
    assert_close(nets[1](samples(1, 10)), nets[0](samples(1, 10)))


class Nested(gluon.HybridBlock):
    """Several inputs, of which one may be missing, in a nested structure; nested outputs."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.one, self.two = gluon.nn.Dense(6), gluon.nn.Dense(6)

    def hybrid_forward(self, F, x, pair, extra=None):
        a, (b, c) = self.one(x), pair
        total = a + self.two(b) * c
        if extra is not None:
            total = total + extra
        return total, [F.softmax(total), a]


@pytest.mark.parametrize("extra", [True, False])
def test_nested_arguments_and_results(extra):
    inputs = [samples(8, 10), [samples(8, 4), samples(8, 6)]] + ([samples(8, 6, seed=3)] if extra else [])
    nets = pair(lambda prefix: Nested(prefix=prefix), *inputs)
    for net in nets:
        inputs[1][0].attach_grad()
        with autograd.record():
            total, (soft, a) = net(*inputs)
            loss = (total * soft).sum() + (a ** 2).sum()
        loss.backward()
        net.results = [total, soft, a, inputs[1][0].grad.copy()]
    for theirs, ours in zip(nets[0].results, nets[1].results):
        assert_close(ours, theirs)
    assert_same_parameters(nets[1], nets[0])
    with pytest.raises(ValueError, match="structure"):
        nets[1](inputs[0], inputs[1][0])


def test_numpy_mode():
    run_child("tests.runtime.numpy_mode", ["training"])


def test_arrays_without_dims():
    run_child("tests.runtime.numpy_mode", ["scalars"])


def test_dropout_is_reproducible():
    _, net = pair(mlp(dropout=0.5), samples(8, 10))
    results = []
    for _ in range(2):
        mx.random.seed(5)
        with autograd.record():
            out = net(samples(8, 10))
        results.append(out.asnumpy())
    assert (results[0] == results[1]).all()
    with autograd.record():
        out = net(samples(8, 10))
    assert not (results[0] == out.asnumpy()).all()


def test_hybridizing_off_and_on():
    nets = pair(mlp(batch_norm=True), samples(8, 10))
    for index, net in enumerate(nets):
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        on = {"backend": "soybean_mx", "devices": "cpu:4"} if index else {}
        for options in ({}, {"active": False}, on, {"active": False}, {"backend": None}, on,
                        {**on, "static_alloc": True, "static_shape": True}, {"clear": False}):
            net.hybridize(**options)
            train(net, trainer, 2)
    assert_same_parameters(nets[1], nets[0], 1e-4)


def test_a_change_of_options_plans_anew():
    _, net = pair(mlp(), samples(8, 10), strategy="data")
    _loss(net, samples(8, 10))
    assert plan_of(net)["strategy"] == "data"
    net.collect_params().reset_ctx(mx.cpu())
    net.hybridize(backend="soybean_mx", devices="cpu:2", strategy="model", pins={})
    _loss(net, samples(8, 10))
    assert plan_of(net)["strategy"] == "model" and plan_of(net)["devices"] == 2


def test_pins():
    _, net = pair(mlp(), samples(8, 10))
    net.hybridize(backend="soybean_mx", devices="cpu:4", pins={net[0].weight.name: ["split 1", "split 0"]})
    _loss(net, samples(8, 10))
    assert plan_of(net)["tensors"][net[0].weight.name] == ["split 1", "split 0"]


def test_tilings_stay_when_shapes_change():
    _, net = pair(mlp(), samples(8, 10))
    _loss(net, samples(8, 10))
    first = plan_of(net)["tensors"]
    _loss(net, samples(3, 10))
    second = plan_of(net)["tensors"]
    assert all(first[p.name] == second[p.name] for p in parameters(net))


def test_only_the_wanted_blocks_are_tiled():
    plain, net = pair(mlp(), samples(8, 10))
    plain(samples(8, 10))
    net(samples(8, 10))
    assert not isinstance(plain._cached_op, TiledGraph) and isinstance(net._cached_op, TiledGraph)
    with pytest.raises(BlockError, match="no plan"):
        plan_of(plain)
    net.hybridize()
    assert_close(net(samples(8, 10)), plain(samples(8, 10)))
    assert not isinstance(net._cached_op, TiledGraph) and is_tiled(net[0].weight)


def test_a_child_called_alone_is_tiled_as_its_parent():
    nets = pair(mlp(), samples(8, 10))
    for net in nets:
        _loss(net, samples(8, 10))
        net.result = net[0](samples(4, 10))
    assert_close(nets[1].result, nets[0].result)
    assert isinstance(nets[1][0]._cached_op, TiledGraph)


def test_symbolic_calls_are_untouched():
    _, net = pair(mlp(), samples(8, 10))
    symbol = net(mx.sym.var("data"))
    assert isinstance(symbol, mx.sym.Symbol) and net[0].weight.name in symbol.list_arguments()


def test_deferred_initialisation_and_casting_before():
    net = mlp()("deferred_")
    net.initialize()
    net.hybridize(backend="soybean_mx", devices="cpu:4")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    assert net[0].weight.shape == (16, 0)
    train(net, trainer, 1)
    assert net[0].weight.shape == (16, 10) and is_tiled(net[0].weight)
    missing = mlp()("missing_")
    missing.hybridize(backend="soybean_mx", devices="cpu:4")
    with pytest.raises(RuntimeError, match="has not been initialized"):
        missing(samples(8, 10))


def test_export_and_import(tmp_path):
    nets = pair(convolutional, samples(4, 3, 8, 8))
    for net in nets:
        _loss(net, samples(4, 3, 8, 8))
    expected = nets[0](samples(4, 3, 8, 8))
    nets[1](samples(4, 3, 8, 8))
    nets[1].export(str(tmp_path / "net"), 3)
    imported = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"],
                                         str(tmp_path / "net-0003.params"))
    assert_close(imported(samples(4, 3, 8, 8)), expected, 1e-4)
    imported.hybridize(backend="soybean_mx", devices="cpu:4")
    assert_close(imported(samples(4, 3, 8, 8)), expected, 1e-4)
    assert isinstance(imported._cached_op, TiledGraph)
    _loss(imported, samples(4, 3, 8, 8))
    _loss(nets[0], samples(4, 3, 8, 8))
    imported_parameters = imported.collect_params()
    for parameter in parameters(nets[0]):
        if parameter.grad_req != "null":
            assert_close(imported_parameters[parameter.name].grad(), parameter.grad(), 1e-4)


def test_optimize_for():
    nets = pair(mlp(), samples(8, 10), hybridize=False)
    nets[1].optimize_for(samples(8, 10), backend="soybean_mx", devices="cpu:4")
    assert isinstance(nets[1]._cached_op, TiledGraph)
    assert_close(nets[1](samples(8, 10)), nets[0](samples(8, 10)))
    nets[1].optimize_for(samples(8, 10), backend="MKLDNN", clear=True)
    assert_close(nets[1](samples(8, 10)), nets[0](samples(8, 10)))


def test_summary_and_inference_of_shapes(capsys):
    _, net = pair(mlp(), samples(8, 10))
    _loss(net, samples(8, 10))
    net.hybridize(False)
    net.summary(samples(8, 10))
    assert "Total params" in capsys.readouterr().out
    net.infer_shape(samples(8, 10))
    net.infer_type(samples(8, 10))


def test_a_block_that_records_its_own_expressions():
    """Hybridized blocks inside a plain one: each is tiled, and the tape joins them."""

    class Outer(gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.first, self.second = mlp((8, 6))("a_"), mlp((7, 5))("b_")

        def forward(self, x):
            hidden = self.first(x)
            return self.second(mx.nd.sigmoid(hidden) + hidden) * 2

    nets = pair(lambda prefix: Outer(prefix=prefix), samples(8, 10), hybridize=False)
    nets[0].hybridize()
    for child in (nets[1].first, nets[1].second):
        child.hybridize(backend="soybean_mx", devices="cpu:4")
    for net in nets:
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        train(net, trainer, 3)
    assert_same_parameters(nets[1], nets[0])


def test_default_devices():
    run_child("tests.runtime.default_devices")


def test_bad_input():
    _, net = pair(mlp(), samples(8, 10))
    net(samples(8, 10))
    before = [p.data().asnumpy().copy() for p in parameters(net)]
    with pytest.raises(BlockError, match="at least 1 sample"):
        with mx.util.np_shape(True):
            net(mx.nd.zeros((0, 10)))
    with pytest.raises(BlockError, match="tostype"):
        net(samples(8, 10).tostype("csr"))
    with pytest.raises(mx.MXNetError):
        net(samples(8, 11))
    with pytest.raises(ValueError, match="multiple contexts"):
        nested = Nested()
        nested.initialize()
        nested.hybridize(backend="soybean_mx", devices="cpu:2")
        nested(samples(8, 10), [samples(8, 4), samples(8, 6).as_in_context(mx.cpu(1))])
    with pytest.raises(TypeError, match="its options are"):
        net.hybridize(backend="soybean_mx", device="cpu:2")
    with pytest.raises(ValueError, match="device list"):
        net.hybridize(backend="soybean_mx", devices="cpu:0,0")
    assert all((p.data().asnumpy() == values).all() for p, values in zip(parameters(net), before))
    assert_close(net(samples(8, 10)), net(samples(8, 10)))


@pytest.mark.parametrize("strategy", ["optimal", "data", "model"])
def test_prediction_with_channels_in_blocks(strategy):
    # In prediction oneDNN keeps weights in blocks of 8 or 16 channels, in place: also those put together from tiles.
    def build(prefix):
        net = gluon.nn.HybridSequential(prefix=prefix)
        with net.name_scope():
            for channels in (8, 16, 32):
                net.add(gluon.nn.Conv2D(channels, 3, padding=1), gluon.nn.BatchNorm(), gluon.nn.Activation("relu"))
            net.add(gluon.nn.MaxPool2D(), gluon.nn.Dense(5))
        return net

    x = samples(8, 3, 12, 12)
    plain, net = pair(build, x, devices="cpu:4", strategy=strategy)
    for batch in (8, 8, 5, 8):
        assert_close(net(x[:batch]), plain(x[:batch]))


class NotTraceable(gluon.HybridBlock):
    """Asks for what a symbol does not know."""

    def hybrid_forward(self, F, x):
        return x * float(x.shape[0])


def test_a_block_that_cannot_be_traced_is_named():
    block = NotTraceable()
    block.hybridize(backend="soybean_mx", devices="cpu:2")
    with pytest.raises(BlockError, match=f"{block.name} was hybridized but cannot be traced .*do not hybridize it"):
        block(samples(8, 10))


@pytest.mark.parametrize("devices, units, shape", [
    ("cpu:16", 2, (2, 3)),  # more devices than any dim has elements
    ("cpu:13", 2, (2, 3)),
    ("cpu:4", 1, (1, 1)),  # nothing that could be cut
    ("cpu:4", 5, (1, 3)),  # a batch of one
])
def test_little_or_nothing_to_cut(devices, units, shape):
    plain, net = pair(mlp(sizes=(units,)), samples(*shape), devices=devices)
    results = []
    for block in (plain, net):
        with autograd.record():
            loss = (block(samples(*shape)) ** 2).sum()
        loss.backward()
        results.append([loss] + [p.grad() for p in parameters(block)])
    for theirs, ours in zip(*results):
        assert_close(ours, theirs)


def test_parameters_on_several_contexts_are_refused():
    net = mlp()("several_")
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    net.hybridize(backend="soybean_mx", devices="cpu:2")
    with pytest.raises(BlockError, match="one context"):
        net(samples(8, 10))


def test_sparse_gradients_are_refused():
    net = gluon.nn.Embedding(20, 6, sparse_grad=True)
    net.initialize()
    net.hybridize(backend="soybean_mx", devices="cpu:2")
    with pytest.raises(BlockError, match="dense"):
        net(mx.nd.array([1, 2]))


@pytest.mark.parametrize("where", ["plan", "lower", "bind"])
def test_a_failure_leaves_the_parameters_as_they_were(where, monkeypatch):
    nets = pair(mlp(), samples(8, 10))

    def fail(*_, **__):
        raise core.PlanError("no")

    with monkeypatch.context() as patch:
        if where == "bind":
            patch.setattr(mx.sym.Symbol, "bind", fail)
        else:
            patch.setattr(core, where, fail)
        with pytest.raises(core.PlanError):
            _loss(nets[1], samples(8, 10))
        assert not any(is_tiled(p) for p in parameters(nets[1]))
    for net in nets:
        train(net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), 2)
    assert_same_parameters(nets[1], nets[0])


def test_operator_hooks_are_refused():
    _, net = pair(mlp(), samples(8, 10))
    net.register_op_hook(lambda *_: None)
    with pytest.raises(BlockError, match="hook"):
        net(samples(8, 10))


def test_forward_hooks():
    _, net = pair(mlp(), samples(8, 10), hybridize=False)
    seen = []
    net.register_forward_hook(lambda block, inputs, output: seen.append(output.shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.hybridize(backend="soybean_mx", devices="cpu:2")
    net(samples(8, 10))
    assert seen == [(8, 5)]


def test_unused_inputs_and_parameters_are_warned_of():
    class Partly(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.used, self.unused = gluon.nn.Dense(3, in_units=10), gluon.nn.Dense(3, in_units=4)

        def hybrid_forward(self, F, x, y):
            return self.used(x)

    net = Partly()
    net.initialize()
    net.hybridize(backend="soybean_mx", devices="cpu:2")
    with pytest.warns(UserWarning) as caught:
        net(samples(8, 10), samples(8, 3))
    assert len([warning for warning in caught if "not used" in str(warning.message)]) == 2
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with autograd.record():
        loss = net(samples(8, 10), samples(8, 3)).sum()
    loss.backward()
    with pytest.raises(UserWarning, match="unused|dense1"):
        trainer.step(1)


def test_install_again_changes_nothing():
    before = (gluon.HybridBlock._call_cached_op, gluon.Trainer._update, autograd.backward, mx.nd.NDArray.backward)
    gluon_front.install()
    assert before == (gluon.HybridBlock._call_cached_op, gluon.Trainer._update, autograd.backward,
                      mx.nd.NDArray.backward)


def test_children_of_a_block_that_is_not_hybrid_are_tiled_one_by_one():
    def build(prefix):
        net = gluon.contrib.nn.Concurrent(axis=1, prefix=prefix)
        with net.name_scope():
            net.add(gluon.nn.Dense(6, activation="relu"), gluon.contrib.nn.Identity(), gluon.nn.Dense(4))
        return net

    nets = pair(build, samples(8, 10))
    for net in nets:
        train(net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), 2)
    assert_same_parameters(nets[1], nets[0])
    assert all(is_tiled(parameter) for parameter in parameters(nets[1]))


class _ShapeOfAnother(gluon.HybridBlock):
    """Convolutions, whose memory is that of a tensor that gives nothing but its shape later."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.convolutions = gluon.nn.HybridSequential()
            for _ in range(3):
                self.convolutions.add(gluon.nn.Conv2D(32, 3, padding=1))

    def hybrid_forward(self, F, x):
        shape_of = F.sin(x)
        return shape_of.sum(axis=(2, 3)), self.convolutions(x).sum(axis=(2, 3)), F.zeros_like(shape_of)


@pytest.mark.parametrize("devices", ("cpu:1", "cpu:4"))
def test_inputs_that_are_ignored_are_left_alone(devices):
    x = samples(4, 16, 24, 24)
    plain, net = pair(lambda prefix: _ShapeOfAnother(prefix=prefix), x, devices=devices)
    for expected, output in zip(plain(x), net(x)):
        assert_close(output, expected)
    with autograd.record():
        outputs = net(x)
    autograd.backward(outputs)
    assert not outputs[2].asnumpy().any()
