"""Backward passes through tiled blocks agree with MXNet's."""
from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd

from soybean_mx import tape

from .pairs import assert_close, assert_same_parameters, convolutional, mlp, pair, parameters, samples


def _both(nets, program):
    """Run a program on the plain and on the tiled network: its results side by side."""
    return [program(net) for net in nets]


def test_two_blocks_with_a_variable_used_before_and_between():
    first = pair(mlp(), samples(8, 10))
    second = pair(mlp((7, 5)), samples(8, 5))
    results = []
    for one, two in zip(first, second):
        u, v = samples(8, 10, seed=1), samples(8, 5, seed=2)
        u.attach_grad()
        v.attach_grad("add")
        v.grad[:] = 1
        with autograd.record():
            middle = one(u * 2)
            out = two(middle + v * v)
            loss = (out * out).sum() + (middle * 3).sum() + (u * u).sum() + v.sum()
        loss.backward()
        results.append((loss, u.grad, v.grad))
    for theirs, ours in zip(*results):
        assert_close(ours, theirs)
    for plain, tiled in (first, second):
        assert_same_parameters(tiled, plain)
    assert not tape.pending_calls()


def test_a_leaf_that_feeds_two_blocks():
    first, second = pair(mlp(), samples(8, 10)), pair(mlp(), samples(8, 10))
    results = []
    for one, two in zip(first, second):
        u = samples(8, 10)
        u.attach_grad()
        with autograd.record():
            x1 = u * 2
            y1 = one(x1)
            x2 = mx.nd.concat(y1, y1, dim=1) + u
            loss = two(x2).sum()
        loss.backward()
        results.append(u.grad)
    assert_close(results[1], results[0])
    assert_same_parameters(second[1], second[0])
    assert_same_parameters(first[1], first[0])


@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_an_input_with_attached_gradient(grad_req):
    nets = pair(mlp(), samples(8, 10))

    def program(net):
        u = samples(8, 10)
        u.attach_grad(grad_req)
        u.grad[:] = 2
        for _ in range(2):
            with autograd.record():
                loss = (net(u) ** 2).sum() + net(u * 0.5).sum() + u.sum()
            loss.backward()
        return u.grad

    theirs, ours = _both(nets, program)
    assert_close(ours, theirs)
    assert_same_parameters(nets[1], nets[0])


def test_the_same_array_given_to_one_block_twice():
    nets = pair(mlp(), samples(8, 10))

    def program(net):
        u = samples(8, 10)
        u.attach_grad()
        with autograd.record():
            loss = net(u).sum() + net(u).sum()
        loss.backward()
        return u.grad

    theirs, ours = _both(nets, program)
    assert_close(ours, theirs)
    assert_same_parameters(nets[1], nets[0])


@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_several_forwards_and_backwards(grad_req):
    nets = pair(mlp(), samples(8, 10))

    def program(net):
        for parameter in parameters(net):
            parameter.grad_req = grad_req
        for _ in range(2):
            with autograd.record():
                losses = [(net(samples(8, 10, seed=seed)) ** 2).sum() for seed in range(3)]
                total = losses[0] + losses[1]
            total.backward()
            losses[2].backward()

    _both(nets, program)
    assert_same_parameters(nets[1], nets[0])


def test_a_list_of_losses():
    nets = pair(mlp(), samples(8, 10))

    def program(net):
        with autograd.record():
            losses = [(net(samples(8, 10, seed=seed)) ** 2).sum() for seed in range(3)]
        autograd.backward(losses, [None, mx.nd.array([2.0]), mx.nd.array([3.0])])

    _both(nets, program)
    assert_same_parameters(nets[1], nets[0])


def test_head_gradients():
    nets = pair(mlp(), samples(8, 10))

    def program(net):
        with autograd.record():
            out = net(samples(8, 10))
        out.backward(samples(8, 5, seed=4))

    _both(nets, program)
    assert_same_parameters(nets[1], nets[0])


def test_a_retained_graph_is_run_again():
    nets = pair(mlp(batch_norm=True), samples(8, 10))

    def program(net):
        with autograd.record():
            out = net(samples(8, 10))
            one, two = (out * samples(8, 5)).sum(), ((out + 1) ** 2).sum()
        one.backward(retain_graph=True)
        first = net[0].weight.grad().copy()
        two.backward()
        return first

    theirs, ours = _both(nets, program)
    assert_close(ours, theirs)
    assert_same_parameters(nets[1], nets[0])
    assert not tape.pending_calls()


