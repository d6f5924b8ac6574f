"""What else the trainer promises, each in a function that raises where it does not; run by name in a child process."""
from __future__ import annotations

import contextlib
import gc
import sys
import time
import warnings

import soybean_mx  # noqa: F401  (before MXNet: it sets what MXNet reads at its start)

import mxnet as mx  # isort: skip
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn

from soybean_mx.benchmark.training_step import process_peak_bytes
from soybean_mx.pipeline import PipelineTrainer
from soybean_mx.pipeline.optimizer_files import StatesError
from soybean_mx.pipeline.partition import operator_names
from soybean_mx.pipeline.trainer import PipelineError
from tests.pipeline.parity import BATCH, TYPES, batches, difference, network

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def smaller_last_batches():
    """Batches that the microbatches do not divide, and of fewer samples than there are microbatches."""
    assert difference("mlp", "flush", 3, 4, sizes=(8, 7, 3, 1, 8)) < 1e-5
    assert difference("mlp", "gpipe", 2, 3, sizes=(8, 7, 2)) < 1e-5


def other_optimizers():
    """Optimizers that have no out-of-place update."""
    for name in ("adam", "nag", "rmsprop", "lamb"):
        assert difference("mlp", "flush", 3, 2, optimizer=name) < 1e-5, name


def adam_keeps_versions():
    """With 1F1B, an optimizer that updates in place works on a copy: stage 0's first two updates are at version 0."""
    net, shape = network("mlp")
    trainer = PipelineTrainer(net, LOSS, "adam", {"learning_rate": 0.01}, "cpu:2", "1f1b", recoverable=False)
    losses = [trainer.step(*batch).asnumpy() for batch in batches(shape, 6)]
    trainer.synchronize()
    assert trainer.versions_alive() == [2, 1] and np.isfinite(losses).all()


def mid_run():
    """Evaluation and checkpoints drain the pipeline; all minibatches so far are then in the parameters, once each."""
    for schedule in ("1f1b", "1f1b-vertical-sync", "2bw", "flush"):
        net, shape = network("mlp")
        given = list(batches(shape, 6))
        net(given[0][0])
        trainer = PipelineTrainer(net, LOSS, "sgd", {"learning_rate": 0.1}, "cpu:3", schedule)
        for batch in given[:1]:
            trainer.step(*batch)
        trainer.synchronize()
        # From an empty pipeline the first batch is a step of plain SGD.
        expected, _ = network("mlp")
        expected(given[0][0])
        plain = gluon.Trainer(expected.collect_params(), "sgd", {"learning_rate": 0.1})
        for data, label in given[:1]:
            with mx.autograd.record():
                loss = LOSS(expected(data), label)
            loss.backward()
            plain.step(BATCH)
        for a, b in zip(net.collect_params().values(), expected.collect_params().values()):
            np.testing.assert_allclose(a.data().asnumpy(), b.data().asnumpy(), rtol=1e-5, atol=1e-6)
        value = LOSS(net(given[1][0]), given[1][1]).asnumpy()
        # And the next one starts with these.
        np.testing.assert_allclose(trainer.step(*given[1]).asnumpy(), value, rtol=1e-5)
        for batch in given[2:]:
            trainer.step(*batch)
        trainer.synchronize()
        before = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
        trainer.synchronize()
        for a, b in zip(before, net.collect_params().values()):
            assert np.array_equal(a, b.data().asnumpy())


