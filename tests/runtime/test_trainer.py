"""gluon.Trainer over tiled parameters agrees with MXNet's on one device."""
from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

from soybean_mx.parameters import is_tiled
from soybean_mx.trainer import TrainerError, is_elementwise

from .pairs import (
    Elementwise,
    assert_close,
    assert_same_parameters,
    convolutional,
    mlp,
    pair,
    parameters,
    samples,
    train,
)

OPTIMIZERS = [
    ("sgd", {"learning_rate": 0.1, "wd": 0.01}),
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01, "clip_gradient": 0.05}),
    ("nag", {"learning_rate": 0.1, "momentum": 0.9}),
    ("adam", {"learning_rate": 0.01, "wd": 0.01}),
    ("adamax", {"learning_rate": 0.01}),
    ("nadam", {"learning_rate": 0.01}),
    ("adagrad", {"learning_rate": 0.1}),
    ("rmsprop", {"learning_rate": 0.01}),
    ("rmsprop", {"learning_rate": 0.01, "centered": True}),
    ("adadelta", {}),
    ("ftrl", {"learning_rate": 0.1}),
    ("ftml", {"learning_rate": 0.01}),
    ("signum", {"learning_rate": 0.001}),
    ("dcasgd", {"learning_rate": 0.1}),
    # The whole tensor at a time:
    ("lamb", {"learning_rate": 0.01}),
    ("lars", {"learning_rate": 0.1, "momentum": 0.9, "eta": 0.1}),
    ("lbsgd", {"learning_rate": 0.1, "momentum": 0.9, "warmup_strategy": "lars"}),
    ("sgld", {"learning_rate": 0.001}),
]


@pytest.mark.parametrize("name,options", OPTIMIZERS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(OPTIMIZERS)])
def test_optimizers(name, options):
    nets = pair(mlp(activation="tanh"), samples(8, 10))  # Adamax divides by 0 where a gradient is 0
    losses = []
    for net in nets:
        mx.random.seed(3)
        losses.append(train(net, gluon.Trainer(net.collect_params(), name, dict(options)), 4))
    assert_close(losses[1], losses[0], 1e-5)
    assert_same_parameters(nets[1], nets[0], 2e-4 if name in ("ftml", "adadelta") else 2e-5, gradients=False)


def test_every_optimizer_of_mxnet_is_classified():
    for name, kind in mx.optimizer.Optimizer.opt_registry.items():
        if not kind.__module__.startswith("mxnet."):
            continue
        optimizer = kind(learning_rate=0.1)
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert isinstance(is_elementwise(optimizer), bool), name


def test_a_users_own_optimizer_gets_whole_tensors_and_a_warning():
    class Normalised(mx.optimizer.Optimizer):
        def create_state(self, index, weight):
            return mx.nd.zeros(weight.shape, weight.context)

        def update(self, index, weight, grad, state):
            self._update_count(index)
            state[:] = 0.9 * state + grad / (grad.norm() + 1e-3)
            weight[:] -= self._get_lr(index) * state

    nets = pair(mlp(), samples(8, 10))
    train(nets[0], gluon.Trainer(nets[0].collect_params(), Normalised(learning_rate=0.1)), 3)
    with pytest.warns(UserWarning, match="elementwise = True"):
        train(nets[1], gluon.Trainer(nets[1].collect_params(), Normalised(learning_rate=0.1)), 3)
    assert_same_parameters(nets[1], nets[0], gradients=False)

    class Plain(Normalised):
        elementwise = True

        def update(self, index, weight, grad, state):
            self._update_count(index)
            state[:] = 0.9 * state + grad
            weight[:] -= self._get_lr(index) * state

    for net in nets:
        train(net, gluon.Trainer(net.collect_params(), Plain(learning_rate=0.1)), 3)
    assert_same_parameters(nets[1], nets[0], gradients=False)


def test_multipliers_schedules_and_counts():
    nets = pair(mlp(), samples(8, 10))
    for net in nets:
        net[0].weight.lr_mult = 0.5
        net.collect_params(".*bias").setattr("wd_mult", 0.0)
        schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.2)
        trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": schedule, "wd": 0.1})
        train(net, trainer, 5)
        assert trainer.optimizer.num_update == 5
        assert set(trainer.optimizer._index_update_count.values()) == {5}
        net.rate = trainer.learning_rate
    assert nets[0].rate == nets[1].rate
    assert_same_parameters(nets[1], nets[0], gradients=False)
    for net in nets:
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        train(net, trainer, 1)
        trainer.set_learning_rate(0.01)
        train(net, trainer, 1)
    assert_same_parameters(nets[1], nets[0], gradients=False)


