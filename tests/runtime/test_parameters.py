"""Tiled parameters act like MXNet's: whole arrays stay coherent with the tiles."""
from __future__ import annotations

import copy
import pickle

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

from soybean_mx import parameters as tiled_parameters
from soybean_mx.parameters import is_tiled

from .pairs import assert_close, assert_same_parameters, convolutional, mlp, pair, parameters, samples


def _step(net, trainer=None, seed=0):
    with autograd.record():
        loss = (net(samples(8, 10, seed=seed)) ** 2).sum()
    loss.backward()
    if trainer is not None:
        trainer.step(8)


def _trained_pair(steps=1, **kwargs):
    nets = pair(mlp(), samples(8, 10), **kwargs)
    for net in nets:
        for step in range(steps):
            _step(net, seed=step)
    return nets


def _sgd(net):
    return gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})


def test_tiles_lie_on_several_devices_and_the_context_is_the_users():
    _, net = _trained_pair()
    weight = net[0].weight
    assert is_tiled(weight) and isinstance(weight, gluon.Parameter)
    assert weight.list_ctx() == [mx.cpu(0)]
    assert len({tile.context for tile in weight.list_data()}) == 4
    assert sum(tile.size for tile in weight.list_data()) == 160
    assert [tile.shape for tile in weight.list_grad()] == [tile.shape for tile in weight.list_data()]
    assert weight.data().shape == (16, 10) and weight.data(mx.cpu(0)).context == mx.cpu(0)
    with pytest.raises(RuntimeError, match="not initialized on context"):
        weight.data(mx.cpu(1))
    assert repr(weight).startswith("Parameter ") and repr(weight.data()).strip().endswith("<NDArray 16x10 @cpu(0)>")


def test_nothing_is_kept_when_nobody_asks():
    _, net = _trained_pair()
    trainer = _sgd(net)
    for _ in range(2):
        _step(net, trainer)
    assert not tiled_parameters._handed_out
    net[0].weight.data().asnumpy()
    assert tiled_parameters._handed_out
    _step(net, trainer)
    assert not tiled_parameters._handed_out


def test_changes_of_temporaries_take_effect():
    nets = _trained_pair()
    for net in nets:
        net[0].weight.data()[:] = 0.5
        net[1].bias.data()[2:5] += 1
        _step(net)
        net[0].weight.grad()[:] *= 0.5
        _sgd(net).step(8)
    assert_same_parameters(nets[1], nets[0])


def test_held_arrays_follow_training_and_their_changes_take_effect():
    nets = _trained_pair()
    seen = []
    for net in nets:
        trainer, data, grad = _sgd(net), net[0].weight.data(), net[0].weight.grad()
        values = []
        for step in range(3):
            _step(net, trainer, step)
            values += [data.copy(), grad.copy()]
            data[:] *= 1.5
        values.append(net(samples(8, 10)))
        assert data is net[0].weight.data() or not is_tiled(net[0].weight)
        seen.append(values)
    for theirs, ours in zip(*seen):
        assert_close(ours, theirs)
    assert_same_parameters(nets[1], nets[0])


def test_arrays_fetched_before_the_parameter_was_tiled():
    nets = pair(mlp(), samples(8, 10))
    seen = []
    for net in nets:
        data, grad = net[0].weight.data(), net[0].weight.grad()
        trainer = _sgd(net)
        _step(net, trainer)
        data[:] *= 2
        _step(net)
        grad[:] *= 0.5
        trainer.step(8)
        seen.append((data, grad))
    for theirs, ours in zip(*seen):
        assert_close(ours, theirs)
    assert_same_parameters(nets[1], nets[0])


def test_gradient_of_the_whole_array_is_the_parameters():
    _, net = _trained_pair()
    weight = net[0].weight
    assert_close(weight.data().grad, weight.grad())


def test_clip_global_norm_takes_effect():
    nets = _trained_pair()
    norms = []
    for net in nets:
        norms.append(gluon.utils.clip_global_norm([p.grad() for p in parameters(net)], 0.1))
        _sgd(net).step(8)
    assert_close(norms[1], norms[0])
    assert_same_parameters(nets[1], nets[0])


def test_clip_global_norm_over_the_tiles():
    nets = _trained_pair()
    norms = []
    for net in nets:
        arrays = [grad for p in parameters(net) for grad in p.list_grad()]
        norms.append(gluon.utils.clip_global_norm(arrays, 0.1))
        _sgd(net).step(8)
    assert_close(norms[1], norms[0])
    assert_same_parameters(nets[1], nets[0])