def test_a_retained_graph_with_dropout_is_refused():
    _, net = pair(mlp(dropout=0.5), samples(8, 10))
    with autograd.record():
        loss = net(samples(8, 10)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(tape.TapeError, match="random"):
        loss.backward()


def test_backward_twice_is_an_error():
    for net in pair(mlp(), samples(8, 10)):
        with autograd.record():
            loss = net(samples(8, 10)).sum()
        loss.backward()
        with pytest.raises(mx.MXNetError):
            loss.backward()


def test_backward_twice_through_a_chain_is_an_error():
    for net in pair(mlp(), samples(8, 10)):
        u = samples(8, 10)
        u.attach_grad()
        with autograd.record():
            loss = net(u * 2).sum()
        loss.backward()
        with pytest.raises(mx.MXNetError):
            loss.backward()


def test_gradients_in_predict_mode():
    nets = pair(mlp(batch_norm=True, dropout=0.5), samples(8, 10))

    def program(net):
        with autograd.record(train_mode=False):
            loss = (net(samples(8, 10)) ** 2).sum()
        loss.backward(train_mode=False)
        return loss

    theirs, ours = _both(nets, program)
    assert_close(ours, theirs)
    assert_same_parameters(nets[1], nets[0], 1e-4)


def test_calls_that_are_never_differentiated_are_forgotten():
    _, net = pair(mlp(), samples(8, 10))
    for _ in range(30):
        with autograd.record():
            loss = net(samples(8, 10)).sum()
    (signature,) = net._cached_op._signatures.values()
    assert signature.bound <= 3
    del loss
    mx.nd.waitall()
    assert not tape.pending_calls()


def test_a_call_lives_as_long_as_the_tape_refers_to_it():
    nets = pair(mlp(), samples(8, 10))

    def program(net):
        losses = []
        with autograd.record():
            for seed in range(6):
                losses.append((net(samples(8, 10, seed=seed)) * 2).sum())  # the output itself is dropped at once
        mx.nd.waitall()
        autograd.backward(losses)

    _both(nets, program)
    assert_same_parameters(nets[1], nets[0])
    with autograd.record():
        losses = [nets[1](samples(8, 10, seed=seed)).sum() for seed in range(4)]
    mx.nd.waitall()
    assert len(tape.pending_calls()) == 4
    del losses
    mx.nd.waitall()
    assert not tape.pending_calls()


def test_many_forwards_in_one_expression():
    nets = pair(mlp(), samples(8, 10))

    def program(net):
        with autograd.record():
            loss = mx.nd.add_n(*[net(samples(8, 10, seed=seed)).sum() for seed in range(6)])
        mx.nd.waitall()
        loss.backward()

    _both(nets, program)
    assert_same_parameters(nets[1], nets[0])


def test_grad_is_refused_while_a_tiled_call_is_pending():
    _, net = pair(mlp(), samples(8, 10))
    u = samples(8, 10)
    u.attach_grad()
    with autograd.record():
        loss = net(u).sum()
        with pytest.raises(tape.TapeError, match="backward"):
            autograd.grad([loss], [u])
    del loss
    mx.nd.waitall()
    with autograd.record():
        square = u * u
    assert_close(autograd.grad([square], [u])[0], 2 * u)


def test_an_exception_between_forward_and_backward_leaves_nothing():
    nets = pair(mlp(), samples(8, 10))

    def program(net):
        try:
            with autograd.record():
                out = net(samples(8, 10))
                mx.nd.dot(out, samples(7, 7))
        except mx.MXNetError:
            pass
        del out
        with autograd.record():
            loss = (net(samples(8, 10)) ** 2).sum()
        loss.backward()

    _both(nets, program)
    assert_same_parameters(nets[1], nets[0])
    mx.nd.waitall()
    assert not tape.pending_calls()


def test_moving_statistics_move_in_the_backward_pass():
    nets = pair(convolutional, samples(4, 3, 8, 8))

    def program(net):
        with autograd.record():
            loss = (net(samples(4, 3, 8, 8)) ** 2).sum()
        before = net[1].running_mean.data().copy()
        loss.backward()
        return before

    theirs, ours = _both(nets, program)
    assert_close(ours, theirs)
    assert_same_parameters(nets[1], nets[0], 1e-4)


def test_only_blocks_that_were_reached_have_fresh_gradients():
    nets = pair(mlp(), samples(8, 10))
    others = pair(mlp(), samples(8, 10))

    def program(net, other):
        with autograd.record():
            out, unused = net(samples(8, 10)), other(samples(8, 10))
            loss = out.sum()
        loss.backward()
        del unused
        return [[bool(tile._fresh_grad) for tile in p.list_data()] for n in (net, other) for p in parameters(n)]

    theirs, ours = (program(*both) for both in zip(nets, others))
    assert [all(fresh) for fresh in ours] == [all(fresh) for fresh in theirs]
    assert [any(fresh) for fresh in ours] == [any(fresh) for fresh in theirs]


def test_integer_inputs_and_outputs():
    def build(prefix):
        net = mx.gluon.nn.HybridSequential(prefix=prefix)
        with net.name_scope():
            net.add(mx.gluon.nn.Embedding(20, 6), mx.gluon.nn.Dense(5))
        return net

    data = mx.nd.array(np.arange(24).reshape(8, 3) % 20, dtype="int32")
    nets = pair(build, data)

    def program(net):
        with autograd.record():
            loss = (net(data) ** 2).sum()
        loss.backward()

    _both(nets, program)
    assert_same_parameters(nets[1], nets[0])


def test_an_expression_on_a_parameter_is_differentiated():
    """An L2 penalty, computed before the first forward pass, between, and on an array fetched long ago."""
    nets = pair(mlp(), samples(8, 10))

    def program(net):
        held = net[0].weight.data()
        gradients = []
        for _ in range(3):
            with autograd.record():
                penalty = mx.nd.add_n(*[(p.data() ** 2).sum() for p in parameters(net)])
                loss = (net(samples(8, 10)) ** 2).mean() + penalty + (held * 3).sum() + net[1].bias.data().sum()
            loss.backward()
            gradients += [p.grad().copy() for p in parameters(net)]
        return gradients

    theirs, ours = _both(nets, program)
    for a, b in zip(ours, theirs):
        assert_close(a, b)


def test_a_plain_batch_norm_between_tiled_blocks_is_warned_of():
    nets = pair(mlp(), samples(8, 10))
    seconds = pair(mlp(), samples(8, 5))
    tape._warn_of_statistics.cache_clear()
    for net, second in zip(nets, seconds):
        between = mx.gluon.nn.BatchNorm()
        between.initialize()
        with autograd.record():
            loss = (second(between(net(samples(8, 10)))) ** 2).sum()
        if net is nets[0]:
            loss.backward()
        else:
            with pytest.warns(UserWarning, match="BatchNorm"):
                loss.backward()
        net.results = [between.gamma.grad(), net[0].weight.grad(), second[0].weight.grad()]
    for ours, theirs in zip(nets[1].results, nets[0].results):
        assert_close(ours, theirs, 1e-4)


def test_penalty_alone_with_added_gradients():
    nets = pair(mlp(), samples(8, 10))

    def program(net):
        for parameter in parameters(net):
            parameter.grad_req = "add"
        for _ in range(2):
            with autograd.record():
                loss = (net(samples(8, 10)) ** 2).mean() + (net[0].weight.data() ** 2).sum()
            loss.backward()
            with autograd.record():
                loss = (net[0].weight.data() ** 2).sum()
            loss.backward()

    _both(nets, program)
    assert_same_parameters(nets[1], nets[0])


def test_a_retained_chain():
    first, second = pair(mlp(), samples(8, 10)), pair(mlp((7, 5)), samples(8, 5))
    gradients = []
    for one, two in zip(first, second):
        u = samples(8, 10)
        u.attach_grad("add")
        with autograd.record():
            loss = (two(mx.nd.tanh(one(u * 2))) ** 2).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        gradients.append(u.grad)
        with pytest.raises(mx.MXNetError):
            loss.backward()
    assert_close(gradients[1], gradients[0])
    assert_same_parameters(first[1], first[0])
    assert_same_parameters(second[1], second[0])


def test_backward_while_recording():
    nets = pair(mlp(), samples(8, 10))

    def program(net):
        with autograd.record():
            loss = (net(samples(8, 10)) ** 2).sum()
            loss.backward()
            with autograd.pause():
                target = net(samples(8, 10))
            loss = (net(samples(8, 10)) * target).sum()
            loss.backward()

    _both(nets, program)
    assert_same_parameters(nets[1], nets[0])


def test_adversarial_training():
    generators, critics = pair(mlp((12, 10)), samples(8, 10)), pair(mlp((7, 1)), samples(8, 10))
    for generator, critic in zip(generators, critics):
        trainers = [mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
                    for net in (generator, critic)]
        for step in range(3):
            noise, real = samples(8, 10, seed=step), samples(8, 10, seed=50 + step)
            with autograd.record():
                fake = generator(noise)
                loss = (critic(real) - 1).square().mean() + critic(fake.detach()).square().mean()
            loss.backward()
            trainers[1].step(1)
            with autograd.record():
                loss = (critic(generator(noise)) - 1).square().mean()
            loss.backward()
            trainers[0].step(1)
    assert_same_parameters(generators[1], generators[0], 1e-4)
    assert_same_parameters(critics[1], critics[0], 1e-4)


def test_a_block_unrolled_in_time():
    nets = pair(mlp((10, 10)), samples(8, 10))
    for net in nets:
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
        for _ in range(2):
            state = samples(8, 10)
            with autograd.record():
                for _ in range(4):
                    state = mx.nd.tanh(net(state))
                loss = state.sum()
            loss.backward()
            trainer.step(1)
    assert_same_parameters(nets[1], nets[0], 1e-4)
