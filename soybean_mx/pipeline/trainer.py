"""Trains a network in stages, each on a device of its own, by one of the schedules of :mod:`.schedule`.

Everything is queued in MXNet's engine by one thread, which waits for nothing; an empty operation between any two passes
of a device (:mod:`.workers`) keeps it to the schedule's order, and so to the schedule's memory.
"""
from __future__ import annotations

import copy
import warnings
from collections import Counter
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray

from soybean_mx.devices import contexts as device_contexts
from soybean_mx.engine_order import after
from soybean_mx.files import replaced
from soybean_mx.graph import is_random, weights_beside_trained_biases
from soybean_mx.pipeline import optimizer_files, weight_versions
from soybean_mx.pipeline.full_updates import FullUpdates, unread
from soybean_mx.pipeline.partition import StageGraph, Tensor, balanced, partition
from soybean_mx.pipeline.schedule import (
    BACKWARD,
    FORWARD,
    PER_MINIBATCH,
    SYNCHRONOUS,
    UPDATE,
    Operation,
    Runner,
    ScheduleError,
    checked,
    in_flight,
)
from soybean_mx.pipeline.tiled_stage import TiledWeight, Types
from soybean_mx.pipeline.trace import Trace
from soybean_mx.pipeline.workers import Arrays, Pass, PassOrder, TiledWorker, Worker, listed, own_copy
from soybean_mx.trainer import cut_state, is_elementwise, whole_state

TILING_OPTIONS = ("strategy", "batch_norm", "pins")


class PipelineError(RuntimeError):
    """A network or a use of the trainer that cannot be pipelined; the message says what to do."""