def test_changing_a_tile_wins_over_an_older_whole_array():
    _, net = _trained_pair()
    weight = net[0].weight
    whole = weight.data()
    for tile in weight.list_data():
        tile[:] = 3
    _step(net)
    assert (whole.asnumpy() == 3).all() and (weight.data().asnumpy() == 3).all()


def test_set_data():
    nets = _trained_pair()
    new = samples(16, 10, seed=9)
    for net in nets:
        held = net[0].weight.data()
        net[0].weight.set_data(new)
        assert_close(held, new)
        net[1].bias.set_data(mx.nd.ones(12, ctx=mx.cpu(2)))
        _step(net)
    assert_same_parameters(nets[1], nets[0])
    before = nets[1][0].weight.data().asnumpy().copy()
    with pytest.raises(AssertionError):
        nets[1][0].weight.set_data(samples(16, 11))
    assert (nets[1][0].weight.data().asnumpy() == before).all()
    assert nets[1][0].weight.shape == (16, 10)


def test_zero_grad():
    for how in ("parameter", "dict"):
        _, net = _trained_pair()
        held = net[0].weight.grad()
        if how == "dict":
            net.collect_params().zero_grad()
        else:
            for parameter in parameters(net):
                parameter.zero_grad()
        assert not held.asnumpy().any() and not net[0].weight.grad().asnumpy().any()
        assert not any(tile.asnumpy().any() for p in parameters(net) for tile in p.list_grad())


def test_grad_req_may_change():
    nets = _trained_pair()
    for net in nets:
        net.collect_params(".*bias").setattr("grad_req", "add")
        net[0].collect_params().setattr("grad_req", "null")  # not the weight alone: see the test of such biases
        for seed in range(2):
            _step(net, seed=seed)
    assert_same_parameters(nets[1], nets[0])
    for net in nets:
        with pytest.raises(RuntimeError, match="null"):
            net[0].weight.grad()
        net[0].collect_params().setattr("grad_req", "write")
        _step(net, _sgd(net))
    assert_same_parameters(nets[1], nets[0])


def test_frozen_block():
    nets = pair(mlp(), samples(8, 10))
    for net in nets:
        net.collect_params().setattr("grad_req", "null")
        head = gluon.nn.Dense(3)
        head.initialize(mx.init.One())
        with autograd.record():
            loss = head(net(samples(8, 10))).sum()
        loss.backward()
        net.result = head.weight.grad()
        with pytest.raises(mx.MXNetError):
            with autograd.record():
                out = net(samples(8, 10)).sum()
            out.backward()
    assert_close(nets[1].result, nets[0].result)


def test_biases_beside_frozen_weights():
    """MXNet with oneDNN leaves such a bias's gradient unwritten: it is that of the same network with nothing frozen."""
    for make, shape in ((mlp(), (8, 10)), (convolutional, (8, 3, 12, 12))):
        plain, net = pair(make, samples(*shape))
        for name, parameter in net.collect_params().items():
            if name.endswith("weight"):
                parameter.grad_req = "null"
        for each in (plain, net):
            with autograd.record():
                loss = (each(samples(*shape)) ** 2).sum()
            loss.backward()
        biases = [(one, other) for one, other in zip(parameters(plain), parameters(net)) if one.name.endswith("bias")]
        assert biases
        for one, other in biases:
            assert_close(other.grad(), one.grad())


@pytest.mark.parametrize("how", ["parameters", "dict", "load_dict"])
def test_saving_and_loading(how, tmp_path):
    nets = _trained_pair()
    path = str(tmp_path / "file.params")
    for source, target in (nets, nets[::-1]):
        source[0].weight.data()[:] += 1
        if how == "parameters":
            source.save_parameters(path)
            target.load_parameters(path)
        else:
            source.collect_params().save(path)
            if how == "dict":
                target.collect_params().load(path)
            else:
                target.collect_params().load_dict(mx.nd.load(path))
        assert_same_parameters(nets[1], nets[0], gradients=False)
        assert_close(nets[1](samples(8, 10)), nets[0](samples(8, 10)))
    nets[1].save_parameters(path)
    nets[1].load_parameters(path, ctx=mx.cpu(0))
    with pytest.raises(AssertionError):
        nets[1].load_parameters(path, ctx=mx.cpu(1))


def test_cast():
    nets = _trained_pair()
    for net in nets:
        net.cast("float64")
        with autograd.record():
            loss = (net(samples(8, 10, dtype="float64")) ** 2).sum()
        loss.backward()
        assert net[0].weight.dtype == "float64" and net[0].weight.data().dtype == np.float64
    assert_same_parameters(nets[1], nets[0], 1e-9)


