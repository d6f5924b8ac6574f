"""A single-device Gluon script with everything that such scripts do beside a plain training loop.

    python serial_script.py FOLDER SECTION [SECTION ...]

It knows nothing of devices. Every section prints lines ``label value value ...``; the same script run tiled must print
the same numbers. Networks are in double precision, so that agreement can be asked to 8 digits.
"""
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

FOLDER = Path(sys.argv[1])
SECTIONS = {}


def section(function):
    SECTIONS[function.__name__] = function
    return function


def show(label, *arrays):
    """Print a few numbers that any change of an array changes."""
    values = []
    for array in arrays:
        value = np.asarray(array.asnumpy() if isinstance(array, nd.NDArray) else array, dtype="float64").ravel()
        weights = np.cos(np.arange(value.size))
        values += [np.abs(value).max(), value.sum(), (value * weights).sum()]
    print(label, *[repr(float(v)) for v in values])


class Start(mx.init.Initializer):
    """Every parameter from its own number of elements and name: the same in every run."""

    def __call__(self, desc, arr):
        rs = np.random.RandomState(sum(map(ord, str(desc))) + arr.size)
        low, high = (0.8, 1.2) if str(desc).endswith(("gamma", "running_var")) else (-0.4, 0.4)
        arr[:] = rs.uniform(low, high, arr.shape)


def perceptron(prefix="net_", classes=5):
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(12, activation="tanh"), nn.BatchNorm(), nn.Dense(9, activation="sigmoid"), nn.Dense(classes))
    return ready(net)


def convnet(prefix="conv_"):
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Conv2D(6, 3, padding=1), nn.BatchNorm(), nn.Activation("tanh"), nn.AvgPool2D(), nn.Flatten())
        net.add(nn.Dense(5))
    return ready(net)


def ready(net):
    net.initialize(Start())
    net.cast("float64")
    net.hybridize()
    return net


def data(n, *shape, seed=0):
    rs = np.random.RandomState(seed)
    return nd.array(rs.uniform(-1, 1, (n,) + shape), dtype="float64")


def labels(n, seed=0):
    return nd.array(np.random.RandomState(seed + 100).randint(0, 5, n))


def parameters(net):
    return [p.data() for p in net.collect_params().values()]


def gradients(net):
    return [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]


loss_function = gluon.loss.SoftmaxCrossEntropyLoss()


def train_step(net, trainer, x, y):
    with autograd.record():
        loss = loss_function(net(x), y)
    loss.backward()
    trainer.step(x.shape[0])
    return loss


def sgd(net, **more):
    return gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3, **more})


@section
def evaluation_and_last_batch():
    net = convnet()
    trainer = sgd(net)
    for step, n in enumerate((10, 10, 7, 10, 3)):
        show("loss", train_step(net, trainer, data(n, 2, 6, 6, seed=step), labels(n, step)))
        show("outside of record", net(data(4, 2, 6, 6, seed=50)))
        with autograd.predict_mode():
            show("predict mode", net(data(10, 2, 6, 6, seed=51)))
        with autograd.train_mode():
            show("train mode", net(data(10, 2, 6, 6, seed=51)))
    show("parameters", *parameters(net))


@section
def several_forwards_before_one_backward():
    net = perceptron()
    trainer = sgd(net)
    for step in range(3):
        with autograd.record():
            first = net(data(10, 8, seed=step))
            second = net(data(6, 8, seed=step + 10))
            loss = first.mean() + (second * second).mean() + net(data(10, 8, seed=step + 20))[:, 1].mean()
        loss.backward()
        show("gradients", *gradients(net))
        trainer.step(1)
    show("parameters", *parameters(net))


@section
def two_blocks_in_a_chain():
    first, second = convnet(), perceptron()
    trainers = [sgd(first), sgd(second)]
    for step in range(3):
        with autograd.record():
            middle = first(data(9, 2, 6, 6, seed=step))
            loss = loss_function(second(nd.tanh(middle * 2) + middle.mean(axis=0, keepdims=True)), labels(9, step))
        loss.backward()
        show("gradients", *gradients(first), *gradients(second))
        for trainer in trainers:
            trainer.step(9)
    show("parameters", *parameters(first), *parameters(second))


