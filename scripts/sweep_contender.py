"""One model of ``sweep_zoo.py``, run in a process of its own: ``sweep_contender.py CONFIGURATION``.

The configuration is a JSON object, ``{"model": ..., "devices": ["cpu:4", ...], "dtype": ...}``. The model is trained
for three steps on one device with plain MXNet and then, from the same parameters and data, tiled over each list of
devices. A line of the output for each list of devices that begins with ``row:`` is a result.
"""
from __future__ import annotations

import gc
import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

if "mxnet" not in sys.modules:
    import soybean_mx  # noqa: F401  its start-up hook, for where the package is on the path but not installed

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from soybean_mx import core, gluon_front

import sequence_models
import zoo_models
from sample_model import SampleModel

STEPS = 3
# How far the first step may move the parameters, relative to their norm: so far that an error in a gradient is seen in
# them, and not so far that the network diverges.
MOVE = 0.0001
# A gradient that is this much smaller than the network's largest is 0 in exact arithmetic, made of rounding errors
# (that of a bias before BatchNorm), and measured on a tenth of the largest.
VANISHING, VANISHING_SCALE = 1e-5, 0.1
ROI_ALIGN = mx.sym.contrib.ROIAlign
TYPED = ("arange", "zeros", "ones", "cast", "Cast", "one_hot", "argsort", "topk")
GOLDEN = 0.6180339887  # its multiples modulo 1 are far apart
# Rounding in float32, of a tensor whose noise happens to be 0.
ROUNDING = 1e-6
# So many runs with other last bits tell the noise: where a network selects (regions, maxima), rounding turns a choice
# in some of them only.
SHAKES = 5

Values = Dict[str, np.ndarray]


@dataclass
class Run:
    """What a training run gave: all numbers that are compared, by name, and the seconds of each step."""

    values: Values = field(default_factory=dict)
    seconds: List[float] = field(default_factory=list)
    learning_rate: float = 0.0


def flat(outputs: Any) -> List[mx.nd.NDArray]:
    """The arrays in what a network returns."""
    if isinstance(outputs, mx.nd.NDArray):
        return [outputs]
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    return [array for output in outputs or () for array in flat(output)]


def find(name: str) -> SampleModel:
    """The model of that name: of :mod:`sequence_models`, or else of a zoo.

    Raises
    ------
    ValueError
        When there is none.
    """
    model = sequence_models.MODELS.get(name)
    return zoo_models.find(name) if model is None else model()


def evenly_spread(low: float = 0, high: float = 1, shape: Any = (1,), dtype: str = "float32",
                  **_: Any) -> mx.sym.Symbol:
    """In place of ``F.random.uniform``: numbers as evenly spread, and the same in every run."""
    size = int(np.prod(shape))
    fractions = mx.sym.arange(size, dtype=dtype) * GOLDEN % 1
    return (fractions * (high - low) + low).reshape(shape)


class Start(mx.init.Xavier):
    """Xavier's; vectors that ask for no initializer of their own, to which it does not apply, are 1."""

    def __init__(self) -> None:
        super().__init__(rnd_type="gaussian", factor_type="in", magnitude=2)

    def _init_weight(self, name: str, arr: mx.nd.NDArray) -> None:
        if arr.ndim < 2:
            arr[:] = 1
        else:
            super()._init_weight(name, arr)


def without_dropout(net: gluon.Block) -> None:
    """Let nothing be dropped at random, which two runs could not share."""
    if isinstance(net, gluon.nn.Dropout):
        net._rate = 0
    if hasattr(net, "drop_prob"):  # GluonCV's DropBlock, which is made for images of one size, too
        net.drop_prob = 0
    for child in net._children.values():
        without_dropout(child)


def parameters_of(net: gluon.Block) -> Dict[str, gluon.Parameter]:
    """The parameters by their place in the network, which two copies of it share; not those that it does not use."""
    found: Dict[str, gluon.Parameter] = {}
    for name, parameter in net._collect_params_with_prefix().items():
        if parameter._data is not None and parameter not in found.values():
            found[name] = parameter
    return found


def build(sample: SampleModel, inputs: Sequence[mx.nd.NDArray], dtype: str, initial: Optional[Values]) -> gluon.Block:
    """The network with parameters of that type: `initial` ones, or drawn from a fixed seed."""
    mx.random.seed(7)
    np.random.seed(7)
    with mx.name.NameManager():  # the names in a SymbolBlock count the networks before it
        net = sample.network()
    without_dropout(net)
    net.cast(dtype)
    net.initialize(Start())
    with autograd.record():  # what some networks compute depends on it
        if any(p._data is None for p in net.collect_params().values()):
            finish_initialisation(net, inputs)
    if initial is not None:
        for name, parameter in parameters_of(net).items():
            value = mx.nd.array(initial[name], dtype=parameter.dtype)
            parameter.set_data(value.as_np_ndarray() if mx.util.is_np_array() else value)
    return net