@pytest.mark.parametrize("aggregate", ["1", "3", "60"])
def test_aggregated_updates(aggregate, monkeypatch):
    monkeypatch.setenv("MXNET_OPTIMIZER_AGGREGATION_SIZE", aggregate)
    nets = pair(mlp(), samples(8, 10), devices="cpu:6")
    for net in nets:
        train(net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}), 3)
    assert_same_parameters(nets[1], nets[0], gradients=False)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_half_precision_with_master_weights(name):
    nets = pair(lambda prefix: Elementwise(prefix=prefix), samples(8, 10, dtype="float16"), dtype="float16")
    for net in nets:
        trainer = gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.01, "multi_precision": True})
        for step in range(3):
            with autograd.record():
                loss = (net(samples(8, 10, seed=step, dtype="float16")) ** 2).sum()
            loss.backward()
            trainer.step(8)
    assert_same_parameters(nets[1], nets[0], 5e-3)
    assert nets[1].weight.data().dtype == np.float16


def test_allreduce_and_update_separately():
    nets = pair(mlp(), samples(8, 10))
    for net in nets:
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        with autograd.record():
            loss = (net(samples(8, 10)) ** 2).sum()
        loss.backward()
        trainer.allreduce_grads()
        net[0].weight.grad()[:] *= 2
        trainer.update(8)
    assert_same_parameters(nets[1], nets[0])


def test_tiled_and_plain_parameters_in_one_trainer():
    nets = pair(mlp(), samples(8, 10))
    for net in nets:
        head = gluon.nn.Dense(3, in_units=5)
        head.initialize(mx.init.One())
        net.head_parameters = head.collect_params()
        everything = list(net.collect_params().values()) + list(head.collect_params().values())
        trainer = gluon.Trainer(everything, "adam", {"learning_rate": 0.01})
        for step in range(3):
            with autograd.record():
                loss = (head(net(samples(8, 10, seed=step))) ** 2).sum()
            loss.backward()
            trainer.step(8)
        net.result = head.weight.data()
    assert_close(nets[1].result, nets[0].result)
    assert_same_parameters(nets[1], nets[0])


def test_a_parameter_that_becomes_tiled_later_keeps_its_states():
    nets = pair(mlp(), samples(8, 10), hybridize=False)
    for index, net in enumerate(nets):
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        train(net, trainer, 2)
        net.hybridize(**({"backend": "soybean_mx", "devices": "cpu:4"} if index else {}))
        train(net, trainer, 2, seed=5)
        net.collect_params().reset_ctx(mx.cpu(0))
        net.hybridize(False)
        train(net, trainer, 2, seed=7)
        net.hybridize(**({"backend": "soybean_mx", "devices": "cpu:2"} if index else {}))
        train(net, trainer, 2, seed=9)
    assert is_tiled(nets[1][0].weight)
    assert_same_parameters(nets[1], nets[0])


@pytest.mark.parametrize("name", ["sgd", "adam", "lamb"])
def test_states_go_between_plain_and_tiled(name, tmp_path):
    options = {"learning_rate": 0.01, "wd": 0.01, **({"momentum": 0.9} if name == "sgd" else {})}
    nets = pair(mlp(), samples(8, 10))
    path = str(tmp_path / "trainer.states")
    trainers = [gluon.Trainer(net.collect_params(), name, dict(options)) for net in nets]
    for net, trainer in zip(nets, trainers):
        train(net, trainer, 3)
    # from the tiled one to a plain one, and the other way round; then go on with each
    for source, target in ((1, 0), (0, 1)):
        trainers[source].save_states(path)
        trainers[target].load_states(path)
        for net, trainer in zip(nets, trainers):
            train(net, trainer, 2, seed=20 + source)
        assert_same_parameters(nets[1], nets[0], 1e-4)
    assert list(tmp_path.iterdir()) == [tmp_path / "trainer.states"]


