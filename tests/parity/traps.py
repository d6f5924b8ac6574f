"""Numerical traps: small Gluon programs whose operator means something else on a part than on the whole.

    python -m tests.parity.traps OUT_FOLDER [NAME ...]

Each program trains for three steps on one device with plain MXNet, and tiled over 2, 3, 4 and 8 contexts, under the
planner's own plan and under pins that cut what must not be cut unawares: the dim that softmax normalizes, the samples
that BatchNorm averages, the rows of an embedding. Outputs, loss, every gradient, moving averages and parameters agree.

A tensor agrees when the norm of the difference is at most 1e-5 of its norm in float32, 1e-10 in float64. Half precision
is compared with single precision, and may be twice as far from it as on one device. By default every plan runs in one
element type, in turn; with SOYBEAN_MX_TEST_FULL=1 in all. OUT_FOLDER/NAME.json gets a list of what disagrees.
"""
from __future__ import annotations

import json
import os
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import mxnet as mx
import numpy as np

DEVICES = (2, 3, 4, 8)
STEPS = 3
TOLERANCE = {"float16": 1e-2, "float32": 1e-5, "float64": 1e-10}
# What a type is compared with on one device, where not with itself: half precision rounds at 5e-4.
REFERENCE = {"float16": "float32"}
BATCH = 12
# A gradient of less than this part of the network's largest is measured on that part: it may be rounding errors only.
VANISHING = 1e-3

FULL = os.environ.get("SOYBEAN_MX_TEST_FULL", "0") not in ("", "0")
BOTH, SINGLE = ("float32", "float64"), ("float32",)  # some of MXNet's operators are of single precision only

# Parameters that stay in single precision where the rest is in half.
SINGLE_PARAMETERS = ("_gamma", "_beta", "_mean", "_var")

Shape = Tuple[int, ...]
Draw = Callable[[np.random.RandomState], np.ndarray]


@dataclass(frozen=True)
class Trap:
    """A program, its data, and the plans that it is run under.

    Parameters
    ----------
    compute : callable
        ``compute(F, *inputs, **parameters)``; gives one output or several. Names of operators are what pins match.
    inputs : sequence of callable
        Draw the inputs; those of real numbers are cast to the run's type and get a gradient.
    parameters : mapping of str to tuple of int
        Shapes. The names of moving statistics begin with ``running``.
    forced : sequence of dict
        Pins (soybean_mx/pins.py), each a plan that is tried.
    dtypes : sequence of str
        The element types that it runs in, in turn.
    options : dict
        More for ``hybridize``.
    loss_scale : float
        What the loss is multiplied with; the trainer divides by it.
    evaluated : bool
        Whether it is called outside of training between the steps, which must not change anything.
    numpy : bool
        Whether it is written with NumPy's operators and shapes.
    """

    compute: Callable[..., Any]
    inputs: Sequence[Draw]
    parameters: Mapping[str, Shape]
    forced: Sequence[Mapping[str, Any]] = ()
    dtypes: Sequence[str] = BOTH
    options: Mapping[str, Any] = field(default_factory=dict)
    loss_scale: float = 1.0
    evaluated: bool = False
    numpy: bool = False


def real(*shape: int, scale: float = 1.0) -> Draw:
    """Normally distributed numbers."""
    return lambda rs: rs.normal(size=shape) * scale


def integers(high: int, *shape: int, low: int = 0, dtype: str = "float32") -> Draw:
    """Whole numbers of ``low`` to ``high`` - 1; they get no gradient, and keep their type."""
    return lambda rs: rs.randint(low, high, shape).astype(dtype)


@dataclass(frozen=True)
class Label:
    """Numbers of the run's type that get no gradient."""

    draw: Draw

    def __call__(self, rs: np.random.RandomState) -> np.ndarray:
        return self.draw(rs).astype("float64")


class Program(mx.gluon.HybridBlock):
    """The block of a trap."""

    def __init__(self, trap: Trap) -> None:
        super().__init__(prefix="trap_")
        self._compute = trap.compute
        with self.name_scope():
            for name, shape in trap.parameters.items():
                moving = name.startswith("running")
                setattr(self, name, self.params.get(name, shape=shape, grad_req="null" if moving else "write"))

    def hybrid_forward(self, F, *inputs, **parameters):
        """Compute the trap's outputs."""
        return self._compute(F, *inputs, **parameters)


@mx.util.use_np
class NumpyProgram(Program):
    """The block of a trap that is written with NumPy's operators and shapes."""