def finish_initialisation(net: gluon.Block, inputs: Sequence[mx.nd.NDArray]) -> None:
    """Give deferred parameters their shapes: a block that cannot be traced whole, or does not use all, needs a run."""
    try:
        net.infer_shape(*inputs)
        for parameter in net.collect_params().values():
            parameter._finish_deferred_init()
    except (AttributeError, KeyError, NotImplementedError, TypeError):
        net(*inputs)


class Weights:
    """What outputs are multiplied by, so that the loss depends on each of their elements in its own way."""

    def __init__(self) -> None:
        self._drawn: Dict[Tuple[int, Tuple[int, ...], str], mx.nd.NDArray] = {}

    def of(self, index: int, output: mx.nd.NDArray) -> mx.nd.NDArray:
        """Normally distributed numbers for the output at a place, the same at every call."""
        key = (index, output.shape, np.dtype(output.dtype).name)
        if key not in self._drawn:
            drawn = np.random.RandomState(index).normal(size=output.shape)
            array = mx.nd.array(drawn, dtype=output.dtype)
            self._drawn[key] = array.as_np_ndarray() if isinstance(output, mx.np.ndarray) else array
        return self._drawn[key]


def loss_of(outputs: Sequence[mx.nd.NDArray], weights: Weights) -> mx.nd.NDArray:
    """The mean of each floating output's elements, weighted; all of them together."""
    terms = [(output * weights.of(index, output)).mean() for index, output in enumerate(outputs)
             if np.dtype(output.dtype).kind == "f"]
    loss = terms[0]
    for term in terms[1:]:
        loss = loss + term.astype(loss.dtype)
    return loss


def train(net: gluon.Block, inputs: Sequence[mx.nd.NDArray], learning_rate: Optional[float] = None) -> Run:
    """Train for some steps with momentum; without a learning rate one is found by :data:`MOVE`."""
    run = Run()
    weights = Weights()
    parameters = parameters_of(net)
    trainer = gluon.Trainer(list(parameters.values()), "sgd", {"learning_rate": learning_rate or 0.0, "momentum": 0.9})
    for step in range(STEPS):
        begin = time.time()
        with autograd.record():
            outputs = flat(net(*inputs))
            loss = loss_of(outputs, weights)
        loss.backward()
        if step == 0:
            gradients = {name: p.grad().asnumpy() for name, p in parameters.items() if p.grad_req != "null"}
            run.values.update({f"gradient of {name}": value for name, value in gradients.items()})
            if learning_rate is None:
                moved, size = norm(gradients.values()), norm(parameters[name].data().asnumpy() for name in gradients)
                learning_rate = MOVE * size / moved if moved else 0.1
                trainer.set_learning_rate(learning_rate)
        trainer.step(1, ignore_stale_grad=True)  # a network may not use all of its parameters
        run.values.update({f"output {index} of step {step}": o.asnumpy() for index, o in enumerate(outputs)})
        run.values[f"loss of step {step}"] = loss.asnumpy().reshape(1)
        mx.nd.waitall()
        run.seconds.append(time.time() - begin)
    run.values.update({f"parameter {name}": p.data().asnumpy() for name, p in parameters.items()})
    run.learning_rate = learning_rate
    return run


def norm(arrays: Any) -> float:
    """The Euclidean norm of some arrays together."""
    return float(np.sqrt(sum(float(np.square(array.astype("float64")).sum()) for array in arrays)))


def scales(expected: Run) -> Dict[str, float]:
    """What an error in each tensor is measured on: its Euclidean norm, or what may be neglected beside others."""
    result = {name: norm([value[np.isfinite(value)]]) for name, value in expected.values.items()}
    gradients = {name: scale for name, scale in result.items() if name.startswith("gradient of ")}
    largest = max(gradients.values(), default=0.0)
    for name, scale in gradients.items():
        if scale < VANISHING * largest:
            result[name] = VANISHING_SCALE * largest
        # A bias that starts at 0 and whose gradient vanishes stays at rounding errors.
        moved = name.replace("gradient of ", "parameter ")
        result[moved] = max(result[moved], expected.learning_rate * result[name])
    for name in result:
        if name.endswith("running_mean"):  # 0 in exact arithmetic where nothing but sums is between two BatchNorms
            variance = expected.values[name.replace("running_mean", "running_var")]
            result[name] = max(result[name], norm([np.sqrt(np.abs(variance))]))
    return result