@section
def gradient_of_inputs():
    net = convnet()
    x = data(7, 2, 6, 6)
    x.attach_grad()
    with autograd.record():
        y = net(x * 2)
        loss = (y * y).sum()
    loss.backward()
    show("through recorded arithmetic", x.grad, *gradients(net))
    with autograd.record():
        y = net(x)
    y.backward(data(7, 5, seed=3))
    show("with head gradients", x.grad, *gradients(net))


@section
def autograd_grad():
    net = convnet()
    x = data(7, 2, 6, 6)
    x.attach_grad()
    with autograd.record():
        y = net(x).sum()
    show("autograd.grad", autograd.grad(y, [x])[0])


class TwoInTwoOut(gluon.HybridBlock):
    def __init__(self):
        super().__init__(prefix="two_")
        with self.name_scope():
            self.left, self.right = nn.Dense(7), nn.Dense(7)
            self.out = nn.Dense(4)

    def hybrid_forward(self, F, x, y):
        h = F.tanh(self.left(x)) * self.right(y)
        return self.out(h), h


@section
def several_inputs_and_outputs():
    net = ready(TwoInTwoOut())
    trainer = sgd(net)
    for step in range(3):
        with autograd.record():
            out, hidden = net(data(10, 6, seed=step), data(10, 3, seed=step + 9))
            loss = (out * out).mean() + hidden.sum() * 0.1
        loss.backward()
        show("outputs", out, hidden)
        trainer.step(1)
    with autograd.record():
        out, hidden = net(data(10, 6), data(10, 3))
    out.backward()
    show("one output alone", *gradients(net))
    show("parameters", *parameters(net))


@section
def gradient_requests():
    net = perceptron()
    for name, p in net.collect_params().items():
        if name.endswith("bias"):
            p.grad_req = "null"
        elif p.grad_req != "null":
            p.grad_req = "add"
    trainer = sgd(net)
    for step in range(2):
        for part in range(3):
            with autograd.record():
                loss = loss_function(net(data(5, 8, seed=step * 3 + part)), labels(5, part))
            loss.backward()
            show("accumulated", *gradients(net))
        trainer.step(15)
        net.collect_params().zero_grad()
        show("cleared", *gradients(net))
    show("parameters", *parameters(net))


@section
def multipliers_and_learning_rate():
    net = perceptron()
    net.collect_params(".*bias").setattr("lr_mult", 2.0)
    net.collect_params(".*dense0.*").setattr("wd_mult", 0.0)
    trainer = sgd(net, wd=0.1)
    for step in range(4):
        trainer.set_learning_rate(0.1 / (step + 1))
        train_step(net, trainer, data(10, 8, seed=step), labels(10, step))
        show("learning rate", trainer.learning_rate)
    show("parameters", *parameters(net))


@section
def trainer_before_forward_and_after():
    net = perceptron()
    early = sgd(net)
    train_step(net, early, data(10, 8), labels(10))
    late = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    train_step(net, late, data(10, 8, seed=1), labels(10, 1))
    show("parameters", *parameters(net))


@section
def save_and_load():
    net = perceptron()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    for step in range(3):
        train_step(net, trainer, data(10, 8, seed=step), labels(10, step))
    net.save_parameters(str(FOLDER / "net.params"))
    trainer.save_states(str(FOLDER / "net.states"))
    for name, array in sorted(nd.load(str(FOLDER / "net.params")).items()):
        show(f"saved {name}", array)
    other = perceptron("other_")
    other.load_parameters(str(FOLDER / "net.params"))
    resumed = gluon.Trainer(other.collect_params(), "adam", {"learning_rate": 0.01})
    with autograd.record():
        loss = loss_function(other(data(10, 8)), labels(10))
    loss.backward()
    resumed.load_states(str(FOLDER / "net.states"))
    for step in range(3, 6):
        train_step(net, trainer, data(10, 8, seed=step), labels(10, step))
        train_step(other, resumed, data(10, 8, seed=step), labels(10, step))
    show("went on", *parameters(net))
    show("resumed", *parameters(other))
    net.load_parameters(str(FOLDER / "net.params"))
    show("loaded back", *parameters(net))
    show("output", net(data(10, 8)))