def test_states_for_another_number_of_devices(tmp_path):
    nets = pair(mlp(), samples(8, 10), devices="cpu:8")
    states, weights = str(tmp_path / "trainer.states"), str(tmp_path / "net.params")
    trainers = [gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}) for net in nets]
    for net, trainer in zip(nets, trainers):
        train(net, trainer, 3)
    trainers[1].save_states(states)
    nets[1].save_parameters(weights)
    # loaded before the first forward pass
    _, fresh = pair(mlp(), samples(8, 10), devices="cpu:3")
    fresh.load_parameters(weights)
    trainer = gluon.Trainer(fresh.collect_params(), "adam", {"learning_rate": 0.01})
    trainer.load_states(states)
    train(nets[0], trainers[0], 3, seed=9)
    train(fresh, trainer, 3, seed=9)
    for ours, theirs in zip(parameters(fresh), parameters(nets[0])):
        assert_close(ours.data(), theirs.data(), 1e-4, theirs.name)


def test_half_precision_states(tmp_path):
    nets = pair(lambda prefix: Elementwise(prefix=prefix), samples(8, 10, dtype="float16"), dtype="float16")
    path = str(tmp_path / "trainer.states")
    trainers = [gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9, "multi_precision": True}) for net in nets]

    def step(which):
        for net, trainer in which:
            with autograd.record():
                loss = (net(samples(8, 10, dtype="float16")) ** 2).sum()
            loss.backward()
            trainer.step(8)

    step(zip(nets, trainers))
    trainers[1].save_states(path)
    trainers[0].load_states(path)
    step(zip(nets, trainers))
    assert_same_parameters(nets[1], nets[0], 5e-3)


def test_provisional_tilings_are_decided_again_with_states():
    """A call for one sample, without gradients, decides little; training then does, and loses nothing."""
    nets = pair(mlp((64, 64, 5)), samples(1, 10))
    for net in nets:
        net(samples(1, 10))
        train(net, gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}), 3, batch=64)
        net(samples(3, 10))
    assert_same_parameters(nets[1], nets[0], 1e-4)


def test_kvstores():
    _, net = pair(mlp(), samples(8, 10))
    train(net, gluon.Trainer(net.collect_params(), "sgd", {}, kvstore="local"), 1)
    train(net, gluon.Trainer(net.collect_params(), "sgd", {}, kvstore=None, update_on_kvstore=False), 1)
    with pytest.raises(TrainerError, match="update_on_kvstore"):
        train(net, gluon.Trainer(net.collect_params(), "sgd", {}, update_on_kvstore=True), 1)
    with pytest.raises(TrainerError, match="kvstore"):
        train(net, gluon.Trainer(net.collect_params(), "sgd", {}, kvstore=mx.kv.create("local")), 1)
    _, net = pair(mlp(), samples(8, 10))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {}, kvstore=mx.kv.create("local"))
    net.hybridize(False)
    train(net, trainer, 1)
    net.hybridize(backend="soybean_mx", devices="cpu:2")
    with pytest.raises(TrainerError, match="kvstore"):
        train(net, trainer, 1)


def test_batch_norm_network():
    nets = pair(convolutional, samples(8, 3, 8, 8))
    for net in nets:
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
        for step in range(4):
            with autograd.record():
                loss = (net(samples(8, 3, 8, 8, seed=step)) ** 2).sum()
            loss.backward()
            trainer.step(8)
    assert_same_parameters(nets[1], nets[0], 1e-4)
    assert_close(nets[1](samples(3, 3, 8, 8)), nets[0](samples(3, 3, 8, 8)), 1e-4)


def test_loss_scaling_sees_an_overflow_in_any_tile():
    from mxnet.contrib.amp.loss_scaler import LossScaler

    _, net = pair(mlp(), samples(8, 10))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    train(net, trainer, 1)
    trainer._amp_loss_scaler = LossScaler()
    for bad in (False, True):
        with autograd.record():
            loss = (net(samples(8, 10)) ** 2).sum()
        loss.backward()
        before = net[0].weight.data().asnumpy().copy()
        if bad:
            net[0].weight.list_grad()[-1][:] = np.inf
        trainer.step(8)
        assert (before == net[0].weight.data().asnumpy()).all() == bad