def errors(serial: Run, found: Values) -> Dict[str, float]:
    """The relative error of every tensor, by Euclidean norms; infinite for one that is missing or of another shape."""
    expected, scale_of = serial.values, scales(serial)
    result = {}
    for name, value in expected.items():
        other = found.get(name)
        if other is None or other.shape != value.shape or not np.array_equal(np.isfinite(value), np.isfinite(other)):
            result[name] = float("inf")
            continue
        finite = np.isfinite(value)
        value, other = value[finite].astype("float64"), other[finite].astype("float64")
        scale, difference = scale_of[name], norm([other - value])
        result[name] = difference / scale if scale else (0.0 if difference == 0 else float("inf"))
    return result


def noise_ratio(serial: Run, noise: Mapping[str, float], tiled: Run) -> float:
    """By how much some tensor of the tiled run is farther from the serial run's than rounding alone brings it.

    Rounding is the noise, the largest error of other serial runs whose parameters differed in the last bits, and
    :data:`ROUNDING`.
    """
    return max(error / (noise[name] + ROUNDING) for name, error in errors(serial, tiled.values).items())


def noise_of(sample: SampleModel, inputs: Sequence[mx.nd.NDArray], dtype: str, serial: Run,
             initial: Values) -> Dict[str, float]:
    """The largest relative error of every tensor in some serial runs with other last bits."""
    noise = dict.fromkeys(serial.values, 0.0)
    for seed in range(SHAKES):
        shaken, _ = serial_run(sample, inputs, dtype, last_bits_changed(initial, seed), serial.learning_rate)
        for name, error in errors(serial, shaken.values).items():
            noise[name] = max(noise[name], error)
    return noise


def tiled_graphs(block: gluon.Block) -> Iterator[gluon_front.TiledGraph]:
    """What the network runs tiled: one graph, or several where it is no HybridBlock as a whole."""
    graph = getattr(block, "_cached_op", None)
    if isinstance(graph, gluon_front.TiledGraph):
        yield graph
    for child in block._children.values():
        yield from tiled_graphs(child)


def counts(plan: Mapping[str, Any]) -> Dict[str, int]:
    """How many operators are cut, computed alike everywhere, and computed by one device alone."""
    kinds = {"cut": 0, "replicated": 0, "whole": 0}
    for choices in plan["operators"].values():
        kind = ("cut" if any(c not in ("replicated", "owner") for c in choices)
                else "whole" if "owner" in choices else "replicated")
        kinds[kind] += 1
    return kinds


def compared(sample: SampleModel, name: str, dtype: str, devices: str, serial: Run,
             noise: Optional[Mapping[str, float]], initial: Values, inputs: Sequence[mx.nd.NDArray]) -> Dict[str, Any]:
    """Train tiled, and the row of the result."""
    net = build(sample, inputs, dtype, initial)
    net.hybridize(backend=gluon_front.BACKEND, devices=devices)
    tiled = train(net, inputs, serial.learning_rate)
    graphs = list(tiled_graphs(net))
    if not graphs:
        raise RuntimeError(f"{name} did not run tiled.")
    found = errors(serial, tiled.values)
    worst = max(found, key=lambda name: found[name])
    row: Dict[str, Any] = {
        "model": name, "devices": devices, "dtype": dtype, "worst_error": found[worst],
        "worst_tensor": worst, "seconds": min(tiled.seconds[1:]), "seconds_serial": min(serial.seconds[1:]),
        "nodes": 0, "cut": 0, "replicated": 0, "whole": 0, "without_rule": [], "bytes_moved": 0,
        "bytes_data_parallel": 0, "plan_seconds": 0.0,
    }
    if noise is not None:
        row["noise_ratio"] = noise_ratio(serial, noise, tiled)
    for graph in graphs:
        plan, described = graph.latest_plan, graph.latest_graph
        row["nodes"] += plan["nodes"]
        for kind, number in counts(plan).items():
            row[kind] += number
        row["without_rule"] += plan["whole"]
        row["bytes_moved"] += plan["bytes"]["total"]
        row["plan_seconds"] += plan["search_seconds"]
        data = core.plan(described, {"devices": plan["devices"], "strategy": "data"})
        row["bytes_data_parallel"] += data["bytes"]["total"]
    return row