class PipelineTrainer:
    """Trains a Gluon network in a pipeline of stages.

    Parameters
    ----------
    net : mxnet.gluon.HybridBlock
        The network, with initialised parameters. They stay where they are, and are brought up to date by
        :meth:`synchronize`.
    loss : callable
        Of the network's output and the label, on symbols: a Gluon loss, which gives one loss for each sample.
    optimizer : str or mxnet.optimizer.Optimizer
        As of ``gluon.Trainer``. Every stage has one of its own, whose counts are its own updates.
    optimizer_params : dict, optional
        As of ``gluon.Trainer``.
    devices : str or sequence of mxnet.Context, optional
        A device list (``"cpu:2"``), in the order of the stages, those of one stage together.
    schedule : str
        One of :data:`soybean_mx.pipeline.schedule.SCHEDULES`.
    stages : "auto", "measured", int or sequence of sequence of str
        The operators of each stage, or how many stages of about the same work; "auto": as many as there are devices
        (or entries of ``replicas``), and two for each device where they are interleaved. These go by an estimate;
        "measured": as many, by the time of each operator, which the first step takes on the first device.
    replicas : sequence of int, optional
        The number of devices of each stage; microbatches are dealt to them in turn. 1 each, unless given.
    tiled_over : int or sequence of int
        How many devices compute a stage together, tiled; one number for all stages or one for each. Of several
        replicas each has so many.
    tiling : dict, optional
        What the planner of tilings is told: ``strategy``, ``batch_norm`` and ``pins``, as
        ``net.hybridize(backend="soybean_mx")`` takes them.
    microbatches : int, optional
        Into how many a batch is cut; by default twice the number of stages, and 1 for ``1f1b``, where each batch is a
        minibatch of its own.
    recompute : bool
        Whether stages keep of a pass only its inputs, its outputs and the version of its weights, and run it again
        before its backward pass. Stages that hold one pass at a time, or draw random numbers, do not.
    recoverable : bool, optional
        Whether the parameters of the last update that all stages have completed can be saved after one has failed. On,
        but for ``1f1b`` with different numbers of replicas. With ``1f1b`` a stage then has up to as many versions as
        there are stages and one more (two with replicas), and with different replicas as many as it makes between two
        steps after which all stages have updated; False leaves it with PipeDream's number. Other schedules have these
        versions anyway.

    Raises
    ------
    PipelineError, soybean_mx.pipeline.schedule.ScheduleError, soybean_mx.devices.DeviceError
        When these do not fit together.
    """

    def __init__(self, net: gluon.HybridBlock, loss: Callable, optimizer: Union[str, mx.optimizer.Optimizer],
                 optimizer_params: Optional[Dict[str, Any]] = None, devices: Any = None, schedule: str = "1f1b",
                 stages: Union[str, int, Sequence[Sequence[str]]] = "auto",
                 replicas: Optional[Sequence[int]] = None, microbatches: Optional[int] = None,
                 tiled_over: Union[int, Sequence[int]] = 1, tiling: Optional[Dict[str, Any]] = None,
                 recoverable: Optional[bool] = None, recompute: bool = False):
        self._net, self._loss = net, loss
        self.schedule = checked(schedule)
        self._stages = stages
        self._tiling = _checked_tiling(tiling or {})
        contexts = device_contexts(devices)
        self._replicas, self._tiled_over = self._checked_replicas(len(contexts), stages, replicas, tiled_over)
        self._groups = self._grouped(contexts)
        self._contexts = [group[0] for group in self._groups]
        count = len(self._replicas)
        default = 1 if schedule in PER_MINIBATCH else 2 * count
        self.microbatches = default if microbatches is None else microbatches
        if self.microbatches < 1 or (schedule in PER_MINIBATCH and self.microbatches != 1):
            raise ScheduleError(f"The schedule {schedule!r} was given {microbatches} microbatches of each batch: give "
                                + ("1, for it updates after each." if schedule in PER_MINIBATCH else "1 or more."))
        if recoverable is False and schedule in SYNCHRONOUS:
            raise ScheduleError(f"recoverable=False was given with the schedule {schedule!r}, which always is: leave "
                                "it out.")
        alike = len(set(self._replicas)) == 1
        self.recoverable = (schedule != "1f1b" or alike) if recoverable is None else recoverable
        self.recompute = recompute
        self._full: Optional[FullUpdates] = None
        on = len(self._contexts) if schedule == "interleaved" else None
        self._runner = Runner(schedule, self._replicas, on)
        self._optimizers = _optimizers(optimizer, optimizer_params or {}, count)
        self._scale = self._optimizers[0].rescale_grad
        self._orders = [PassOrder(context) for context in self._contexts]
        self._workers: Dict[Tuple[int, int], Worker] = {}
        self._counted: Optional[NDArray] = None
        self._steps = 0
        self._failure: Optional[BaseException] = None
        self._trace: Optional[Trace] = None
        # Where the stages are "measured": what each takes for a microbatch, with its update, as its operators do alone.
        self.expected_seconds: Optional[List[float]] = None
        self._loaded: Optional[optimizer_files.Loaded] = None  # to be applied once there are stages

    def _checked_replicas(self, devices: int, stages, replicas, tiled_over) -> Tuple[List[int], List[int]]:
        """The replicas of each stage, and the devices of each of a stage's replicas."""
        count = stages if isinstance(stages, int) else None if isinstance(stages, str) else len(stages)
        if isinstance(stages, str) and stages not in ("auto", "measured"):
            raise PipelineError(f"The stages are {stages!r}: give \"auto\", \"measured\", a number, or the operators "
                                "of each stage.")
        if self.schedule == "interleaved":
            count = count or 2 * devices
            if count % devices or replicas or tiled_over != 1:
                raise ScheduleError(f"The schedule 'interleaved' was given {count} stages on {devices} devices: give "
                                    "a multiple of the devices, no replicas and no stages over several devices.")
            return [1] * count, [1] * count
        if not isinstance(tiled_over, int):
            tiled_over = list(tiled_over)
        sizes = [tiled_over] if isinstance(tiled_over, int) else tiled_over
        if not sizes or min(sizes) < 1:
            raise PipelineError(f"The stages were to be tiled over {tiled_over} devices: give 1 or more.")
        if not count and not replicas:
            count = max(1, devices // sizes[0]) if isinstance(tiled_over, int) else len(sizes)
        result = list(replicas) if replicas else [1] * count
        sizes = sizes * len(result) if isinstance(tiled_over, int) else sizes
        needed = sum(replica * size for replica, size in zip(result, sizes))
        if min(result) < 1 or len(sizes) != len(result) or (count or len(result)) != len(result) or needed != devices:
            raise PipelineError(f"{count or len(result)} stages with the replicas {result}, tiled over {sizes} devices "
                                f"each, were given {devices} devices: give one number for each stage, so that the "
                                "products add up to the devices.")
        return result, sizes

    def _grouped(self, contexts: Sequence[mx.Context]) -> List[List[mx.Context]]:
        """The devices of each replica of each stage."""
        if self.schedule == "interleaved":
            return [[context] for context in contexts]
        left = iter(contexts)
        return [[next(left) for _ in range(size)] for replicas, size in zip(self._replicas, self._tiled_over)
                for _ in range(replicas)]

    # -- steps -----------------------------------------------------------------------------------------------------

    def step(self, data: Arrays, label: Arrays) -> NDArray:
        """Queue a batch, and all work of other batches whose turn it then is.

        Parameters
        ----------
        data, label : NDArray or sequence of NDArray
            The batch; the first dim is the samples.

        Returns
        -------
        NDArray
            The loss of each sample, with the weights of its forward pass, on the last stage's device. Nothing waits for
            it: reading it does.

        Raises
        ------
        PipelineError
            After a step has failed.
        mxnet.MXNetError
            What a stage has raised.
        """
        if self._failure is not None:
            raise PipelineError("A step has failed, and what was under way is lost: make a new trainer, from the "
                                "parameters that save_parameters writes.") from self._failure
        data, label = listed(data), listed(label)
        if not self._workers:
            self._build(data, label)
        with autograd.pause(), mx.engine.bulk(0):
            try:
                return self._step([*data, *label])
            except BaseException as error:
                self._failure = error
                self._abandon()
                raise

    def _step(self, arrays: Sequence[NDArray]) -> NDArray:
        size = arrays[0].shape[0]
        if size == 0 or any(array.shape[0] != size for array in arrays):
            raise PipelineError(f"The arrays of a batch have {[array.shape[0] for array in arrays]} samples: give the "
                                "same number of all, 1 or more.")
        parts = min(self.microbatches, size)
        if self.schedule in ("interleaved", "2bw") and parts < self.microbatches:
            raise PipelineError(f"The batch has {size} samples, fewer than its {self.microbatches} microbatches, which "
                                f"the schedule {self.schedule!r} does not take: give a larger batch.")
        numbers = self._runner.add(parts)
        if self.schedule in SYNCHRONOUS:
            self._forget()
        ends = [size * (part + 1) // parts for part in range(parts)]
        for number, start, end in zip(numbers, [0, *ends], ends):
            self._given[number] = [mx.nd.slice_axis(array, axis=0, begin=start, end=end) for array in arrays]
            self._sizes[number] = end - start
        self._queue_all(self._runner.ready())
        losses = [self._losses.pop(number) for number in numbers]
        return self._watched(losses[0] if len(losses) == 1 else mx.nd.concat(*losses, dim=0))

    def _watched(self, loss: NDArray) -> NDArray:
        """A batch's loss, that cannot be read before it has been counted.

        Whoever reads an array that an error has come to gets the error, and then MXNet forgets it: what comes later
        runs, on whatever is in memory. So what must not run then is queued before the loss, which waits for it: the
        updates, where the batch is flushed, and the count, by which :meth:`synchronize` knows.
        """
        if self._counted is None:
            self._counted = mx.nd.zeros((1,), ctx=loss.context)
        newest = [versions.value(versions.newest) for worker in self._workers.values()
                  for versions in worker.weights.values()] if self.schedule in SYNCHRONOUS else []
        after(loss.context, [loss, *newest], [self._counted])
        self._counted += 1
        after(loss.context, [self._counted], [loss])
        self._steps += 1
        if self._trace is not None:
            self._trace.batches += 1
        return loss

    def _forget(self) -> None:
        self._given: Dict[int, List[NDArray]] = {}
        self._sizes: Dict[int, int] = {}
        self._sent: Dict[Tuple[int, int], Dict[Tensor, NDArray]] = {}
        self._heads: Dict[Tuple[int, Tensor], List[NDArray]] = {}
        self._losses: Dict[int, NDArray] = {}
        self._extra: Dict[Tuple[str, int], List[NDArray]] = {}

    def _queue_all(self, operations: Iterator[Operation]) -> None:
        """Queue operations; where a batch is flushed, its updates happen together or, where a stage fails, not at all.
        """
        updates = []
        for operation in operations:
            if operation.kind == UPDATE and self.schedule in SYNCHRONOUS:
                updates.append(operation)
            else:
                self._queue(operation)
        if updates:
            written = [[*worker.gradients.values()] for worker in self._workers.values() if worker.gradients]
            done = mx.nd.empty((1,), ctx=self._contexts[0])
            after(done.context, [array for arrays in written for array in arrays], [done])
            for arrays in written:
                after(arrays[0].context, [done], arrays)
        for operation in updates:
            self._queue(operation)

    def _queue(self, operation: Operation) -> None:
        if self._trace is not None:
            self._queue_traced(operation, self._trace)
        elif operation.kind == FORWARD:
            self._forward(operation)
        elif operation.kind == BACKWARD:
            self._backward(operation)
        else:
            self._update(operation)

    def _queue_traced(self, operation: Operation, trace: Trace) -> None:
        kind, stage, number, version = operation
        if kind == UPDATE:
            worker, order = self._workers[stage, 0], self._order_of(stage, 0)
            if not worker.gradients:
                return
            mark = trace.mark(operation, self._orders.index(order))
            mark.begin([], list(worker.gradients.values()))
            self._update(operation)
            mark.end([versions.value(versions.newest) for versions in worker.weights.values()])
            return
        worker, order = self._place(stage, number)
        needed = [worker.weights[name].value(self._version(stage, name, version, worker))
                  for name in worker.graph.parameters] if kind == FORWARD else []
        order.mark = trace.mark(operation, self._orders.index(order), needed)
        try:
            (self._forward if kind == FORWARD else self._backward)(operation)
        finally:
            order.mark = None

    def _order_of(self, stage: int, replica: int) -> PassOrder:
        if self.schedule == "interleaved":
            return self._orders[stage % len(self._contexts)]
        return self._orders[sum(self._replicas[:stage]) + replica]

    def _place(self, stage: int, number: int) -> Tuple[Worker, PassOrder]:
        replica = number % self._replicas[stage]
        return self._workers[stage, replica], self._order_of(stage, replica)

    def _forward(self, operation: Operation) -> None:
        _, stage, number, version = operation
        worker, order = self._place(stage, number)
        graph = worker.graph
        given = {name: own_copy(self._given[number][self._inputs.index(name)], worker.context)
                 for name in graph.inputs}
        received, gradients = {}, {}
        for name, tensor in graph.received.items():
            produced = self._sent[self._producer[tensor], number][tensor]
            received[name] = own_copy(produced, worker.context)
            gradients[name] = mx.nd.zeros(produced.shape, worker.context, produced.dtype)
        order.before([*given.values(), *received.values()])
        versions = {name: self._version(stage, name, version, worker) for name in graph.parameters}
        weights = {name: worker.weights[name].take(versions[name]) for name in graph.parameters}
        outputs, run = worker.forward({**given, **received}, weights, gradients, self._begins(stage, number))
        order.done(outputs)
        worker.held[number] = Pass(outputs, gradients, versions, run)
        worker.most_held = max(worker.most_held, len(worker.held))
        self._sent[stage, number] = dict(zip(graph.outputs, outputs))
        if stage == len(self._replicas) - 1:
            self._losses[number] = outputs[-1].detach()
            if self._full is not None:
                self._full.loss(number, self._losses[number])
            del self._given[number]

    def _version(self, stage: int, name: str, version: int, worker: Worker) -> int:
        """A weight that another stage owns has that one's versions."""
        if name not in self._asked:
            return worker.weights[name].newest
        if self._owner[name] == stage or self.schedule not in PER_MINIBATCH:
            return version
        # With 1F1B the stages have different versions at a time; a copy of a tied weight is the newest that there is.
        return version if self.schedule == "1f1b-vertical-sync" else worker.weights[name].newest

    def _begins(self, stage: int, number: int) -> bool:
        """Whether the gradients of a device begin anew with a microbatch: they are sums over those of a batch."""
        return self.schedule in PER_MINIBATCH or not any(
            other < number and other % self._replicas[stage] == number % self._replicas[stage]
            for other in self._runner.group(stage, number))

    def _backward(self, operation: Operation) -> None:
        _, stage, number, _ = operation
        worker, order = self._place(stage, number)
        held = worker.held.pop(number)
        heads = []
        for tensor, output in zip(worker.graph.outputs, held.outputs):
            parts = self._heads.pop((number, tensor), [])
            if stage == len(self._replicas) - 1 and output is held.outputs[-1]:
                parts = [*parts, mx.nd.ones(output.shape, worker.context, output.dtype)]
            if not parts:
                parts = [mx.nd.zeros(output.shape, worker.context, output.dtype)]
            # In a chain of sums: each has two terms, and none writes into what another reads.
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            heads.append(total)
        order.before(heads)
        worker.backward(held, heads)
        written = [*held.gradients.values(), *worker.gradients.values()]
        order.done(written or heads)
        for name, gradient in held.gradients.items():
            tensor = worker.graph.received[name]
            producer, _ = self._place(self._producer[tensor], number)
            self._heads.setdefault((number, tensor), []).append(own_copy(gradient, producer.context))
        for name, version in held.versions.items():
            worker.weights[name].give_back(version)
        self._sent.pop((stage, number), None)
        self._send_gradients(stage, number, worker)

    def _send_gradients(self, stage: int, number: int, worker: Worker) -> None:
        """To the owners of the weights that this device has copies of, when its part of a batch is done."""
        mine = [other for other in self._runner.group(stage, number)
                if other % self._replicas[stage] == number % self._replicas[stage]]
        if self.schedule not in PER_MINIBATCH and number != mine[-1]:
            return
        for name in self._asked.intersection(worker.gradients):
            gradient = worker.gradients[name]
            owner = self._workers[self._owner[name], 0]
            if owner is not worker:
                target = owner.gradients[name].context
                self._extra.setdefault((name, number), []).append(own_copy(gradient, target))

    def _update(self, operation: Operation) -> None:
        _, stage, number, _ = operation
        worker = self._workers[stage, 0]
        group = self._runner.group(stage, number)
        owned = [name for name in worker.gradients if self._owner[name] == stage and name in self._asked]
        for name in owned:
            for other in group:
                for extra in self._extra.pop((name, other), []):
                    worker.gradients[name] += extra
        optimizer = self._optimizers[stage]
        optimizer.rescale_grad = self._scale / sum(self._sizes[other] for other in group)
        updates = {name: self._next_version(optimizer, name, worker, operation.version, group) for name in owned}
        weight_versions.update(optimizer, list(updates.values()))
        for name, item in updates.items():
            self._hand_on(name, item, worker, operation.version)
        if self._full is not None:
            values = {name: worker.weights[name].value(worker.weights[name].newest) for name in owned}
            self._full.made(stage, operation.version, values, self._copied_states(stage), group)

    def _index(self, name: str) -> int:
        """The optimizer's index of a parameter, or of that which a tile is of."""
        return self._names.index(self._whole_name.get(name, name))

    def _copied_states(self, stage: int) -> List[Dict[str, NDArray]]:
        """The auxiliary states of each device of a stage, after its last backward pass: MXNet changes them there, and
        takes them as only read."""
        result = []
        for replica in range(self._replicas[stage]):
            worker = self._workers[stage, replica]
            states = worker.states
            if states:
                after(worker.context, list(worker.gradients.values()), list(states.values()))
            result.append({name: own_copy(state, worker.context) for name, state in states.items()})
        return result

    def _next_version(self, optimizer: mx.optimizer.Optimizer, name: str, worker: Worker, version: int,
                      group: range) -> weight_versions.Update:
        """The update of a weight, to an array that nobody reads."""
        index = self._index(name)
        versions = worker.weights[name]
        old = versions.value(versions.newest)
        if name not in self._optimizer_states:
            self._optimizer_states[name] = optimizer.create_state_multi_precision(index, old)
        oldest = self._runner.oldest_wanted(self._owner[name], version)
        if self._full is not None:
            oldest = min(oldest, self._full.needed_from(self._owner[name]))
        new = old if not versions.is_read() and oldest > versions.newest else versions.next_array(oldest)
        if self._full is not None:
            self._full.guard(self._owner[name], group, new)
        first = name not in self._whole_name or name == self._tiles[self._whole_name[name]][1].tiles[0]
        return weight_versions.Update(index, old, new, worker.gradients[name], self._optimizer_states[name], first)

    def _hand_on(self, name: str, item: weight_versions.Update, worker: Worker, version: int) -> None:
        """A weight's update has been queued: count the version, and give it to other devices that hold the weight."""
        if item.new is item.old:
            worker.weights[name].renew()
        else:
            worker.weights[name].add(item.new)
        for (stage, _), follower in self._workers.items():
            if follower is not worker and name in follower.weights:
                copies = follower.weights[name]
                target = copies.next_array(self._runner.oldest_wanted(stage, version))
                item.new.copyto(target)
                copies.add(target)

    # -- building --------------------------------------------------------------------------------------------------

    def _build(self, data: Sequence[NDArray], label: Sequence[NDArray]) -> None:
        parameters = dict(self._net.collect_params().items())
        if isinstance(self._loss, gluon.Block):
            parameters.update(self._loss.collect_params().items())
        if any(parameter._deferred_init for parameter in parameters.values()):
            with autograd.pause():
                context = next(iter(parameters.values())).list_ctx()[0]
                self._net(*(array.as_in_context(context) for array in data))
        names = [[f"{kind}{index}" for index in range(len(arrays))] for kind, arrays in
                 (("data", data), ("label", label))]
        inputs, targets = ([mx.sym.var(name) for name in group] for group in names)
        scores = self._net(*inputs)
        symbol = self._loss(scores, *targets)
        self._inputs = [*names[0], *names[1]]
        if isinstance(self._stages, (str, int)):
            inside = scores if isinstance(scores, mx.sym.Symbol) else mx.sym.Group(list(scores))
            types = {name: ((-(-array.shape[0] // self.microbatches), *array.shape[1:]), array.dtype)
                     for name, array in zip(names[0], data)}
            seconds = None
            if self._stages == "measured":
                seconds = _measured_seconds(inside, types, parameters, self._contexts[0])
            self._stages = balanced(inside, {name: shape for name, (shape, _) in types.items()}, len(self._replicas),
                                    seconds)
            if seconds is not None:
                self.expected_seconds = [sum(seconds[name] for name in stage) for stage in self._stages]
        graphs = partition(symbol, self._stages, self._inputs)
        self._producer = {tensor: stage for stage, graph in enumerate(graphs) for tensor in graph.outputs}
        self._parameters = parameters
        used = [name for graph in graphs for name in graph.parameters]
        asked = {name for name in used if parameters[name].grad_req != "null"}
        # Of these, MXNet computes the bias's gradient only with the weight's.
        computed = asked | (weights_beside_trained_biases(symbol, asked) & set(used))
        self._owner: Dict[str, int] = {}
        for stage, graph in enumerate(graphs):
            for name in graph.parameters:
                self._owner.setdefault(name, stage)
        self._names = sorted(parameters)  # as gluon.Trainer counts them
        self._whole_name: Dict[str, str] = {}  # the parameter's, by that of a tile
        for optimizer in self._optimizers:
            optimizer.param_dict = {index: parameters[name] for index, name in enumerate(self._names)}
        self._check_tiled()
        self._optimizer_states: Dict[str, Any] = {}
        self._asked = asked
        self._tiles: Dict[str, Tuple[int, TiledWeight]] = {}
        types = _types_of_stages(graphs, [*data, *label], self._inputs, parameters, self.microbatches) \
            if max(self._tiled_over) > 1 else []
        shared = {name for name, count in Counter(used).items() if count > 1}
        device = 0
        for stage, graph in enumerate(graphs):
            for replica in range(self._replicas[stage]):
                group = self._groups[device % len(self._groups)]
                if len(group) == 1:
                    worker = Worker(graph, group[0], parameters, computed)
                else:
                    worker = TiledWorker(graph, group, parameters, computed, types[stage],
                                          self.schedule not in PER_MINIBATCH, self._tiling, shared, self.recompute)
                    self._add_tiles(stage, worker)
                self._workers[stage, replica] = worker
                device += 1
        if self.recompute:
            self._choose_recomputed(graphs)
        self._forget()
        if self.recoverable and self.schedule not in SYNCHRONOUS:
            self._full = self._new_full_updates()
        if self._loaded is not None:
            rate = self._optimizers[0].lr  # which may have been set since
            self._apply(self._loaded)
            for optimizer in self._optimizers:
                optimizer.lr = rate

    def _choose_recomputed(self, graphs: Sequence[StageGraph]) -> None:
        """Which stages run their passes again: those that hold several, and would draw the same numbers. A tiled stage
        has its own way, in which it keeps what it has drawn."""
        for stage, graph in enumerate(graphs):
            workers = [self._workers[stage, replica] for replica in range(self._replicas[stage])]
            if isinstance(workers[0], TiledWorker):
                continue
            held = 2 if self.schedule == "interleaved" else in_flight(
                self.schedule, self._replicas, stage, 2 * len(self._contexts) if self.schedule in PER_MINIBATCH
                else self.microbatches)
            draws = is_random(graph.symbol.tojson(), training=True)
            if held > 1 and draws:
                warnings.warn(f"Stage {stage} draws random numbers (Dropout, for one), which cannot be drawn again, so "
                              "it keeps its activations: with recompute=True put such operators into a stage of their "
                              "own, or into the last one.", RuntimeWarning, stacklevel=4)
            for worker in workers:
                worker.recomputes = held > 1 and not draws

    def _new_full_updates(self) -> FullUpdates:
        stages = range(len(self._replicas))
        full = FullUpdates([self._workers[stage, 0].context for stage in stages],
                           self._replicas if self.schedule in PER_MINIBATCH else [1] * len(stages),
                           1 if self.schedule == "1f1b" else 0)
        values = [{name: self._workers[stage, 0].weights[name].value(0) for name in self._asked
                   if self._owner[name] == stage} for stage in stages]
        full.start([0] * len(stages), values, [self._copied_states(stage) for stage in stages])
        return full

    def _check_tiled(self) -> None:
        """Whether the stages that are to be tiled can be."""
        if max(self._tiled_over) > 1 and not is_elementwise(self._optimizers[0]):
            raise PipelineError(f"The optimizer {type(self._optimizers[0]).__name__} looks at whole parameters, of "
                                "which a tiled stage's devices have parts: use another, or tiled_over=1.")

    def _add_tiles(self, stage: int, worker: TiledWorker) -> None:
        """Let the tiles of a stage's parameters be weights of their own, in the parameters' place."""
        for name, weight in worker.parameters.items():
            for tile in weight.tiles:
                self._owner[tile], self._whole_name[tile] = stage, name
            if name in self._asked:
                self._asked.remove(name)
                self._asked.update(weight.tiles)
                self._tiles[name] = stage, weight

    # -- draining --------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Queue all that is under way to its end: the pipeline is empty then, and fills anew with the next step."""
        if self._workers and self._failure is None:
            with autograd.pause(), mx.engine.bulk(0):
                self._queue_all(self._runner.drain())
            if self._full is not None:
                self._full.drained()
            self._settle()

    def _abandon(self) -> None:
        """Forget what is under way: a stage has failed."""
        self._runner.abandon()
        for worker in self._workers.values():
            worker.held.clear()
        if self._workers:
            self._settle()

    def _settle(self) -> None:
        for worker in self._workers.values():
            for name, versions in worker.weights.items():
                versions.reset(self._runner.base[self._owner[name]])
        self._forget()

    def synchronize(self) -> None:
        """Drain the pipeline, and bring the network's own parameters up to date; waits for all of it.

        Statistics that devices of one stage have each moved by themselves (BatchNorm's) are averaged.

        Raises
        ------
        PipelineError
            When a stage has raised an error. The network then has the parameters as of the last update that all stages
            have completed; where the trainer is not recoverable, what they were.
        """
        failed = self._find_failure()
        with autograd.pause():
            if self._workers and failed is None:
                self._write_parameters()
            elif self._workers and self.recoverable:
                self._write_last_full_update()
        if failed is not None:
            raise PipelineError(f"A stage of the pipeline has failed ({failed}): "
                                + ("the network has the parameters of the last update that all stages have completed; "
                                   "save them and make a new trainer." if self.recoverable else
                                   f"with the schedule {self.schedule!r} the weights are lost, so make a new trainer "
                                   "from the last checkpoint, with recoverable=True if there is memory for it."
                                   )) from self._failure

    def _find_failure(self) -> Optional[str]:
        """Wait for all that is queued, and say what has failed."""
        found: Optional[BaseException] = None
        try:
            self.drain()
        except mx.MXNetError as error:
            found = error
        # Each array tells of an error once, and would hand it on to what copies from it.
        arrays = [self._counted] if self._counted is not None else []
        for worker in self._workers.values():
            arrays += [versions.value(versions.newest) for versions in worker.weights.values()]
            arrays += [*worker.states.values(), *worker.gradients.values()]
        for wait in [mx.nd.waitall, *(array.wait_to_read for array in arrays), mx.nd.waitall]:
            try:
                wait()
            except mx.MXNetError as error:
                found = found or error
        undone = self._full is not None and self._full.failed()
        if found is None and not undone and (self._counted is None or int(self._counted.asscalar()) == self._steps):
            return None
        if self._failure is None:
            self._failure = found or PipelineError("An error of a stage has been read from a loss.")
            self._abandon()
        return _first_sentence(str(found or "its error has been raised where the loss was read"))

    def _write_parameters(self) -> None:
        held = {name: self._workers[self._owner[name], 0].weights[name] for name in self._asked}
        self._set_parameters({name: versions.value(versions.newest) for name, versions in held.items()})
        for stage, count in enumerate(self._replicas):
            states = [self._workers[stage, replica].states for replica in range(count)]
            for name, value in states[0].items():
                if count > 1:
                    value = sum(state[name].as_in_context(value.context) for state in states) / count
                    for replica in range(count):
                        self._workers[stage, replica].set_state(name, value)
                self._parameters[name].set_data(value)

    def _set_parameters(self, values: Mapping[str, NDArray]) -> None:
        """Give the network parameters whose values, or the values of whose tiles, are given."""
        for name in values.keys() - self._whole_name.keys():
            self._parameters[name].set_data(values[name])
        for name, (_, weight) in self._tiles.items():
            if weight.tiles[0] in values:
                tiles = [values[tile] for tile in weight.tiles]
                whole = mx.nd.empty(weight.layout.shape, tiles[0].context, tiles[0].dtype)
                weight.layout.gather(tiles, whole)
                self._parameters[name].set_data(whole)

    def _write_last_full_update(self) -> None:
        if self._full is None:  # all stages update together, or not at all
            self._write_parameters()
            return
        for values, states in zip(*self._full.last()):
            for array in [*values.values(), *(state for held in states for state in held.values())]:
                while unread(array) is not None:  # what was to be written later has failed
                    pass
            self._set_parameters(values)
            for name, state in states[0].items():
                mean = sum(held[name].as_in_context(state.context) for held in states) / len(states)
                self._parameters[name].set_data(mean)

    def save_parameters(self, path: str) -> None:
        """Write the network's parameters as ``net.save_parameters`` does, after :meth:`synchronize`.

        Parameters
        ----------
        path : str
            Where to; an existing file is replaced when the new one is complete.

        Raises
        ------
        PipelineError
            As :meth:`synchronize`; where the trainer is recoverable, the file has been written all the same.
        """
        failure = None
        try:
            self.synchronize()
        except PipelineError as error:
            if not self.recoverable:
                raise
            failure = error
        with replaced(path) as temporary:
            self._net.save_parameters(temporary)
        if failure is not None:
            raise failure

    def save_states(self, path: str) -> None:
        """Drain the pipeline and write the optimizer's states, as ``gluon.Trainer.save_states`` does.

        With the parameters that :meth:`save_parameters` writes, a new trainer continues bit for bit as this one does.
        ``gluon.Trainer`` loads the file too.

        Parameters
        ----------
        path : str
            Where to; an existing file is replaced when the new one is complete.

        Raises
        ------
        PipelineError
            As :meth:`synchronize`; nothing is written then. Also before the first step.
        """
        self.synchronize()
        if not self._workers:
            raise PipelineError("The optimizer has no states before the first step: save them after one.")
        states = {self._index(name): state for name, state in self._optimizer_states.items()
                  if name not in self._whole_name}
        for name, (_, weight) in self._tiles.items():
            if weight.tiles[0] in self._optimizer_states:
                tiles = [self._optimizer_states[tile] for tile in weight.tiles]
                states[self._index(name)] = whole_state(tiles, weight.layout, mx.cpu(0))
        optimizer_files.write(path, states, self._optimizers, self._order_of_names())

    def _order_of_names(self) -> List[int]:
        return [self._names.index(name) for name in self._parameters]

    def load_states(self, path: str) -> None:
        """Drain the pipeline and go on with the optimizer, its counts and its states from a file.

        Parameters
        ----------
        path : str
            A file of :meth:`save_states`, with any number of stages, or of ``gluon.Trainer.save_states``.

        Raises
        ------
        soybean_mx.pipeline.optimizer_files.StatesError, OSError
            When it cannot be used.
        PipelineError
            As :meth:`synchronize`.
        """
        loaded = optimizer_files.Loaded(path)
        self.synchronize()
        if self._workers:
            self._apply(loaded)
            return
        self._loaded = loaded
        self._optimizers = loaded.for_any_stages(len(self._replicas))

    def _apply(self, loaded: optimizer_files.Loaded) -> None:
        order = self._order_of_names()
        states = loaded.states_of(order)
        owned = [sorted({self._index(name) for name in self._asked if self._owner[name] == stage})
                 for stage in range(len(self._replicas))]
        dictionary = self._optimizers[0].param_dict
        self._optimizers = loaded.stages(order, owned)
        for optimizer in self._optimizers:
            optimizer.param_dict = dictionary
        self._optimizer_states = {}
        for index, state in states.items():
            name = self._names[index]
            if name in self._tiles:
                weight = self._tiles[name][1]
                self._optimizer_states.update(zip(weight.tiles, cut_state(state, weight.layout, name)))
            elif name in self._asked:
                context = self._workers[self._owner[name], 0].context
                self._optimizer_states[name] = optimizer_files.placed(state, context)

    @contextmanager
    def trace(self, path: Optional[str] = None) -> Iterator[Trace]:
        """Within it, what the devices do is recorded, with the times at which they do it; leaving it waits for that.

        Parameters
        ----------
        path : str, optional
            A file for ``chrome://tracing`` or Perfetto, written at the end.

        Yields
        ------
        soybean_mx.pipeline.trace.Trace
            Afterwards it knows the utilisation of each stage and the bubble.

        Raises
        ------
        PipelineError
            Inside another trace.
        mxnet.MXNetError
            What a stage has raised.
        """
        if self._trace is not None:
            raise PipelineError("A trace was asked for inside a trace of the same trainer: leave that one first.")
        self._trace = trace = Trace(self.schedule, self._replicas, self._contexts)
        try:
            yield trace
        finally:
            self._trace = None
        trace.wait()
        if path is not None:
            trace.write(path)

    # -- what there is ---------------------------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The optimizer's current learning rate."""
        return self._optimizers[0].learning_rate

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of all updates that are queued from now on."""
        for optimizer in self._optimizers:
            optimizer.set_learning_rate(rate)

    def versions_alive(self) -> List[int]:
        """For each stage, the most arrays that any of its own weights has ever had on one device."""
        return [max([versions.most for replica in range(count)
                     for name, versions in self._workers[stage, replica].weights.items()
                     if self._owner[name] == stage], default=1) for stage, count in enumerate(self._replicas)]

    def most_in_flight(self) -> List[int]:
        """For each stage, the most microbatches that one device has held activations of."""
        return [max(self._workers[stage, replica].most_held for replica in range(count))
                for stage, count in enumerate(self._replicas)]

    @property
    def stages(self) -> List[List[str]]:
        """The operators of each stage, once there has been a step."""
        return [list(names) for names in self._stages]


def _first_sentence(message: str) -> str:
    """What an error of MXNet says, without the places that it may begin with."""
    lines = [line.strip() for line in message.strip().splitlines()]
    return next((line for line in lines if line and not line.startswith(("Traceback ", "File "))), lines[0])


def _measured_seconds(symbol: mx.sym.Symbol, inputs: Types, parameters: Dict[str, gluon.Parameter],
                      context: mx.Context) -> Dict[str, float]:
    from soybean_mx.pipeline.layer_times import seconds_of_operators  # which few trainers need

    held = {name: (parameters[name].shape, parameters[name].dtype) for name in symbol.list_inputs()
            if name not in inputs}
    trained = {name for name in held if parameters[name].grad_req != "null"}
    return seconds_of_operators(symbol, inputs, held, trained, context)


def _checked_tiling(options: Dict[str, Any]) -> Dict[str, Any]:
    unknown = sorted(set(options) - set(TILING_OPTIONS))
    if unknown:
        raise PipelineError(f"The argument tiling has the unknown option {unknown[0]!r}: give {TILING_OPTIONS}.")
    return options


def _types_of_stages(graphs: Sequence[StageGraph], arrays: Sequence[NDArray],
                     inputs: Sequence[str], parameters: Dict[str, gluon.Parameter], microbatches: int) -> List[Types]:
    """Shape and type of what each stage is fed with the largest microbatch."""
    fed = {name: ((-(-array.shape[0] // microbatches), *array.shape[1:]), array.dtype)
           for name, array in zip(inputs, arrays)}
    sent: Dict[Tensor, Any] = {}
    result = []
    for graph in graphs:
        types = {**{name: fed[name] for name in graph.inputs},
                 **{name: sent[tensor] for name, tensor in graph.received.items()}}
        known = {**types, **{name: (parameters[name].shape, parameters[name].dtype)
                             for name in [*graph.parameters, *graph.auxiliary]}}
        _, shapes, _ = graph.symbol.infer_shape(**{name: shape for name, (shape, _) in known.items()})
        _, kinds, _ = graph.symbol.infer_type(**{name: kind for name, (_, kind) in known.items()})
        sent.update(zip(graph.outputs, zip(shapes, kinds)))
        result.append(types)
    return result


def _optimizers(optimizer, settings: Dict[str, Any], count: int) -> List[mx.optimizer.Optimizer]:
    """One for each stage: their counts differ, and a scheduler of the learning rate goes by them."""
    if not isinstance(optimizer, mx.optimizer.Optimizer):
        return [mx.optimizer.create(optimizer, **copy.deepcopy(settings)) for _ in range(count)]
    if settings:
        raise PipelineError("optimizer_params were given beside an optimizer: set them on the optimizer.")
    return [copy.deepcopy(optimizer) for _ in range(count)]