class Start(mx.init.Initializer):
    """Draws every parameter from a generator that its name seeds."""

    def __call__(self, desc, arr) -> None:
        rs = np.random.RandomState(zlib.crc32(str(desc).encode()) % 2**31)
        low, high = (0.7, 1.3) if str(desc).endswith(("gamma", "var")) else (-0.6, 0.6)
        arr[:] = rs.uniform(low, high, arr.shape).astype(arr.dtype)


def as_list(outputs) -> List[mx.nd.NDArray]:
    """Return the outputs of a block as a list."""
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def batches(trap: Trap, dtype: str) -> Iterator[List[mx.nd.NDArray]]:
    """Yield the inputs of every step."""
    for step in range(STEPS):
        drawn = [np.asarray(draw(np.random.RandomState(100 * step + i))) for i, draw in enumerate(trap.inputs)]
        cast = [v.astype(dtype) if v.dtype == "float64" else v for v in drawn]
        arrays = [mx.nd.array(v, dtype=v.dtype) for v in cast]
        for draw, value, array in zip(trap.inputs, drawn, arrays):
            if value.dtype == "float64" and not isinstance(draw, Label):
                array.attach_grad()
        yield arrays


def train(trap: Trap, dtype: str, **tiled: Any) -> Dict[str, np.ndarray]:
    """Train; return everything that is compared, by name. ``tiled``: what ``hybridize`` is asked for."""
    with mx.util.np_shape(trap.numpy), mx.util.np_array(trap.numpy):
        return _train(trap, dtype, tiled)


def _train(trap: Trap, dtype: str, tiled: Mapping[str, Any]) -> Dict[str, np.ndarray]:
    net = (NumpyProgram if trap.numpy else Program)(trap)
    net.initialize(Start())
    net.cast(dtype)
    for parameter in net.collect_params().values():
        if dtype == "float16" and parameter.name.endswith(SINGLE_PARAMETERS):
            parameter.cast("float32")
    net.hybridize(**tiled)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
    found: Dict[str, np.ndarray] = {}
    for step, inputs in enumerate(batches(trap, dtype)):
        given = [array.as_np_ndarray() if trap.numpy else array for array in inputs]
        with mx.autograd.record():
            outputs = [output.as_nd_ndarray() for output in as_list(net(*given))]
            loss = weighted_sum(outputs, dtype) * trap.loss_scale
        loss.backward()
        found[f"loss {step}"] = loss.asnumpy()
        found.update({f"output {k} of step {step}": v.asnumpy() for k, v in enumerate(outputs)})
        found.update({f"gradient of input {k} of step {step}": v.grad.asnumpy()
                      for k, v in enumerate(inputs) if v.grad is not None})
        parameters = {n: p for n, p in net.collect_params().items() if p.grad_req != "null"}
        found.update({f"gradient of {n} of step {step}": p.grad().asnumpy() for n, p in parameters.items()})
        if trap.evaluated:
            found.update({f"evaluation {k} of step {step}": v.asnumpy() for k, v in enumerate(as_list(net(*given)))})
        trainer.step(BATCH * trap.loss_scale)
    found.update({f"parameter {n}": p.data().asnumpy() for n, p in net.collect_params().items()})
    return found


def weighted_sum(outputs: Sequence[mx.nd.NDArray], dtype: str) -> mx.nd.NDArray:
    """A loss whose gradient differs from element to element."""
    loss = mx.nd.zeros(1, dtype=dtype)
    for k, output in enumerate(outputs):
        weights = np.random.RandomState(k).uniform(0.5, 1.5, output.shape)
        loss = loss + (output.astype(dtype) * mx.nd.array(weights, dtype=dtype)).sum()
    return loss