def test_reset_ctx():
    nets = _trained_pair()
    for net in nets:
        net.collect_params().reset_ctx(mx.cpu(1))
        assert net[0].weight.list_ctx() == [mx.cpu(1)]
        with autograd.record():
            loss = (net(samples(8, 10).as_in_context(mx.cpu(1))) ** 2).sum()
        assert loss.context == mx.cpu(1)
        loss.backward()
        _sgd(net).step(8)
    assert is_tiled(nets[1][0].weight)
    assert_same_parameters(nets[1], nets[0])


def test_initialising_again():
    nets = _trained_pair()
    for net in nets:
        net.initialize(mx.init.One(), force_reinit=True)
        _step(net, _sgd(net))
        with pytest.warns(UserWarning, match="already initialized"):
            net[0].weight.initialize()
    assert_same_parameters(nets[1], nets[0])


def test_a_parameter_shared_with_a_plain_block():
    nets = _trained_pair()
    for net in nets:
        other = gluon.nn.Dense(16, in_units=10, activation="relu", params=net[0].params)
        trainer = _sgd(net)
        for _ in range(2):
            with autograd.record():
                loss = (net(samples(8, 10)) ** 2).sum() + other(samples(8, 10, seed=5)).sum()
            loss.backward()
            trainer.step(8)
    assert_same_parameters(nets[1], nets[0])


def test_parameters_shared_by_two_tiled_blocks():
    nets = pair(mlp(), samples(8, 10))
    for index, net in enumerate(nets):
        other = gluon.nn.HybridSequential()
        other.add(gluon.nn.Dense(16, in_units=10, params=net[0].params), gluon.nn.Dense(3, in_units=16))
        other[1].initialize(mx.init.One())
        other.hybridize(**({"backend": "soybean_mx", "devices": "cpu:4"} if index else {}))
        trainer = _sgd(net)
        for _ in range(2):
            with autograd.record():
                loss = (net(samples(8, 10)) ** 2).sum() + (other(samples(4, 10, seed=5)) ** 2).mean()
            loss.backward()
            trainer.step(8)
    assert_same_parameters(nets[1], nets[0])


def test_other_devices_for_a_shared_parameter_are_refused():
    _, net = _trained_pair()
    other = gluon.nn.Dense(16, in_units=10, params=net[0].params)
    other.hybridize(backend="soybean_mx", devices="cpu:2")
    with pytest.raises(ValueError, match="same devices"):
        other(samples(8, 10))