def main(configuration: str) -> None:
    """Run one model and print its rows."""
    config = json.loads(configuration)
    gluon_front.install()
    mx.sym.random.uniform = evenly_spread  # R-CNN samples the regions that it learns from
    mx.sym.contrib.ROIAlign = aligned_regions
    sample = find(config["model"])
    dtype = sample.dtype or config["dtype"]
    if dtype == "float64":  # which oneDNN does not compute; MXNet hands it amp_multicast all the same, and fails
        os.environ.update(MXNET_MKLDNN_ENABLED="0", MXNET_STORAGE_FALLBACK_LOG_VERBOSE="0")  # before the first operator
    constants_of_type(dtype)
    if dtype == "float64":
        batch_norm_for_synchronised()
    inputs = of_type(sample.inputs(np.random.RandomState(3)), dtype)
    try:
        serial, initial = serial_run(sample, inputs, dtype)
    except Exception:  # whatever MXNet and the network's own code raise
        reason = zoo_models.why_untrainable(config["model"])
        if reason is None:
            raise
        for devices in config["devices"]:
            print_row({"model": config["model"], "devices": devices, "dtype": dtype, "worst_error": None,
                       "untrainable": reason})
        return
    noise = None if dtype == "float64" else noise_of(sample, inputs, dtype, serial, initial)
    for devices in config["devices"]:
        print_row(compared(sample, config["model"], dtype, devices, serial, noise, initial, inputs))


def print_row(row: Mapping[str, Any]) -> None:
    """Print a result as sweep_zoo.py reads it."""
    print("row:" + json.dumps(row), flush=True)


def last_bits_changed(values: Values, seed: int) -> Values:
    """The values, each moved by some rounding errors."""
    rng = np.random.RandomState(seed)
    return {name: (value * (1 + 4 * np.finfo(value.dtype).eps * rng.normal(size=value.shape))).astype(value.dtype)
            for name, value in values.items()}


def of_type(arrays: Sequence[mx.nd.NDArray], dtype: str) -> List[mx.nd.NDArray]:
    """The arrays, those of single precision in `dtype`."""
    return [array.astype(dtype) if np.dtype(array.dtype) == np.float32 else array for array in arrays]


def aligned_regions(data: mx.sym.Symbol, rois: mx.sym.Symbol, *args: Any, **kwargs: Any) -> mx.sym.Symbol:
    """ROIAlign that gives zeros for the regions of no image, whose index is negative.

    MXNet leaves their part of the output as it finds the memory (tests/mxnet_bugs/regions_of_no_image.py), so that
    R-CNN with feature pyramids computes with chance numbers on one device too.
    """
    image, corners = mx.sym.slice_axis(rois, axis=1, begin=0, end=1), mx.sym.slice_axis(rois, axis=1, begin=1, end=5)
    pooled = ROI_ALIGN(data, mx.sym.concat(mx.sym.relu(image), corners, dim=1), *args, **kwargs)
    return mx.sym.broadcast_mul(pooled, mx.sym.reshape(image >= 0, shape=(-1, 1, 1, 1)))


def batch_norm_for_synchronised() -> None:
    """Let BatchNorm compute what SyncBatchNorm would: it is the same on one device, and MXNet has it in float64."""
    for module in (mx.sym, mx.nd):
        def batch_norm(*args: Any, module: Any = module, ndev: int = 1, key: str = "", **kwargs: Any) -> Any:
            return module.BatchNorm(*args, **kwargs)

        module.contrib.SyncBatchNorm = batch_norm


def constants_of_type(dtype: str) -> None:
    """Let what a network's code makes in single precision be of its parameters' type: R-CNN and YOLO fix it."""
    def typed(function: Callable[..., mx.sym.Symbol]) -> Callable[..., mx.sym.Symbol]:
        def call(*args: Any, **kwargs: Any) -> mx.sym.Symbol:
            args = tuple(dtype if isinstance(arg, str) and arg == "float32" else arg for arg in args)
            if not any(isinstance(arg, str) for arg in args) and kwargs.get("dtype") in (None, "float32", np.float32):
                kwargs["dtype"] = dtype
            return function(*args, **kwargs)

        return call

    for module in (mx.sym, mx.sym.op):
        for name in TYPED:
            if hasattr(module, name):
                setattr(module, name, typed(getattr(module, name)))


def serial_run(sample: SampleModel, inputs: Sequence[mx.nd.NDArray], dtype: str, initial: Optional[Values] = None,
               learning_rate: Optional[float] = None) -> Tuple[Run, Values]:
    """Train with plain MXNet on one device; the run, and the parameters that it began with."""
    net = build(sample, inputs, dtype, initial)
    begun = {name: parameter.data().asnumpy() for name, parameter in parameters_of(net).items()}
    if not sample.imperative:
        net.hybridize()
    run = train(net, inputs, learning_rate)
    del net
    gc.collect()  # Gluon's blocks refer to themselves, and a large one's arrays would stay beside the next one's
    return run, begun


if __name__ == "__main__":
    main(sys.argv[1])