def continued():
    """From the files of a trainer another continues bit for bit, and gluon.Trainer reads and writes such files."""
    path = sys.argv[2]

    def new(schedule, optimizer, replicas=None):
        net, shape = network("mlp")
        net(next(batches(shape))[0])
        settings = {"learning_rate": 0.05, "wd": 1e-3,
                    "lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.7, base_lr=0.05)}
        if optimizer == "sgd":
            settings["momentum"] = 0.9
        return net, shape, lambda: PipelineTrainer(net, LOSS, optimizer, settings, "cpu:3", schedule,
                                                   replicas=replicas)

    for schedule, optimizer, replicas in [
            ("gpipe", "sgd", None), ("flush", "adam", None), ("interleaved", "sgd", None), ("1f1b", "sgd", None),
            ("1f1b", "nadam", None), ("1f1b", "sgd", [2, 1]), ("1f1b-vertical-sync", "sgd", None),
            ("2bw", "adam", None)]:
        net, shape, make = new(schedule, optimizer, replicas)
        given = list(batches(shape, 8, batch=12))
        trainer = make()
        for batch in given[:5]:
            trainer.step(*batch)
        trainer.save_parameters(path)
        trainer.save_states(path + ".states")
        expected = [trainer.step(*batch).asnumpy() for batch in given[5:]]
        trainer.synchronize()
        expected += [parameter.data().asnumpy() for parameter in net.collect_params().values()]
        again, _, make = new(schedule, optimizer, replicas)
        again.load_parameters(path)
        other = make()
        other.load_states(path + ".states")
        got = [other.step(*batch).asnumpy() for batch in given[5:]]
        other.synchronize()
        got += [parameter.data().asnumpy() for parameter in again.collect_params().values()]
        assert all(map(np.array_equal, got, expected)), (schedule, optimizer, replicas)

    net, shape, make = new("flush", "adam")
    given = list(batches(shape, 6))
    trainer = make()
    for batch in given[:3]:
        trainer.step(*batch)
    trainer.save_parameters(path)
    trainer.save_states(path + ".states")
    plain, _, _ = new("flush", "adam")
    plain.load_parameters(path)
    # gluon.Trainer goes by the order of the names, here of those of the first network.
    place = list(net.collect_params()).index
    one = gluon.Trainer([list(plain.collect_params().values())[place(name)] for name in sorted(net.collect_params())],
                        "adam")
    one.load_states(path + ".states")
    for index, batch in enumerate(given[3:]):
        if index == 2:
            one.save_states(path + ".states")
            plain.save_parameters(path)
        with mx.autograd.record():
            loss = LOSS(plain(batch[0]), batch[1])
        loss.backward()
        one.step(BATCH)
        trainer.step(*batch)
    trainer.synchronize()
    back, _, make = new("flush", "adam")
    back.load_parameters(path)
    last = make()
    last.load_states(path + ".states")
    last.step(*given[5])
    last.synchronize()
    for a, b, c in zip(*(some.collect_params().values() for some in (net, plain, back))):
        np.testing.assert_allclose(a.data().asnumpy(), b.data().asnumpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(c.data().asnumpy(), b.data().asnumpy(), rtol=1e-5, atol=1e-6)
    again, _, _ = new("flush", "sgd")
    late = PipelineTrainer(again, LOSS, "adam", {"learning_rate": 1.0}, "cpu:2", "flush")
    last.save_states(path)
    late.load_states(path)
    assert late.learning_rate == last.learning_rate != 1.0
    with open(path, "wb") as file:
        file.write(b"nothing")
    try:
        last.load_states(path)
    except StatesError as error:
        assert "holds no states" in str(error)
    else:
        raise AssertionError("nonsense was loaded")


def uneven_replicas():
    """1F1B with replicas in rounds: with a learning rate of 0, losses are the network's own; with one, they fall."""
    for replicas in ([2, 1, 1], [1, 2], [2, 3], [3, 1]):
        net, shape = network("mlp")
        given = list(batches(shape, 9))
        net(given[0][0])
        still = PipelineTrainer(net, LOSS, "sgd", {"learning_rate": 0.0}, f"cpu:{sum(replicas)}", "1f1b",
                                replicas=replicas)
        for batch in given:
            np.testing.assert_allclose(still.step(*batch).asnumpy(), LOSS(net(batch[0]), batch[1]).asnumpy(),
                                       rtol=1e-5)
        trainer = PipelineTrainer(net, LOSS, "sgd", {"learning_rate": 0.1}, f"cpu:{sum(replicas)}", "1f1b",
                                  replicas=replicas)
        losses = [trainer.step(*given[0]).asnumpy().mean() for _ in range(30)]
        trainer.synchronize()
        assert losses[-1] < losses[0] - 0.1, (replicas, losses)
        for stage, count in enumerate(replicas):
            for name, versions in trainer._workers[stage, 0].weights.items():
                for replica in range(1, count):
                    other = trainer._workers[stage, replica].weights[name]
                    assert np.array_equal(versions.value(versions.newest).asnumpy(),
                                          other.value(other.newest).asnumpy())


def tied_weights_asynchronous():
    """A weight of the first and the last stage: learning rate 0 keeps the losses, and the copies end up equal."""
    for schedule in ("1f1b", "1f1b-vertical-sync", "2bw"):
        net, shape = network("transformer")
        given = list(batches(shape, 8))
        trainer = PipelineTrainer(net, LOSS, "sgd", {"learning_rate": 0.1}, "cpu:3", schedule)
        losses = [trainer.step(*given[0]).asnumpy().mean() for _ in range(12)]
        trainer.synchronize()
        assert losses[-1] < losses[0], (schedule, losses)
        copies = [worker.weights[name] for worker in trainer._workers.values() for name in worker.weights
                  if name.endswith("embedding")]
        assert len(copies) == 2
        first, last = (copy.value(copy.newest).asnumpy() for copy in copies)
        assert np.array_equal(first, last)


def frozen_parameters():
    """What asks for no gradient stays, and what is beside it is trained."""
    for schedule in ("flush", "1f1b", "2bw"):
        net, shape = network("mlp")
        given = list(batches(shape, 6))
        net(given[0][0])
        parameters = list(net.collect_params().values())
        for parameter in parameters[0::4]:
            parameter.grad_req = "null"
        before = [parameter.data().asnumpy() for parameter in parameters]
        trainer = PipelineTrainer(net, LOSS, "sgd", {"learning_rate": 0.1, "momentum": 0.9}, "cpu:3", schedule)
        for batch in given[:3]:
            trainer.step(*batch)
        trainer.synchronize()
        for batch in given[3:]:
            trainer.step(*batch)
        trainer.synchronize()
        for index, (parameter, old) in enumerate(zip(parameters, before)):
            assert np.array_equal(parameter.data().asnumpy(), old) == (index % 4 == 0), (schedule, index)


class _Failing(mx.operator.CustomOp):
    runs = {"forward": 0, "backward": 0}
    fails = ("forward", 7)  # in which pass, counted from 1

    def count(self, kind):
        self.runs[kind] += 1
        if self.fails == (kind, self.runs[kind]):
            raise ValueError("this stage is broken")

    def forward(self, is_train, req, in_data, out_data, aux):
        self.count("forward")
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.count("backward")
        self.assign(in_grad[0], req[0], out_grad[0])


def broken_in(kind, number):
    """Let the failing operator fail, from now on, in some pass."""
    _Failing.fails = (kind, number)
    _Failing.runs.update(forward=0, backward=0)


@mx.operator.register("failing_stage")
class _FailingProperties(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return _Failing()


class _FailingBlock(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.Custom(x, op_type="failing_stage")


def failing_stage(read):
    """A stage raises in its seventh pass: whether the loss is read or not, nothing hangs, and nothing wrong is kept."""
    for schedule in ("flush", "gpipe", "1f1b"):
        broken_in("forward", 7)
        net = nn.HybridSequential()
        net.add(nn.Dense(4, in_units=3), _FailingBlock(), nn.Dense(4, in_units=4))
        net.initialize(mx.init.Constant(0.1))
        trainer = PipelineTrainer(net, gluon.loss.L2Loss(), "sgd", {"learning_rate": 0.1}, "cpu:2", schedule,
                                  microbatches=1 if schedule == "1f1b" else 3)
        x, y = mx.nd.ones((6, 3)), mx.nd.ones((6, 4))
        last = None
        for step in range(8):
            try:
                loss = trainer.step(x, y)
                if read:
                    loss.asnumpy()
            except (mx.MXNetError, PipelineError):
                break
            if schedule in ("flush", "gpipe") and step < 2:
                trainer.synchronize()
                last = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
        path = sys.argv[2]
        try:
            trainer.save_parameters(path)
        except PipelineError as error:
            assert "has failed" in str(error), error
        else:
            raise AssertionError("the failure was not told")
        if last is not None:
            net.load_parameters(path)
            for a, b in zip(net.collect_params().values(), last):
                assert np.array_equal(a.data().asnumpy(), b)
        try:
            trainer.step(x, y)
        except PipelineError:
            continue
        raise AssertionError("a trainer that has failed goes on")


def failing_stage_unread():
    """As :func:`failing_stage`, where nobody looks at the loss."""
    failing_stage(read=False)


def failing_stage_read():
    """As :func:`failing_stage`, where the loss is read after each step."""
    failing_stage(read=True)


def last_full_update():
    """Whichever stage fails in whichever pass, what is saved is what a run of fewer steps ends with, bit for bit."""
    path = sys.argv[2]

    def run(schedule, stage, steps, how):
        mx.random.seed(1)
        net = nn.HybridSequential()
        for index in range(3):
            net.add(nn.Dense(4, in_units=4, activation="tanh"), nn.BatchNorm(in_channels=4))
            if index == stage:
                net.add(_FailingBlock())
        net.initialize(mx.init.Uniform(0.5))
        names = operator_names(net(mx.sym.var("data")))
        cuts = [0, *(index + 1 for index, name in enumerate(names) if "batchnorm" in name)]
        stages = [names[begin:end] for begin, end in zip(cuts, cuts[1:])]
        custom = [name for name in names if "custom" in name.lower()]  # behind the stage's last layer
        stages = [[name for name in part if name not in custom] for part in stages]
        stages[stage] += custom
        replicas = [2, 1, 1] if how == "replicas" else None
        trainer = PipelineTrainer(net, gluon.loss.L2Loss(), "sgd", {"learning_rate": 0.1, "momentum": 0.9},
                                  "cpu:4" if replicas else "cpu:3", schedule, stages, replicas,
                                  3 if schedule == "2bw" else 1, recoverable=True if replicas else None)
        random = np.random.RandomState(0)
        try:
            for step in range(steps):
                x, y = (mx.nd.array(random.normal(size=(6, 4))) for _ in range(2))
                loss = trainer.step(x, y)
                if how == "read":
                    loss.asnumpy()
                elif how == "forgotten" and step % 3 == 2:
                    mx.nd.waitall()
        except mx.MXNetError:
            if how == "forgotten":  # a program that goes on all the same
                for _ in range(3):
                    trainer.step(x, y)
        trainer.save_parameters(path)
        return [parameter.data().asnumpy() for parameter in net.collect_params().values()]

    for schedule, failing, how in [
            ("1f1b", "forward", "unread"), ("1f1b", "backward", "unread"), ("1f1b", "forward", "read"),
            ("1f1b", "backward", "read"), ("1f1b", "backward", "forgotten"), ("1f1b-vertical-sync", "backward", "read"),
            ("2bw", "forward", "read"), ("2bw", "backward", "unread"), ("1f1b", "backward", "replicas")]:
        for stage in range(3):
            number = 16 if schedule == "2bw" else 7  # of the first microbatches of a batch, so of the sixth step
            broken_in(failing, 0)
            each = 2 if how == "replicas" else 1
            expected = {}
            for steps in range(each, 8, each):
                expected[steps] = run(schedule, stage, steps, "unread" if how != "replicas" else how)
            broken_in(failing, number)
            try:
                run(schedule, stage, 9, how)
            except PipelineError as error:
                assert "all stages have completed" in str(error), error
            else:
                raise AssertionError("the failure was not told")
            saved = mx.nd.load(path)
            found = [steps for steps, values in expected.items()
                     if all(np.array_equal(a, b.asnumpy()) for a, b in zip(values, saved.values()))]
            assert len(found) == 1 and 2 <= found[0] <= 6, (schedule, failing, how, stage, found)


def dropped():
    """A trainer may be dropped while its passes are under way, traced or not."""
    for schedule in ("1f1b", "1f1b-vertical-sync", "flush"):
        for round_number in range(6):
            net, shape = network("mlp")
            trainer = PipelineTrainer(net, LOSS, "sgd", {"learning_rate": 0.05}, "cpu:3", schedule)
            given = list(batches(shape, 4))
            try:
                with contextlib.nullcontext() if round_number % 2 else trainer.trace():
                    for batch in given:
                        trainer.step(*batch)
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                pass
            del trainer, net
            gc.collect()
            np.full(200_000, -1)  # writes over what is free
    mx.nd.waitall()


def recomputed():
    """Passes that are run again give the same, bit for bit, and move BatchNorm's statistics once."""
    for name, schedule, replicas, stages, optimizer in [
            ("resnet18_v1", "flush", None, 3, "sgd"), ("transformer", "gpipe", None, 3, "adam"),
            ("transformer", "interleaved", None, 4, "sgd"), ("mlp", "1f1b", [2, 1, 1], 3, "sgd"),
            ("mlp", "1f1b-vertical-sync", None, 3, "sgd"), ("mlp", "2bw", None, 3, "sgd")]:
        results = []
        for recompute in (False, True):
            net, shape = network(name)
            devices = sum(replicas) if replicas else stages // 2 if schedule == "interleaved" else stages
            trainer = PipelineTrainer(net, LOSS, optimizer, {"learning_rate": 0.05}, f"cpu:{devices}", schedule, stages,
                                      replicas, recompute=recompute)
            given = batches(shape, 3 if name == "resnet18_v1" else 6, dtype=TYPES.get(name, "float32"))
            losses = [trainer.step(*batch).asnumpy() for batch in given]
            trainer.synchronize()
            assert any(worker.recomputes for worker in trainer._workers.values()) == recompute
            results.append(losses + [parameter.data().asnumpy() for parameter in net.collect_params().values()])
        assert all(map(np.array_equal, *results)), (name, schedule)

    net = nn.HybridSequential()
    net.add(nn.Dense(8, in_units=5), nn.Dropout(0.5), nn.Dense(8, in_units=8), nn.Dense(10, in_units=8))
    net.initialize()
    trainer = PipelineTrainer(net, LOSS, "sgd", {"learning_rate": 0.05}, "cpu:3", "gpipe", recompute=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.step(mx.nd.ones((12, 5)), mx.nd.ones((12,)))
    trainer.synchronize()
    assert ["draws random numbers" in str(warning.message) for warning in caught].count(True) == 1


def memory():
    """Print the most memory that training has taken, in MB, with or without running passes again."""
    net = nn.HybridSequential()
    net.add(*(nn.Dense(64, in_units=64, activation="tanh") for _ in range(16)))
    net.initialize()
    trainer = PipelineTrainer(net, gluon.loss.L2Loss(), "sgd", {"learning_rate": 0.01}, "cpu:2", "gpipe",
                              microbatches=8, recompute=sys.argv[2] == "again")
    x = mx.nd.ones((8 * 8192, 64))
    for _ in range(2):
        trainer.step(x, x)
        trainer.synchronize()
    print("memory", process_peak_bytes() / 2**20)


def nothing_waits():
    """Steps return long before the work is done."""
    net = nn.HybridSequential()
    net.add(*(nn.Dense(1200, in_units=1200, activation="relu") for _ in range(8)))
    net.initialize()
    for schedule in ("1f1b", "flush"):
        trainer = PipelineTrainer(net, gluon.loss.L2Loss(), "sgd", {"learning_rate": 1e-3}, "cpu:2", schedule)
        x = mx.nd.ones((128, 1200))
        trainer.step(x, x)
        trainer.synchronize()
        begin = time.perf_counter()
        for _ in range(4):
            trainer.step(x, x)
        queued = time.perf_counter() - begin
        trainer.synchronize()
        total = time.perf_counter() - begin
        assert queued < 0.5 * total, (schedule, queued, total)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("done", sys.argv[1])