@section
def resume_from_given_files():
    """Go on from the files that another run of `save_and_load` left in the folder ``given``."""
    net = perceptron("other_")
    net.load_parameters(str(FOLDER / "given" / "net.params"))
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    net(data(10, 8))
    trainer.load_states(str(FOLDER / "given" / "net.states"))
    for step in range(3, 6):
        train_step(net, trainer, data(10, 8, seed=step), labels(10, step))
    show("resumed", *parameters(net))


@section
def export_and_import():
    net = convnet()
    trainer = sgd(net)
    train_step(net, trainer, data(10, 2, 6, 6), labels(10))
    net.export(str(FOLDER / "exported"))
    again = gluon.SymbolBlock.imports(
        str(FOLDER / "exported-symbol.json"), ["data"], str(FOLDER / "exported-0000.params"))
    show("exported", net(data(6, 2, 6, 6, seed=1)), again(data(6, 2, 6, 6, seed=1)))


@section
def clip_global_norm():
    net = perceptron()
    net.cast("float32")  # MXNet clips no other type
    trainer = sgd(net)
    for step in range(3):
        with autograd.record():
            loss = loss_function(net(data(10, 8, seed=step).astype("float32")), labels(10, step)) * 10
        loss.backward()
        norm = gluon.utils.clip_global_norm(gradients(net), 0.5)
        show("norm", norm)
        trainer.step(1)
    show("parameters", *parameters(net))


@section
def change_a_gradient_in_place():
    net = perceptron()
    trainer = sgd(net)
    with autograd.record():
        loss = loss_function(net(data(10, 8)), labels(10))
    loss.backward()
    for gradient in gradients(net):
        gradient[:] = gradient * 0.5
    show("halved", *gradients(net))
    trainer.step(10)
    show("parameters", *parameters(net))


@section
def set_data_between_steps():
    net = perceptron()
    trainer = sgd(net)
    train_step(net, trainer, data(10, 8), labels(10))
    for p in net.collect_params().values():
        p.set_data(p.data() * 0.9)
    show("set", *parameters(net))
    train_step(net, trainer, data(10, 8, seed=1), labels(10, 1))
    show("parameters", *parameters(net))


@section
def hybridize_again():
    net = perceptron()
    trainer = sgd(net)
    for step in range(4):
        train_step(net, trainer, data(10, 8, seed=step), labels(10, step))
        if step == 1:
            net.hybridize(static_alloc=True, static_shape=True)
        if step == 2:
            net.hybridize(active=False)
    show("parameters", *parameters(net))


@section
def cast_between_steps():
    # To float16 and back rounds the parameters; to compute in it, MXNet needs a GPU.
    net = perceptron()
    train_step(net, sgd(net), data(10, 8), labels(10))
    net.cast("float16")
    show("rounded", *[p.astype("float64") for p in parameters(net)])
    net.cast("float64")
    train_step(net, sgd(net), data(10, 8, seed=1), labels(10, 1))
    show("parameters", *parameters(net))


@section
def same_masks_from_the_same_seed():
    net = nn.HybridSequential()
    net.add(nn.Dense(20), nn.Dropout(0.5))
    net = ready(net)

    def run():
        mx.random.seed(3)
        with autograd.record():
            out = net(data(10, 8))
        out.backward()
        return out.asnumpy()

    first, second = run(), run()
    print("equal", float(np.array_equal(first, second)))
    print("dropped", float(0.3 < (first == 0).mean() < 0.7))


@section
def batch_of_one():
    net = perceptron()
    show("prediction", net(data(1, 8)))
    net = nn.HybridSequential(prefix="one_")
    with net.name_scope():
        net.add(nn.Dense(6, activation="tanh"), nn.Dense(5))
    net = ready(net)
    trainer = sgd(net)
    show("loss", train_step(net, trainer, data(1, 8), labels(1)))
    show("parameters", *parameters(net))


if __name__ == "__main__":
    for name in sys.argv[2:]:
        print("section", name)
        SECTIONS[name]()