def test_constants():
    class Scaled(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.dense = gluon.nn.Dense(6)
                self.scale = self.params.get_constant("scale", np.arange(6, dtype="float32"))

        def hybrid_forward(self, F, x, scale):
            return F.broadcast_mul(self.dense(x), F.reshape(scale, (1, -1)))

    nets = pair(lambda prefix: Scaled(prefix=prefix), samples(8, 10))
    for net in nets:
        _step(net)
        net.scale.set_data(mx.nd.ones(6) * 2)
        _step(net)
        assert net.scale.grad_req == "null"
    assert_same_parameters(nets[1], nets[0])


def test_moving_statistics_can_be_read_and_written():
    nets = pair(convolutional, samples(4, 3, 8, 8))
    seen = []
    for net in nets:
        held = net[1].running_mean.data()
        values = []
        for seed in range(3):
            with autograd.record():
                loss = (net(samples(4, 3, 8, 8, seed=seed)) ** 2).sum()
            loss.backward()
            values.append(held.copy())
            values.append(net(samples(2, 3, 8, 8)))
            held[:] *= 0.5
        seen.append(values)
    for theirs, ours in zip(*seen):
        assert_close(ours, theirs, 1e-4)
    assert_same_parameters(nets[1], nets[0], 1e-4)


def test_local_statistics_are_averaged():
    plain, net = pair(convolutional, samples(8, 3, 8, 8), batch_norm="local", strategy="data")
    data = samples(8, 3, 8, 8)
    with autograd.record():
        loss = (net(data) ** 2).sum()
    loss.backward()
    expected = np.mean([plain[0](data[2 * i:2 * i + 2]).mean(axis=(0, 2, 3)).asnumpy() for i in range(4)], axis=0) * 0.1
    assert_close(net[1].running_mean.data(), expected, 1e-4)
    assert np.isfinite(net(data).asnumpy()).all()
    assert_close(net[1].running_mean.data(), expected, 1e-4)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_are_plain_parameters(how):
    _, net = _trained_pair()
    weight = net[0].weight
    result = how(weight)
    assert type(result) is gluon.Parameter
    assert_close(result.data(), weight.data())
    result.data()[:] = 0
    assert weight.data().asnumpy().any()


def test_a_copied_network_works():
    _, net = _trained_pair()
    result = copy.deepcopy(net)
    assert_close(result(samples(8, 10)), net(samples(8, 10)))
    result[0].weight.data()[:] = 0
    assert net[0].weight.data().asnumpy().any()


def test_stale_gradients_are_reported():
    for net in _trained_pair():
        trainer = _sgd(net)
        trainer.step(8)
        with pytest.raises(UserWarning, match="has not been updated by backward"):
            trainer.step(8)
        before = net[0].weight.data().asnumpy().copy()
        trainer.step(8, ignore_stale_grad=True)
        assert (net[0].weight.data().asnumpy() == before).all()


@pytest.mark.parametrize("batch_norm", ["exact", "fused", "local"])
def test_statistics_are_read_after_they_were_written(batch_norm):
    """MXNet's executor does not tell its engine that BatchNorm writes its statistics in the backward pass."""
    def build(prefix):
        net = gluon.nn.HybridSequential(prefix=prefix)
        with net.name_scope():
            net.add(gluon.nn.BatchNorm(), gluon.nn.Conv2D(2, 1))
        return net

    plain, net = pair(build, samples(32, 32, 16, 16), devices="cpu:2", batch_norm=batch_norm)
    for step in range(1, 6):
        with autograd.record():
            loss = (net(samples(32, 32, 16, 16) + 1) ** 2).sum()
        loss.backward()
        assert_close(net[0].running_mean.data().mean().asscalar(), 1 - 0.9 ** step, 5e-2)


@pytest.mark.parametrize("layer, image", [(gluon.nn.Conv1D, (8,)), (gluon.nn.Conv3D, (4, 4, 4)),
                                          (gluon.nn.Conv1DTranspose, (8,))])
def test_parameters_can_be_written_after_inference(layer, image, tmp_path):
    """Inference leaves such weights in a layout of oneDNN's that MXNet's own copies cannot be written into."""
    def build(prefix):
        net = gluon.nn.HybridSequential(prefix=prefix)
        with net.name_scope():
            net.add(layer(32, 3, in_channels=16), gluon.nn.Flatten(), gluon.nn.Dense(3))
        return net

    data = samples(8, 16, *image)
    _, net = pair(build, data, devices="cpu:2", strategy="data")
    net(data).wait_to_read()
    weight = net[0].weight
    held = weight.data()  # so that it is written back at every call
    net(data).wait_to_read()
    weight.set_data(weight.data() * 2)
    net(data).wait_to_read()
    net.save_parameters(str(tmp_path / "net.params"))
    net.load_parameters(str(tmp_path / "net.params"))
    net(data).wait_to_read()
    _step_on(net, data, _sgd(net))
    net.hybridize(False)
    net(data).wait_to_read()  # gives the whole array such a layout
    net.hybridize(backend="soybean_mx", devices="cpu:2", strategy="data")
    trainer = _sgd(net)
    _step_on(net, data, trainer)
    expected = held.asnumpy()
    assert_close(weight.data(), expected)
    plain = build(net.prefix)
    plain.load_parameters(str(tmp_path / "net.params"))
    for _ in range(2):
        _step_on(plain, data, _sgd(plain))
    assert_same_parameters(net, plain)


def _step_on(net, data, trainer):
    with autograd.record():
        loss = (net(data) ** 2).mean()
    loss.backward()
    trainer.step(1)


class Scaled(gluon.Parameter):
    """A parameter whose ``data()`` is another function of its value at every call, as of GluonNLP's weight dropout."""

    scale = 1.0

    def data(self, ctx=None):
        """The value, scaled."""
        return super().data(ctx) * self.scale


class Scaling(gluon.HybridBlock):
    """A dense layer and a product with such a parameter."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = gluon.nn.Dense(12, activation="relu")
            self.weight = Scaled(self.prefix + "weight", shape=(12, 5))
            self.params.update({self.weight.name: self.weight})

    def hybrid_forward(self, F, x, weight):
        """The product."""
        return F.dot(self.dense(x), weight)


def test_what_a_class_of_parameters_computes_is_used_and_differentiated():
    nets = pair(lambda prefix: Scaling(prefix=prefix), samples(8, 10))
    trainers = [_sgd(net) for net in nets]
    for step in range(3):
        for net, trainer in zip(nets, trainers):
            net.weight.scale = 1.0 + step
            _step(net, trainer, seed=step)
    assert_same_parameters(nets[1], nets[0])
    assert is_tiled(nets[1].dense.weight) and not is_tiled(nets[1].weight)
    assert_close(nets[1](samples(8, 10)), nets[0](samples(8, 10)))