def errors(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> Dict[str, float]:
    """Return, for every tensor, the norm of the difference relative to its norm; NaN where there is none such."""
    norms = {n: float(np.linalg.norm(v.astype("float64"))) for n, v in expected.items()}
    largest = max([norm for n, norm in norms.items() if n.startswith("gradient")], default=0.0)
    result = {}
    for name, value in expected.items():
        other = found.get(name)
        if other is None or other.shape != value.shape:
            result[name] = float("nan")
            continue
        scale = max(norms[name], VANISHING * largest if name.startswith("gradient") else 0.0, 1e-30)
        result[name] = float(np.linalg.norm(other.astype("float64") - value.astype("float64"))) / scale
    return result


class Run(NamedTuple):
    """A tiled run of a trap: its element type, number of contexts, and what ``hybridize`` is asked for beside these."""

    dtype: str
    devices: int
    options: Mapping[str, Any]

    def __str__(self) -> str:
        plan = f"pins {self.options['pins']}" if "pins" in self.options else "the planner's plan"
        return f"{self.dtype}, {self.devices} contexts, {plan}"


def runs(trap: Trap, everything: bool) -> List[Run]:
    """Return the runs of a trap: every plan on every number of devices, in every element type or in one of them."""
    plans = [dict(trap.options), *({**trap.options, "pins": dict(pins)} for pins in trap.forced)]
    result = []
    for i, devices in enumerate(DEVICES):
        for k, options in enumerate(plans):
            turn = trap.dtypes[(i + k) % len(trap.dtypes)]
            result += [Run(dtype, devices, options) for dtype in (trap.dtypes if everything else [turn])]
    return result


def check(name: str, everything: bool) -> Tuple[int, List[str]]:
    """Run a trap under its plans; return how many runs there were, and a line for each tensor that disagrees."""
    trap = TRAPS[name]
    expected = {dtype: train(trap, REFERENCE.get(dtype, dtype)) for dtype in trap.dtypes}
    # How far one device is from what it is compared with.
    floor = {dtype: errors(expected[dtype], train(trap, dtype)) for dtype in trap.dtypes if dtype in REFERENCE}
    problems = []
    chosen = runs(trap, everything)
    for run in chosen:
        print(f"{name}, {run}", file=sys.stderr, flush=True)
        found = train(trap, run.dtype, backend="soybean_mx", devices=f"cpu:{run.devices}", **run.options)
        allowed = {n: max(TOLERANCE[run.dtype], 2 * e) for n, e in floor.get(run.dtype, {}).items()}
        beyond = {n: e for n, e in errors(expected[run.dtype], found).items()
                  if not e <= allowed.get(n, TOLERANCE[run.dtype])}
        problems += [f"{name}, {run}: {n}: {e:.3g}" for n, e in list(beyond.items())[:3]]
    return len(chosen), problems


# ---- normalization


def _images(*shape: int) -> List[Draw]:
    return [real(*shape)]


NORM_PARAMETERS = {"gamma": (16,), "beta": (16,), "running_mean": (16,), "running_var": (16,)}


def batch_norm(twice: bool = False, options: Mapping[str, Any] = MappingProxyType({}), **attrs: Any) -> Trap:
    """A convolution and BatchNorm, cut along the samples, the channels, and the image's rows."""
    def compute(F, x, w, gamma, beta, running_mean, running_var):
        h = F.Convolution(x, w, kernel=(3, 3), pad=(1, 1), num_filter=16, no_bias=True, name="h")
        y = F.BatchNorm(h, gamma, beta, running_mean, running_var, name="y", eps=1e-3, momentum=0.9, **attrs)
        if twice:
            y = F.BatchNorm(F.tanh(y, name="between"), gamma, beta, running_mean, running_var, name="again",
                            eps=1e-3, momentum=0.9, **attrs)
        return F.sigmoid(y, name="out")

    return Trap(compute, _images(BATCH, 3, 8, 5), {"w": (16, 3, 3, 3), **NORM_PARAMETERS},
                [{"*_h": f"split {d}", "*_out": f"split {d}"} for d in (0, 1, 2)], evaluated=True, options=options)


def layer_norm(axis: int) -> Trap:
    """LayerNorm over a dim along which its input and output rest cut."""
    shape = (BATCH, 16, 8)
    width = shape[axis]

    def compute(F, x, w, gamma, beta):
        h = F.FullyConnected(x, w, num_hidden=8, no_bias=True, flatten=False, name="h")
        return F.tanh(F.LayerNorm(h, gamma, beta, axis=axis, eps=1e-3, name="y"), name="out")

    return Trap(compute, [real(*shape[:2], 6)], {"w": (8, 6), "gamma": (width,), "beta": (width,)},
                [{"*_h": f"split {axis % 3}", "*_out": f"split {axis % 3}", "*gamma": "split 0"}])


def image_norm(op: str, dim: int, parameters: int, **attrs: Any) -> Trap:
    """GroupNorm or InstanceNorm over images whose rows, or channels, rest cut."""
    def compute(F, x, w, gamma, beta):
        h = F.Convolution(x, w, kernel=(1, 1), num_filter=16, no_bias=True, name="h")
        return F.tanh(getattr(F, op)(h, gamma, beta, eps=1e-3, name="y", **attrs), name="out")

    return Trap(compute, _images(4, 3, 8, 9), {"w": (16, 3, 1, 1), "gamma": (parameters,), "beta": (parameters,)},
                [{"*_h": f"split {dim}", "*_out": f"split {dim}"}], SINGLE if op == "InstanceNorm" else BOTH)


def l2_normalization(mode: str, dim: int) -> Trap:
    """L2Normalization over a dim that rests cut."""
    def compute(F, x, w):
        h = F.Convolution(x, w, kernel=(1, 1), num_filter=16, no_bias=True, name="h")
        return F.tanh(F.L2Normalization(h, mode=mode, name="y") * 3, name="out")

    return Trap(compute, _images(4, 3, 8, 9), {"w": (16, 3, 1, 1)}, [{"*_h": f"split {dim}", "*_out": f"split {dim}"}])


# ---- along a dim


def along(apply: Callable[..., Any], dim: int = 1, out: str = "", dtypes: Sequence[str] = BOTH) -> Trap:
    """An operator along a dim of [n, c, t] that its input rests cut along."""
    def compute(F, x, w):
        h = F.FullyConnected(x, w, num_hidden=16, no_bias=True, flatten=False, name="f")
        h = F.transpose(h, axes=(0, 2, 1), name="h")
        return apply(F, h)

    pins = {"*_h": f"split {dim}"}
    if out:
        pins["*_y"] = out
    return Trap(compute, [real(BATCH, 8, 6, scale=2.0)], {"w": (16, 6)}, [pins], dtypes)


def softmax_cross_entropy_loss() -> Trap:
    """Gluon's loss over classes that are cut: log_softmax and pick."""
    def compute(F, x, label, w, b):
        scores = F.FullyConnected(x, w, b, num_hidden=24, name="scores")
        log = F.log_softmax(scores, axis=-1, name="log")
        return F.negative(F.pick(log, label, axis=-1, keepdims=True, name="picked"))

    return Trap(compute, [real(BATCH, 6), integers(24, BATCH)], {"w": (24, 6), "b": (24,)},
                [{"*_w": "split 0", "*_scores": "split 1", "*_log": "split 1"}])


# ---- pooling


def pooling(**attrs: Any) -> Trap:
    """Pooling over images whose rows rest cut."""
    def compute(F, x, w):
        h = F.Convolution(x, w, kernel=(3, 3), pad=(1, 1), num_filter=8, no_bias=True, name="h")
        return F.tanh(F.Pooling(h, name="y", **attrs), name="out")

    return Trap(compute, _images(4, 3, 19, 18), {"w": (8, 3, 3, 3)},
                [{"*_h": "split 2", "*_out": "split 2"}, {"*_h": "split 3"}, {"*_h": "split 1", "*_out": "split 1"}])


# ---- operators that send back a gradient of their own


def own_gradient(apply: Callable[..., Any], label: Label, forced: Sequence[int] = (0, 1)) -> Trap:
    """A loss operator behind a layer, which ignores the gradient that it is given, and a second use of the scores."""
    def compute(F, x, label, w, b):
        scores = F.FullyConnected(x, w, b, num_hidden=8, name="scores")
        return apply(F, scores, label), F.tanh(scores, name="out")

    return Trap(compute, [real(BATCH, 6), label], {"w": (8, 6), "b": (8,)},
                [{"*_scores": f"split {d}", "*_out": f"split {d}"} for d in forced])


def pixel_labels(**attrs: Any) -> Trap:
    """SoftmaxOutput over the channels of images."""
    def compute(F, x, label, w):
        scores = F.Convolution(x, w, kernel=(1, 1), num_filter=8, no_bias=True, name="scores")
        return F.SoftmaxOutput(scores, label, multi_output=True, name="y", **attrs)

    return Trap(compute, [real(BATCH, 3, 4, 8), Label(integers(8, BATCH, 4, 8))], {"w": (8, 3, 1, 1)},
                [{"*_scores": "split 1"}, {"*_scores": "split 0"}, {"*_scores": "split 3"}])


# ---- indices


def embedding(dtype: str) -> Trap:
    """Rows that are cut, picked by indices of which some are out of range and some come twice."""
    def compute(F, index, w, v):
        rows = F.Embedding(index, w, input_dim=24, output_dim=8, name="rows")
        return F.FullyConnected(F.tanh(rows), v, num_hidden=6, no_bias=True, flatten=False)

    low = 0 if dtype.startswith("u") else -3
    return Trap(compute, [integers(27, BATCH, 5, low=low, dtype=dtype)], {"w": (24, 8), "v": (6, 8)},
                [{"*_w": "split 0", "*_rows": "v"}, {"*_w": "split 1", "*_rows": "o"}])


def take(axis: int, mode: str) -> Trap:
    """`take` along a dim that is cut."""
    def compute(F, x, index, w):
        h = F.FullyConnected(x, w, num_hidden=16, no_bias=True, flatten=False, name="h")
        return F.tanh(F.take(h, index, axis=axis, mode=mode, name="y"))

    return Trap(compute, [real(BATCH, 8, 6), integers(30, 4, 3, low=-9, dtype="int32")], {"w": (16, 6)},
                [{"*_h": f"split {axis}"}])


def gathering() -> Trap:
    """`gather_nd`, `scatter_nd`, `pick` and `one_hot` over dims that are cut."""
    def compute(F, x, places, choice, w):
        h = F.FullyConnected(x, w, num_hidden=16, no_bias=True, name="h")
        gathered = F.gather_nd(h, places, name="gathered")
        scattered = F.scatter_nd(gathered, places, shape=(BATCH, 16), name="scattered")
        hot = F.one_hot(choice, depth=16, dtype="float32", name="hot")
        return (F.tanh(gathered), scattered * 2, F.pick(h, choice, axis=1), F.pick(h, choice, axis=1, mode="wrap"), hot)

    def places(rs):
        chosen = rs.permutation(BATCH * 16)[:10]
        return np.stack([chosen // 16, chosen % 16]).astype("float32")

    return Trap(compute, [real(BATCH, 6), places, integers(16, BATCH)], {"w": (16, 6)},
                [{"*_h": "split 1"}, {"*_h": "split 0"}])


def where(form: str) -> Trap:
    """`where` on conditions of which some rest cut otherwise than what is chosen from."""
    def compute(F, x, condition, w, v):
        a = F.FullyConnected(x, w, num_hidden=16, no_bias=True, name="a")
        b = F.FullyConnected(x, v, num_hidden=16, no_bias=True, name="b")
        mask = {"elements": F.broadcast_greater(a, F.mean(b, axis=1, keepdims=True)), "given": condition,
                "rows": F.slice_axis(condition, axis=1, begin=0, end=1).reshape((-1,))}[form]
        # NaN and infinity that are not chosen must not reach the gradient of what is.
        return F.tanh(F.where(mask, a, b * b, name="y"))

    return Trap(compute, [real(BATCH, 6), integers(2, BATCH, 16)], {"w": (16, 6), "v": (16, 6)},
                [{"*_a": "split 1", "*_b": "split 0"}, {"*_a": "split 0", "*_b": "split 1", "*_y": "split 1"}])


# ---- shapes


def reshapes() -> Trap:
    """Every special code of `Reshape`, with dims that are cut before and behind."""
    def compute(F, x, w):
        h = F.FullyConnected(x, w, num_hidden=16, no_bias=True, flatten=False, name="h")
        return [F.tanh(y) for y in (
            F.reshape(h, shape=(0, -1), name="rows"), F.reshape(h, shape=(-1, 0), reverse=True, name="columns"),
            F.reshape(h, shape=(-1,), name="flat"), F.reshape(h, shape=(0, -4, 2, -1, 0), name="apart"),
            F.reshape(h, shape=(-3, 0), name="merged"), F.reshape(h, shape=(0, -2), name="rest"),
            F.reshape(h, shape=(0, 0, -4, -1, 2), name="pairs"), F.reshape(h, shape=(-1, 4), name="odd"),
            F.Flatten(h), F.expand_dims(h, axis=1), F.swapaxes(h, 0, 2))]

    return Trap(compute, [real(BATCH, 8, 6)], {"w": (16, 6)}, [{"*_h": f"split {d}"} for d in range(3)])


def aliases() -> Trap:
    """Outputs that share memory with inputs, parameters and each other, and operators that run in place."""
    def compute(F, x, w, b):
        h = F.FullyConnected(x, w, num_hidden=16, no_bias=True, name="h")
        flat = F.reshape(h, shape=(-1,), name="flat")
        in_place = F.relu(F.sigmoid(h * 2 + 1) - 0.5)
        return [h, h, flat, F.reshape(flat, shape=(-1, 16)), F.identity(h), F.BlockGrad(h), F.Flatten(h), x,
                F.identity(x), F.broadcast_add(in_place, F.reshape(b, shape=(1, 16))), in_place, b]

    return Trap(compute, [real(BATCH, 6)], {"w": (16, 6), "b": (16,)}, [{"*_h": "split 1"}, {"*_h": "split 0"}])


def integer_arithmetic(dtype: str) -> Trap:
    """Whole numbers that are computed with, added up over a cut dim, and cast."""
    def compute(F, count, x, w):
        h = F.FullyConnected(x, w, num_hidden=16, no_bias=True, name="h")
        weight = F.cast(count * 2 + 1, dtype="float32")
        total = F.sum(F.cast(count, dtype="int64"), axis=1, keepdims=True, name="total")
        mean = F.cast(total, dtype="float32")
        scaled = F.broadcast_mul(F.cast(h, dtype="float32") * weight, F.rsqrt(mean + 1))
        return scaled, total, F.sum(F.cast(count, dtype="int32"), name="all")

    return Trap(compute, [integers(9, BATCH, 16, dtype=dtype), real(BATCH, 6)], {"w": (16, 6)},
                [{"*_h": "split 1"}, {"*_h": "split 0"}], SINGLE)


# ---- gradients that stop, and scales


def stopped() -> Trap:
    """`BlockGrad`, `stop_gradient` and `make_loss` beside paths that go on; a parameter behind a stop only."""
    def compute(F, x, w, v, u):
        h = F.FullyConnected(x, w, num_hidden=16, no_bias=True, name="h")
        held = F.BlockGrad(h, name="held")
        behind = F.stop_gradient(F.FullyConnected(x, v, num_hidden=16, no_bias=True, name="behind"))
        norm = F.norm(held, axis=1, keepdims=True)
        both = F.FullyConnected(F.broadcast_div(h, norm), u, num_hidden=16, no_bias=True, name="both")
        return both * held, behind * h, F.make_loss(F.mean(F.square(h - held + 1), axis=1), name="loss")

    return Trap(compute, [real(BATCH, 6)], {"w": (16, 6), "v": (16, 6), "u": (16, 16)},
                [{"*_h": "split 1", "*_held": "split 0", "*_both": "split 1"}, {"*_h": "split 0", "*_held": "split 1"}])


def scaled_loss(scale: float) -> Trap:
    """A loss that is multiplied before the backward pass, and divided in the update."""
    def compute(F, x, label, w, b):
        scores = F.FullyConnected(x, w, b, num_hidden=16, name="scores")
        log = F.log_softmax(scores, axis=-1, name="log")
        return F.negative(F.pick(log, label, axis=-1, keepdims=True))

    return Trap(compute, [real(BATCH, 6), integers(16, BATCH)], {"w": (16, 6), "b": (16,)},
                [{"*_scores": "split 1", "*_log": "split 1"}], loss_scale=scale)


def _softmax(name: str, **attrs: Any) -> Callable[..., Any]:
    return lambda F, h: F.tanh(getattr(F, name)(h, name="y", **attrs) * 0.5, name="out")


CLASS, TARGET = Label(integers(8, BATCH)), Label(real(BATCH, 8))

def half() -> Trap:
    """Half precision where reductions are in single: sums, averages, norms, softmax, LayerNorm and BatchNorm."""
    def compute(F, x, w, scale, shift, gamma, beta, running_mean, running_var):
        h = F.broadcast_mul(x, w, name="h")
        return (F.sum(h, axis=1, name="total"), F.mean(h * h, axis=1, keepdims=True),
                F.sum(h * h, axis=0), F.mean(F.relu(h)), F.softmax(h, axis=1, name="soft"),
                F.log_softmax(h, axis=1, name="log"), F.norm(h, axis=1),
                F.LayerNorm(h, scale, shift, name="layer"),
                F.BatchNorm(h, gamma, beta, running_mean, running_var, fix_gamma=False, name="batch"))

    vectors = {n: (480,) for n in ("scale", "shift", "gamma", "beta", "running_mean", "running_var")}
    return Trap(compute, [real(BATCH, 480)], {"w": (1, 480), **vectors},
                [{"*_h": "split 1", "*_soft": "split 1", "*_layer": "split 1", "*_batch": "split 1"},
                 {"*_h": "split 0", "*_total": "split 0", "*_batch": "split 0"}], ("float16",))


def numpy_shapes() -> Trap:
    """NumPy's reshape with unknown and copied dims, tensors without dims, and an index beyond the last."""
    def compute(F, x, w):
        h = F.npx.fully_connected(x, w, num_hidden=16, no_bias=True, flatten=False, name="h")
        return (F.np.reshape(h, (BATCH, -1)), F.np.reshape(h, (-1,)), F.npx.reshape(h, (-2, -1)),
                F.npx.reshape(h, (-5, -4)), F.npx.reshape(h, (-2, -6, 2, -1, -4)), F.np.sum(h), F.np.max(h, axis=1),
                F.np.mean(h, axis=(0, 2)), F.np.squeeze(F.np.expand_dims(h, 1), 1), F.np.swapaxes(h, 0, 2))

    return Trap(compute, [real(BATCH, 8, 6)], {"w": (16, 6)}, [{"*_h": f"split {d}"} for d in range(3)], numpy=True)


def control_flow() -> Trap:
    """`foreach`, which is computed whole on one device, between layers that are cut."""
    def compute(F, x, w, v):
        h = F.FullyConnected(x, w, num_hidden=16, no_bias=True, flatten=False, name="h")
        steps, last = F.contrib.foreach(lambda y, state: (F.tanh(y + state), F.tanh(y + state) * 0.5),
                                        F.swapaxes(h, 0, 1), F.sum(h, axis=1))
        return F.FullyConnected(F.swapaxes(steps, 0, 1), v, num_hidden=8, no_bias=True, flatten=False), last

    return Trap(compute, [real(BATCH, 4, 6)], {"w": (16, 6), "v": (8, 16)}, [{"*_h": "split 2"}])


TRAPS: Dict[str, Trap] = {
    **{f"batch_norm_{'given' if given else 'batch'}_{'fixed' if fixed else 'free'}":
       batch_norm(use_global_stats=given, fix_gamma=fixed) for given in (False, True) for fixed in (False, True)},
    "batch_norm_twice": batch_norm(twice=True, fix_gamma=False),
    "batch_norm_recomputed": batch_norm(options={"recompute": True}, fix_gamma=False),
    "batch_norm_last_axis": Trap(
        lambda F, x, w, gamma, beta, running_mean, running_var: F.BatchNorm(
            F.FullyConnected(x, w, num_hidden=16, no_bias=True, flatten=False, name="h"), gamma, beta, running_mean,
            running_var, axis=-1, fix_gamma=False, eps=1e-3, name="y"),
        [real(BATCH, 8, 6)], {"w": (16, 6), **NORM_PARAMETERS},
        [{"*_h": f"split {d}", "*_y": f"split {d}"} for d in range(3)]),
    "layer_norm_last": layer_norm(-1),
    "layer_norm_inner": layer_norm(1),
    "group_norm_groups": image_norm("GroupNorm", 1, 8, num_groups=8),
    "group_norm_channels": image_norm("GroupNorm", 1, 1, num_groups=1),
    "group_norm_rows": image_norm("GroupNorm", 2, 4, num_groups=4),
    "instance_norm_rows": image_norm("InstanceNorm", 2, 16),
    "instance_norm_columns": image_norm("InstanceNorm", 3, 16),
    "l2_channel": l2_normalization("channel", 1),
    "l2_spatial": l2_normalization("spatial", 2),
    "l2_instance": l2_normalization("instance", 1),
    "softmax": along(_softmax("softmax", axis=1), out="split 1"),
    "softmax_temperature": along(_softmax("softmax", axis=1, temperature=0.3), out="split 1"),
    "log_softmax": along(_softmax("log_softmax", axis=1), out="split 1"),
    "softmin": along(_softmax("softmin", axis=1), out="split 1"),
    "softmax_activation": along(_softmax("SoftmaxActivation", mode="channel"), out="split 1", dtypes=SINGLE),
    "softmax_activation_instance": along(_softmax("SoftmaxActivation"), dim=2, out="split 2", dtypes=SINGLE),
    "softmax_cross_entropy_loss": softmax_cross_entropy_loss(),
    "extremes": along(lambda F, h: (F.max(h, axis=1), F.min(h, axis=1, keepdims=True), F.argmax(h, axis=1),
                                    F.argmin(h, axis=1), F.norm(h, axis=1), F.prod(h * 0.1 + 1, axis=1), F.max(h))),
    "sorted": along(lambda F, h: (F.sort(h, axis=1, name="y"), F.argsort(h, axis=1), F.sort(h, axis=1, is_ascend=False),
                                  F.topk(h, axis=1, k=3, ret_typ="value"), F.topk(h, axis=1, k=3),
                                  F.topk(h, axis=1, k=2, ret_typ="mask"), *F.topk(h, axis=1, k=2, ret_typ="both")),
                    out="split 1"),
    "averaged_over": along(
        lambda F, h: (F.mean(h, axis=1), F.sum(h, axis=(1, 2)), F.mean(h), F.nansum(h, axis=1),
                      F.broadcast_sub(h, F.mean(h, axis=1, keepdims=True), name="y")), out="split 1"),
    "pool_average_without_padding": pooling(pool_type="avg", kernel=(3, 3), stride=(2, 2), pad=(1, 1),
                                            count_include_pad=False),
    "pool_average_with_padding": pooling(pool_type="avg", kernel=(3, 3), stride=(2, 2), pad=(1, 1),
                                         count_include_pad=True),
    "pool_average_ceiled": pooling(pool_type="avg", kernel=(3, 2), stride=(2, 2), pad=(1, 0),
                                   pooling_convention="full", count_include_pad=False),
    "pool_average_ceiled_with_padding": pooling(pool_type="avg", kernel=(3, 2), stride=(2, 2), pad=(1, 0),
                                                pooling_convention="full"),
    "pool_max_ceiled": pooling(pool_type="max", kernel=(2, 3), stride=(2, 2), pooling_convention="full"),
    "pool_lp": pooling(pool_type="lp", p_value=2, kernel=(3, 3), stride=(1, 2), pad=(1, 1)),
    "softmax_output": own_gradient(lambda F, s, y: F.SoftmaxOutput(s, y, name="y", grad_scale=0.7), CLASS),
    "softmax_output_batch": own_gradient(
        lambda F, s, y: F.SoftmaxOutput(s, y, name="y", normalization="batch", smooth_alpha=0.1), CLASS),
    "softmax_output_valid": own_gradient(
        lambda F, s, y: F.SoftmaxOutput(s, y, name="y", normalization="valid", use_ignore=True, ignore_label=2),
        CLASS),
    "softmax_output_head": own_gradient(lambda F, s, y: F.SoftmaxOutput(s, y, name="y", out_grad=True),
                                        CLASS),
    "softmax_output_pixels": pixel_labels(),
    "softmax_output_pixels_valid": pixel_labels(normalization="valid", use_ignore=True, ignore_label=1),
    "linear_regression": own_gradient(lambda F, s, y: F.LinearRegressionOutput(s, y, name="y"), TARGET),
    "logistic_regression": own_gradient(lambda F, s, y: F.LogisticRegressionOutput(s, y, name="y", grad_scale=2),
                                        TARGET),
    "absolute_regression": own_gradient(lambda F, s, y: F.MAERegressionOutput(s, y, name="y"), TARGET),
    "svm": own_gradient(lambda F, s, y: F.SVMOutput(s, y, name="y", margin=0.5), CLASS),
    "made_loss": own_gradient(lambda F, s, y: F.MakeLoss(F.square(s - y), name="y", grad_scale=0.3), TARGET),
    "made_loss_batch": own_gradient(lambda F, s, y: F.MakeLoss(F.square(s - y), name="y", normalization="batch"),
                                    TARGET),
    "made_loss_valid": own_gradient(
        lambda F, s, y: F.MakeLoss(F.relu(s - y), name="y", normalization="valid", valid_thresh=0.1), TARGET),
    "cross_entropy": own_gradient(lambda F, s, y: F.softmax_cross_entropy(s, y, name="y"), CLASS),
    **{f"embedding_{dtype}": embedding(dtype) for dtype in ("float32", "int32", "int64", "uint8", "int8")},
    "take_clip": take(1, "clip"),
    "take_wrap": take(2, "wrap"),
    "gathering": gathering(),
    **{f"where_{form}": where(form) for form in ("elements", "given", "rows")},
    "reshapes": reshapes(),
    "aliases": aliases(),
    **{f"integers_{dtype}": integer_arithmetic(dtype) for dtype in ("int32", "int64", "int8", "uint8")},
    "stopped": stopped(),
    "scaled_loss": scaled_loss(1024.0),
    "half": half(),
    "numpy_shapes": numpy_shapes(),
    "control_flow": control_flow(),
}


def main(arguments: Sequence[str]) -> int:
    """Check the traps of these names, or all; the exit status is 1 where something disagrees."""
    import soybean_mx.gluon_front

    soybean_mx.gluon_front.install()
    folder, names = Path(arguments[0]), arguments[1:]
    status = 0
    for name in names or TRAPS:
        count, problems = check(name, FULL)
        print("\n".join([f"{name}: {count} runs, {len(problems)} disagreements", *problems[:40]]), flush=True)
        (folder / f"{name}.json").write_text(json.dumps(problems))
        status = max(status, int(bool(problems)))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
