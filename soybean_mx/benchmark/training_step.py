"""One training step of a program, and what it takes: what the process of one contender does.

A step is forward, loss, backward and an update by SGD with momentum, on random data that stays on the host. The
environment (threads, ``SOYBEAN_MX``) is the parent's to set before MXNet is imported.
"""
from __future__ import annotations

import resource
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple, Union

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

Step = Callable[[], List[mx.nd.NDArray]]
Arrays = Union[mx.nd.NDArray, Sequence[mx.nd.NDArray]]


class Task(Protocol):
    """A network and what it learns from."""

    network: Callable[[], gluon.HybridBlock]

    def batch(self, batch_size: int, dtype: str) -> Tuple[Arrays, Sequence[Optional[mx.nd.NDArray]]]:
        """The inputs of that many samples, and the labels of each output (None: it has no classes); on the host."""


def make_network(task: Task, config: Mapping[str, Any], contexts: List[mx.Context]) -> gluon.HybridBlock:
    """The network, with the same weights for every contender."""
    mx.random.seed(0)
    net = task.network()
    net.initialize(mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=1.5), ctx=contexts)
    net.cast(config["dtype"])
    net.hybridize(static_alloc=True, static_shape=True)
    return net


def make_trainer(net: gluon.HybridBlock, dtype: str) -> gluon.Trainer:
    """SGD with momentum; its kvstore is used only where there are several contexts."""
    settings = {"learning_rate": 0.001, "momentum": 0.9, "multi_precision": dtype == "float16"}
    return gluon.Trainer(net.collect_params(), "sgd", settings, kvstore="device")


def listed(arrays: Any) -> List[Any]:
    """Arrays in any nesting of lists and tuples, or one alone, as a list; without None."""
    if isinstance(arrays, (list, tuple)):
        return [array for part in arrays for array in listed(part)]
    return [] if arrays is None else [arrays]


def total_loss(outputs: Any, labels: Sequence[Optional[mx.nd.NDArray]]) -> mx.nd.NDArray:
    """The loss of each sample, ``(batch,)``, of all outputs of the network together.

    It is the cross-entropy of an output with labels, and the mean of the squares of one without.
    """
    cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = [cross_entropy(output, label) if label is not None else (output ** 2).mean(axis=0, exclude=True)
              for output, label in zip(listed(outputs), labels)]
    return losses[0] if len(losses) == 1 else mx.nd.add_n(*losses)


def serial_step(task: Task, net: gluon.HybridBlock, config: Mapping[str, Any], context: mx.Context) -> Step:
    """A step of a single-device program: gives the loss of each sample. soybean_mx runs this very code."""
    inputs, labels = task.batch(config["batch_size"], config["dtype"])
    trainer = make_trainer(net, config["dtype"])

    def step() -> List[mx.nd.NDArray]:
        data = [array.as_in_context(context) for array in listed(inputs)]
        label = [None if array is None else array.as_in_context(context) for array in labels]
        with autograd.record():
            loss = total_loss(net(*data), label)
        loss.backward()
        trainer.step(config["batch_size"])
        return [loss]

    return step


def data_parallel_step(task: Task, net: gluon.HybridBlock, config: Mapping[str, Any],
                       contexts: List[mx.Context]) -> Step:
    """A step of MXNet's own data parallelism, as Gluon's documentation writes it."""
    inputs, labels = task.batch(config["batch_size"], config["dtype"])
    trainer = make_trainer(net, config["dtype"])

    def divided(array: Optional[mx.nd.NDArray]) -> List[Optional[mx.nd.NDArray]]:
        if array is None:
            return [None] * len(contexts)
        return gluon.utils.split_and_load(array, contexts, even_split=False)

    def step() -> List[mx.nd.NDArray]:
        data = zip(*map(divided, listed(inputs)))
        label = zip(*map(divided, labels))
        with autograd.record():
            losses = [total_loss(net(*x), y) for x, y in zip(data, label)]
        autograd.backward(losses)
        trainer.step(config["batch_size"])
        return losses

    return step


def gradient_bytes(net: gluon.HybridBlock) -> int:
    """Size of all gradients of one replica."""
    return sum(int(np.prod(parameter.shape)) * np.dtype(parameter.dtype).itemsize
               for parameter in net.collect_params().values() if parameter.grad_req != "null")


def bytes_moved(config: Mapping[str, Any], net: gluon.HybridBlock, devices: int) -> int:
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


def time_steps(step: Step, warmup: int, repeat: int) -> Dict:
    """Run `warmup` steps and then `repeat` timed ones, each of which ends when all devices are done.

    ``issue_seconds_all`` is the processor time that the main thread takes to issue the work of each timed step;
    ``issue_wall_seconds_all`` is how long that lasts, waiting for a core included where the devices have them all.
    ``processor_seconds_all`` is the processor time of all threads of the process until the step's end, which other
    programs hardly change.
    """
    names = ("seconds_all", "issue_seconds_all", "issue_wall_seconds_all", "processor_seconds_all")
    timed: Dict[str, List[float]] = {name: [] for name in names}
    means = []
    for index in range(warmup + repeat):
        begin, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
        losses = step()
        issued, taken = time.perf_counter() - begin, time.thread_time() - thread
        mx.nd.waitall()
        values = (time.perf_counter() - begin, taken, issued, time.process_time() - process)
        if index >= warmup:
            for name, value in zip(names, values):
                timed[name].append(value)
        means.append(float(np.mean(np.concatenate([loss.asnumpy() for loss in losses]))))
    return {**timed, "first_loss": means[0], "last_loss": means[-1]}


def run(config: Mapping[str, Any], task: Task) -> Dict[str, Any]:
    """Measure one contender.

    Parameters
    ----------
    config : mapping
        ``kind`` (``serial``, ``data_parallel`` or ``soybean_mx``), ``contexts`` (kind and number of each),
        ``batch_size``, ``dtype``, and the steps ``warmup`` and ``repeat``.
    task : Task
        What is trained.

    Returns
    -------
    dict
        what :func:`time_steps` gives, ``peak_bytes`` and ``before_model_bytes`` (of
        the process, or of the GPUs), ``bytes_moved`` in a step by all devices together, ``parameter_bytes``,
        ``first_loss`` and ``last_loss``.
    """
    contexts = [mx.Context(kind, index) for kind, index in config["contexts"]]
    memory = PeakMemory(contexts)
    before = process_peak_bytes()
    if config["kind"] == "data_parallel":
        net = make_network(task, config, contexts)
        step = data_parallel_step(task, net, config, contexts)
    else:
        net = make_network(task, config, contexts[:1])
        step = serial_step(task, net, config, contexts[0])
    result = time_steps(step, config["warmup"], config["repeat"])
    result.update(peak_bytes=memory.bytes(), before_model_bytes=before,
                  bytes_moved=bytes_moved(config, net, len(contexts)), parameter_bytes=gradient_bytes(net))
    return result
