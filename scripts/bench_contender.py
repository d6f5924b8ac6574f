"""One contender of ``bench_train.py``, run in a process of its own: ``bench_contender.py CONFIGURATION``.

The configuration is a JSON object (see ``Contender`` in ``bench_train.py``); the last line of the output is the result,
``{"seconds_all": [...], "peak_bytes": ..., "bytes_moved": ..., ...}``. The environment (threads, ``SOYBEAN_MX``) is the
parent's to set.
"""
from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Callable, Dict, List

if os.environ.get("SOYBEAN_MX") == "1":
    import soybean_mx  # noqa: F401  its start-up hook, for where the package is on the path but not installed

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import models

CLASSES = 1000
IMAGE_SIZE = 224
MLP_INPUTS = {"mlp": 784}


def make_batch(model: str, batch_size: int, dtype: str) -> List[mx.nd.NDArray]:
    """Random inputs and labels on the host: 224x224 colour images, or rows as wide as the MLP `model`."""
    rng = np.random.RandomState(0)
    if model.startswith("mlp"):
        width = MLP_INPUTS.get(model) or int(model[len("mlp"):])
        shape, classes = (batch_size, width), CLASSES if model in MLP_INPUTS else width
    else:
        shape, classes = (batch_size, 3, IMAGE_SIZE, IMAGE_SIZE), CLASSES
    images = mx.nd.array(rng.standard_normal(shape).astype(dtype), dtype=dtype)
    return [images, mx.nd.array(rng.randint(0, classes, batch_size), dtype=dtype)]


def make_network(config: Dict, contexts: List[mx.Context]) -> gluon.HybridBlock:
    """The network, with the same weights for every contender."""
    mx.random.seed(0)
    net = models.create(config["model"], CLASSES)
    net.initialize(mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=1.5), ctx=contexts)
    net.cast(config["dtype"])
    net.hybridize(static_alloc=True, static_shape=True)
    return net


def make_trainer(net: gluon.HybridBlock, dtype: str) -> gluon.Trainer:
    """SGD with momentum; its kvstore is used only where there are several contexts."""
    settings = {"learning_rate": 0.001, "momentum": 0.9, "multi_precision": dtype == "float16"}
    return gluon.Trainer(net.collect_params(), "sgd", settings, kvstore="device")


def serial_step(net: gluon.HybridBlock, config: Dict, context: mx.Context) -> Callable[[], mx.nd.NDArray]:
    """A step of a single-device program. soybean_mx runs this very code."""
    images, labels = make_batch(config["model"], config["batch_size"], config["dtype"])
    trainer, loss_of = make_trainer(net, config["dtype"]), gluon.loss.SoftmaxCrossEntropyLoss()

    def step() -> mx.nd.NDArray:
        data, label = images.as_in_context(context), labels.as_in_context(context)
        with autograd.record():
            loss = loss_of(net(data), label)
        loss.backward()
        trainer.step(config["batch_size"])
        return loss.mean()

    return step


def data_parallel_step(net: gluon.HybridBlock, config: Dict,
                       contexts: List[mx.Context]) -> Callable[[], mx.nd.NDArray]:
    """A step of MXNet's own data parallelism, as Gluon's documentation writes it."""
    images, labels = make_batch(config["model"], config["batch_size"], config["dtype"])
    trainer, loss_of = make_trainer(net, config["dtype"]), gluon.loss.SoftmaxCrossEntropyLoss()

    def step() -> mx.nd.NDArray:
        data = gluon.utils.split_and_load(images, contexts, even_split=False)
        label = gluon.utils.split_and_load(labels, contexts, even_split=False)
        with autograd.record():
            losses = [loss_of(net(x), y) for x, y in zip(data, label)]
        autograd.backward(losses)
        trainer.step(config["batch_size"])
        return mx.nd.concat(*[loss.as_in_context(contexts[0]) for loss in losses], dim=0).mean()

    return step


def gradient_bytes(net: gluon.HybridBlock) -> int:
    """Size of all gradients of one replica."""
    return sum(int(np.prod(parameter.shape)) * np.dtype(parameter.dtype).itemsize
               for parameter in net.collect_params().values() if parameter.grad_req != "null")


def bytes_moved(config: Dict, net: gluon.HybridBlock, devices: int) -> int:
    """Bytes that cross devices in one step, of all devices together.

    Data parallelism: every gradient goes from all other devices to one, and every updated weight from there to all
    others, ``2 (devices - 1)`` times the size of the parameters. soybean_mx: the plan's figure. The distribution of
    the input is counted for neither.
    """
    if config["kind"] == "data_parallel":
        return 2 * (devices - 1) * gradient_bytes(net)
    if config["kind"] == "soybean_mx":
        from soybean_mx.gluon_front import plan_of

        return int(plan_of(net)["bytes"]["total"])
    return 0


class PeakMemory:
    """Peak memory since the object was made: of this process on the CPU, else of the GPUs together.

    MXNet's pool of GPU memory never shrinks, so what it holds at the end is the peak. GPU memory that was taken before,
    by others, is left out; what others take meanwhile is not.
    """

    def __init__(self, contexts: List[mx.Context]) -> None:
        self._gpus = [context.device_id for context in contexts if context.device_type == "gpu"]
        self._before = self._used()

    def _used(self) -> List[int]:
        return [total - free for free, total in map(mx.context.gpu_memory_info, self._gpus)]

    def bytes(self) -> int:
        """The peak so far, in bytes."""
        if self._gpus:
            return sum(now - before for now, before in zip(self._used(), self._before))
        return process_peak_bytes()


def process_peak_bytes() -> int:
    """Peak resident memory of this process, in bytes."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            # Not ru_maxrss, into which Linux counts the parent's memory at the time of the fork.
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def time_steps(step: Callable[[], mx.nd.NDArray], warmup: int, repeat: int) -> Dict:
    """Run `warmup` steps and then `repeat` timed ones, each of which ends when all devices are done."""
    seconds, losses = [], []
    for index in range(warmup + repeat):
        begin = time.perf_counter()
        loss = step()
        mx.nd.waitall()
        if index >= warmup:
            seconds.append(time.perf_counter() - begin)
        losses.append(float(loss.asscalar()))
    return {"seconds_all": seconds, "first_loss": losses[0], "last_loss": losses[-1]}


def run(config: Dict) -> Dict:
    """Measure one contender."""
    contexts = [mx.Context(kind, index) for kind, index in config["contexts"]]
    memory = PeakMemory(contexts)
    before = process_peak_bytes()
    if config["kind"] == "data_parallel":
        net = make_network(config, contexts)
        step = data_parallel_step(net, config, contexts)
    else:
        net = make_network(config, contexts[:1])
        step = serial_step(net, config, contexts[0])
    result = time_steps(step, config["warmup"], config["repeat"])
    result.update(peak_bytes=memory.bytes(), before_model_bytes=before,
                  bytes_moved=bytes_moved(config, net, len(contexts)), parameter_bytes=gradient_bytes(net))
    return result


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
