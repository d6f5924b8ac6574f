"""Random serial programs of the supported operators, legal by construction and reproducible from one integer.

A program of size k + 1 is the program of size k with one more operator (same seed), so that a failure shrinks by
lowering the size. Dims are small and uneven (1 to 13), so that tiles differ in length and often have length 1.

Two mathematically equal numbers may differ in the last bit on one device and not on another, so nothing may depend on
which of them is larger: an operator that chooses (max pooling, maximum, sort) first gets fresh noise added to its
operand.
"""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

Shape = Tuple[int, ...]

MAX_ELEMENTS = 4000  # of one tensor
DIMS = (1, 2, 2, 3, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 10, 11, 12, 13)


@dataclass(frozen=True)
class Variable:
    """An input, parameter or auxiliary state of a serial program, with its value."""

    role: str  # "input", "parameter" or "auxiliary"
    requires_grad: bool
    value: np.ndarray


@dataclass(frozen=True)
class Program:
    """A serial program: what a user's network computes on one device."""

    symbol: mx.sym.Symbol
    variables: Dict[str, Variable]
    training: bool
    dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return np.dtype(self.dtype).itemsize


@dataclass(frozen=True, eq=False)  # symbols cannot be compared
class Tensor:
    """A tensor of the graph that is being drawn."""

    symbol: mx.sym.Symbol
    shape: Shape


@dataclass
class GraphBuilder:
    """The graph drawn so far.

    Parameters
    ----------
    rs : numpy.random.RandomState
        Draws everything.
    dtype : str
        Of every tensor.
    noise : float
        When not 0, every computed tensor is multiplied by 1 + noise * u, with u uniform in [-1, 1]: the program as a
        machine with coarser rounding would run it. Draws nothing from `rs`, so the graph is the same.
    """

    rs: np.random.RandomState
    dtype: str
    noise: float = 0.0
    tensors: List[Tensor] = field(default_factory=list)
    variables: Dict[str, Variable] = field(default_factory=dict)
    shared: List[Tuple[str, Tensor]] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.noise_rs = np.random.RandomState(self.rs.randint(2**31))

    # -- drawing -----------------------------------------------------------------------------------------------------
    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return bool(self.rs.rand() < probability)

    def pick(self, items: Sequence):
        """Return one of the items."""
        return items[self.rs.randint(len(items))]

    def dim(self, limit: int = 13) -> int:
        """Return a dim of at most `limit`."""
        return min(self.pick(DIMS), max(1, limit))

    def divisor(self, n: int) -> int:
        """Return a divisor of n."""
        return self.pick([d for d in range(1, n + 1) if n % d == 0])

    def tensor(self, *ndims: int) -> Optional[Tensor]:
        """Return an earlier tensor with one of these numbers of dims (any when none is given), or None."""
        fitting = [t for t in self.tensors if not ndims or len(t.shape) in ndims]
        if not fitting:
            return None
        recent = fitting[-3:]  # mostly deep graphs, sometimes a long skip
        return self.pick(recent if self.chance(0.7) else fitting)

    def like(self, shape: Shape) -> Tensor:
        """Return a tensor of this shape: an earlier one, a parameter or an input."""
        fitting = [t for t in self.tensors if t.shape == tuple(shape)]
        if fitting and self.chance(0.6):
            return self.pick(fitting)
        return self.parameter(shape) if self.chance(0.6) else self.input(shape)

    # -- adding to the graph -----------------------------------------------------------------------------------------
    def input(self, shape: Shape, value: Optional[np.ndarray] = None, differentiable: bool = True) -> Tensor:
        """Add an input; with `differentiable` sometimes one that requires a gradient."""
        wants = self.chance(0.4) and differentiable
        return self._variable("x", "input", shape, wants, value)

    def parameter(self, shape: Shape, scale: float = 1.0, offset: float = 0.0, exclusive: bool = False) -> Tensor:
        """Add a parameter, or sometimes use one again that has this shape and range, unless it must be `exclusive`."""
        key = f"{tuple(shape)} {scale:.6f} {offset}"
        fitting = [t for k, t in self.shared if k == key]
        if fitting and not exclusive and self.chance(0.25):
            return self.pick(fitting)
        value = offset + scale * self.rs.uniform(-1, 1, shape)
        tensor = self._variable("w", "parameter", shape, self.chance(0.85), value)
        if not exclusive:
            self.shared.append((key, tensor))
        return tensor

    def auxiliary(self, shape: Shape, low: float, high: float) -> Tensor:
        """Add an auxiliary state."""
        return self._variable("s", "auxiliary", shape, False, self.rs.uniform(low, high, shape))

    def _variable(self, letter: str, role: str, shape: Shape, wants: bool, value: Optional[np.ndarray]) -> Tensor:
        self.count += 1
        name = f"{letter}{self.count}"
        if value is None:
            value = self.rs.uniform(-1, 1, shape)
        self.variables[name] = Variable(role, wants, np.asarray(value, self.dtype))
        return Tensor(mx.sym.Variable(name), tuple(shape))

    def apply(self, op: str, inputs: Sequence[Tensor], **attrs) -> List[Tensor]:
        """Apply an operator and return its visible outputs; `attrs` are its attributes."""
        self.count += 1
        name = f"t{self.count}_{op.strip('_')}"
        symbol = getattr(mx.sym, op, None) or getattr(mx.sym._internal, op)
        symbol = symbol(*[t.symbol for t in inputs], name=name, **attrs)
        shapes = symbol.infer_shape(**self._shapes_behind(symbol))[1]
        outputs = [Tensor(s, tuple(shape)) for s, shape in zip(symbol, shapes)]
        return [self._noisy(t, f"{name}_{i}") for i, t in enumerate(outputs)] if self.noise else outputs

    def _shapes_behind(self, symbol: mx.sym.Symbol) -> Dict[str, Shape]:
        return {n: self.variables[n].value.shape for n in symbol.list_arguments()}

    def _noisy(self, tensor: Tensor, name: str) -> Tensor:
        factor = 1 + self.noise * self.noise_rs.uniform(-1, 1, tensor.shape)
        name = f"noise_{name}"
        self.variables[name] = Variable("input", False, factor.astype(self.dtype))
        return Tensor(tensor.symbol * mx.sym.Variable(name), tensor.shape)

    def distinct(self, tensor: Tensor) -> Tensor:
        """Return the tensor with fresh noise added, so that no two elements are mathematically equal."""
        noise = self.input(tensor.shape, differentiable=False)
        return self.apply("elemwise_add", [tensor, noise])[0]


# -- operators: each adds one to the graph and returns its outputs, or None when no tensor fits ------------------------
Draw = Callable[[GraphBuilder], Optional[List[Tensor]]]
OPERATORS: List[Tuple[float, Draw]] = []


def operator(weight: float) -> Callable[[Draw], Draw]:
    """Register a function that draws an operator, with its weight in the lottery."""

    def register(draw: Draw) -> Draw:
        OPERATORS.append((weight, draw))
        return draw

    return register


def _spread(fan_in: int) -> float:
    return float(np.sqrt(3.0 / max(1, fan_in)))


@operator(4)
def fully_connected(b: GraphBuilder):
    x = b.tensor(2, 2, 3, 4)
    if x is None:
        return None
    flatten = b.chance(0.6)
    k = int(np.prod(x.shape[1:])) if flatten else x.shape[-1]
    m = b.dim()
    inputs = [x, b.parameter((m, k), _spread(k))]
    no_bias = b.chance(0.4)
    if not no_bias:
        inputs.append(b.parameter((m,)))
    return b.apply("FullyConnected", inputs, num_hidden=m, no_bias=no_bias, flatten=flatten)


def _window(b: GraphBuilder, sizes: Sequence[int], dilation: bool) -> Dict[str, Shape]:
    """Draw kernel, stride, pad and dilate for these spatial sizes."""
    kernel, stride, pad, dilate = [], [], [], []
    for size in sizes:
        p = b.pick((0, 0, 1))
        k = b.pick([k for k in (1, 2, 3, 5) if k <= size + 2 * p and k > p])
        kernel.append(k)
        pad.append(p)
        stride.append(b.pick((1, 1, 2)))
        fits = [d for d in (1, 2) if d * (k - 1) + 1 <= size + 2 * p]
        dilate.append(b.pick(fits) if dilation else 1)
    result = {"kernel": tuple(kernel), "stride": tuple(stride), "pad": tuple(pad)}
    if dilation:
        result["dilate"] = tuple(dilate)
    return result


@operator(4)
def convolution(b: GraphBuilder):
    x = b.tensor(4, 4, 4, 3)
    if x is None:
        return None
    c = x.shape[1]
    groups = b.divisor(c) if b.chance(0.4) else 1
    m = groups * b.dim(max(1, 13 // groups))
    if b.chance(0.2):
        m = groups * b.pick((16, 24, 32))  # wide enough for oneDNN to keep channels in blocks
    window = _window(b, x.shape[2:], dilation=b.chance(0.3))
    fan_in = c // groups * int(np.prod(window["kernel"]))
    inputs = [x, b.parameter((m, c // groups) + window["kernel"], _spread(fan_in))]
    no_bias = b.chance(0.5)
    if not no_bias:
        inputs.append(b.parameter((m,)))
    return b.apply("Convolution", inputs, num_filter=m, num_group=groups, no_bias=no_bias, **window)


@operator(1)
def deconvolution(b: GraphBuilder):
    x = b.tensor(4)
    if x is None or max(x.shape[2:]) > 6:
        return None
    c = x.shape[1]
    groups = b.divisor(c) if b.chance(0.3) else 1
    per_group = b.dim(max(1, 8 // groups))
    pad = b.pick((0, 1))
    kernel = (3 if pad else b.pick((2, 3)), b.pick((2, 3)))
    inputs = [x, b.parameter((c, per_group) + kernel, _spread(c * 4))]
    no_bias = b.chance(0.5)
    if not no_bias:
        inputs.append(b.parameter((groups * per_group,)))
    window = {"kernel": kernel, "stride": (b.pick((1, 2)), b.pick((1, 2))), "pad": (pad, 0)}
    return b.apply("Deconvolution", inputs, num_filter=groups * per_group, num_group=groups, no_bias=no_bias, **window)


@operator(3)
def pooling(b: GraphBuilder):
    x = b.tensor(4, 4, 3)
    if x is None:
        return None
    kind = b.pick(("max", "avg", "avg", "sum"))
    if kind == "max":
        x = b.distinct(x)
    if b.chance(0.3):
        return b.apply("Pooling", [x], global_pool=True, pool_type=kind, kernel=(1,) * (len(x.shape) - 2))
    window = _window(b, x.shape[2:], dilation=False)
    convention = "valid"
    if b.chance(0.3) and all(s <= k for s, k in zip(window["stride"], window["kernel"])):
        convention = "full"
        window["pad"] = (0,) * len(window["pad"])  # else a window may hold padding only, and its maximum is infinite
        window["kernel"] = tuple(min(k, n) for k, n in zip(window["kernel"], x.shape[2:]))
    extra = {"count_include_pad": b.chance(0.5)} if kind == "avg" else {}
    return b.apply("Pooling", [x], pool_type=kind, pooling_convention=convention, **window, **extra)


@operator(4)
def activation(b: GraphBuilder):
    x = b.tensor()
    kind = b.pick(("relu", "relu", "sigmoid", "tanh", "softrelu", "softsign"))
    if kind == "relu":
        x = b.distinct(x) if b.chance(0.5) else x
    return b.apply("Activation", [x], act_type=kind)


@operator(1)
def leaky_relu(b: GraphBuilder):
    x = b.tensor(2, 4)
    if x is None:
        return None
    kind = b.pick(("leaky", "elu", "gelu", "prelu"))
    if kind == "prelu":
        return b.apply("LeakyReLU", [b.distinct(x), b.parameter((x.shape[1],))], act_type="prelu")
    return b.apply("LeakyReLU", [b.distinct(x)], act_type=kind, slope=0.3)


UNARY = ("tanh", "sigmoid", "sin", "cos", "arctan", "negative", "erf", "softsign", "relu", "square", "_copy", "expm1")


@operator(4)
def unary(b: GraphBuilder):
    op = b.pick(UNARY)
    x = b.tensor()
    if op in ("square", "expm1"):  # keep the numbers small over long chains
        x = b.apply("tanh", [x])[0]
    return b.apply(op, [x])


@operator(0.3)
def block_gradient(b: GraphBuilder):
    return b.apply("BlockGrad", [b.tensor()])


@operator(0.7)
def dropout_that_keeps_all(b: GraphBuilder):
    # With p = 0 it is the identity in training, too; real masks are the subject of test_dropout.py.
    return b.apply("Dropout", [b.tensor()], p=0.0)


@operator(4)
def binary(b: GraphBuilder):
    x = b.tensor()
    op = b.pick(("elemwise_add", "elemwise_add", "elemwise_sub", "elemwise_mul", "_maximum", "broadcast_add"))
    other = b.like(x.shape)
    if op == "_maximum":
        x = b.distinct(x)
    if op == "elemwise_mul":
        other = b.apply("tanh", [other])[0]
    return b.apply(op, [x, other] if b.chance(0.5) else [other, x])


@operator(2)
def scalar(b: GraphBuilder):
    op = b.pick(("_plus_scalar", "_minus_scalar", "_rminus_scalar", "_mul_scalar", "_div_scalar"))
    return b.apply(op, [b.tensor()], scalar=float(np.round(b.rs.uniform(0.5, 1.5), 3)))


@operator(3)
def broadcast_binary(b: GraphBuilder):
    x = b.tensor()
    small = tuple(1 if b.chance(0.5) else n for n in x.shape)
    op = b.pick(("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div"))
    if op == "broadcast_div":
        return b.apply(op, [x, b.parameter(small, 0.5, offset=1.5)])
    other = b.like(small)
    if op == "broadcast_mul":
        other = b.apply("tanh", [other])[0]
    return b.apply(op, [x, other] if b.chance(0.5) else [other, x])


@operator(1)
def broadcast_to(b: GraphBuilder):
    fitting = [t for t in b.tensors if 1 in t.shape and np.prod(t.shape) < 300]
    if not fitting:
        return None
    x = b.pick(fitting)
    shape = tuple(b.dim(6) if n == 1 and b.chance(0.7) else n for n in x.shape)
    if np.prod(shape) > MAX_ELEMENTS:
        return None
    if b.chance(0.5):
        return b.apply("broadcast_to", [x], shape=shape)
    axes = tuple(i for i, (old, new) in enumerate(zip(x.shape, shape)) if old != new)
    return b.apply("broadcast_axis", [x], axis=axes, size=tuple(shape[i] for i in axes)) if axes else None


@operator(3)
def batch_norm(b: GraphBuilder):
    x = b.tensor(2, 4, 4)
    if x is None:
        return None
    axis = 1 if b.chance(0.8) else len(x.shape) - 1
    c = x.shape[axis]
    if np.prod(x.shape) // c < 3:
        return None
    x = b.distinct(x)  # keeps the variance away from 0
    fix_gamma = b.chance(0.3)
    # With fix_gamma MXNet overwrites gamma, which nothing else may read then.
    gamma = b.parameter((c,), 0.4, offset=1.0, exclusive=fix_gamma)
    inputs = [x, gamma, b.parameter((c,)), b.auxiliary((c,), -1, 1), b.auxiliary((c,), 1, 2)]
    attrs = {"axis": axis, "fix_gamma": fix_gamma, "use_global_stats": b.chance(0.2), "eps": 0.01}
    return b.apply("BatchNorm", inputs, momentum=float(b.pick((0.9, 0.5))), **attrs)


@operator(1)
def layer_norm(b: GraphBuilder):
    x = b.tensor(2, 3, 4)
    if x is None:
        return None
    axis = -1 if b.chance(0.8) else b.rs.randint(len(x.shape))
    c = x.shape[axis]
    if c < 3:
        return None
    inputs = [b.distinct(x), b.parameter((c,), 0.5, offset=1.0), b.parameter((c,))]
    return b.apply("LayerNorm", inputs, axis=axis, eps=0.01)


@operator(3)
def concat(b: GraphBuilder):
    x = b.tensor(2, 3, 4)
    if x is None:
        return None
    d = b.rs.randint(len(x.shape))
    if b.dtype == "float32" and len(x.shape) == 4 and d == 1:
        return None  # oneDNN's backward crashes for some numbers of channels (test_mxnet_hazards.py)
    parts = [x]
    for _ in range(b.pick((1, 1, 2, 3))):
        other = x.shape[:d] + (b.dim(5),) + x.shape[d + 1 :]
        fitting = [t for t in b.tensors if len(t.shape) == len(other) and t.shape[:d] == other[:d]]
        fitting = [t for t in fitting if t.shape[d + 1 :] == other[d + 1 :]]
        parts.append(b.pick(fitting) if b.chance(0.6) and fitting else b.like(other))
    if sum(t.shape[d] for t in parts) > 26:
        return None
    return b.apply("Concat", parts, dim=d)


@operator(1)
def stack(b: GraphBuilder):
    x = b.tensor(1, 2, 3)
    if x is None:
        return None
    parts = [x] + [b.like(x.shape) for _ in range(b.pick((1, 2)))]
    return b.apply("stack", parts, axis=b.rs.randint(len(x.shape) + 1), num_args=len(parts))


@operator(2)
def slice_channel(b: GraphBuilder):
    x = b.tensor(2, 3, 4)
    if x is None:
        return None
    d = b.rs.randint(len(x.shape))
    parts = b.divisor(x.shape[d])
    if parts == 1:
        return None
    squeeze = parts == x.shape[d] and b.chance(0.5)
    return b.apply("SliceChannel", [x], num_outputs=parts, axis=d, squeeze_axis=squeeze)


@operator(1)
def slice_axis(b: GraphBuilder):
    x = b.tensor()
    d = b.rs.randint(len(x.shape))
    begin = b.rs.randint(x.shape[d])
    end = b.rs.randint(begin + 1, x.shape[d] + 1)
    return b.apply("slice_axis", [x], axis=d, begin=begin, end=end)


@operator(2)
def flatten(b: GraphBuilder):
    x = b.tensor(3, 4)
    return b.apply("Flatten", [x]) if x else None


@operator(2)
def reshape(b: GraphBuilder):
    x = b.tensor()
    dims = list(x.shape)
    if b.chance(0.5) and len(dims) > 1:  # merge two neighbours
        i = b.rs.randint(len(dims) - 1)
        dims[i : i + 2] = [dims[i] * dims[i + 1]]
    elif len(dims) < 4:  # split one
        i = b.rs.randint(len(dims))
        first = b.divisor(dims[i])
        dims[i : i + 1] = [first, dims[i] // first]
    code = list(dims)
    if b.chance(0.4):
        code[b.rs.randint(len(code))] = -1
    if b.chance(0.3) and code[0] == x.shape[0]:
        code[0] = 0
    return b.apply("Reshape", [x], shape=tuple(code))


@operator(2)
def transpose(b: GraphBuilder):
    x = b.tensor(2, 3, 4)
    if x is None:
        return None
    if b.chance(0.3):
        i, j = b.rs.permutation(len(x.shape))[:2]
        return b.apply("SwapAxis", [x], dim1=int(i), dim2=int(j))
    return b.apply("transpose", [x], axes=tuple(int(i) for i in b.rs.permutation(len(x.shape))))


@operator(1)
def expand_dims(b: GraphBuilder):
    x = b.tensor(1, 2, 3)
    return b.apply("expand_dims", [x], axis=b.rs.randint(len(x.shape) + 1)) if x else None


@operator(2)
def add_n(b: GraphBuilder):
    x = b.tensor()
    return b.apply("add_n", [x] + [b.like(x.shape) for _ in range(b.pick((1, 2, 3, 7)))])


@operator(2)
def many_consumers(b: GraphBuilder):
    # MXNet's gradient sum goes wrong for 8 or more consumers across devices.
    x = b.tensor()
    branches = [b.apply("_mul_scalar", [x], scalar=0.1 * (i + 1))[0] for i in range(b.pick((3, 7, 8, 10)))]
    return b.apply("add_n", branches)


@operator(3)
def sum_or_mean(b: GraphBuilder):
    x = b.tensor()
    axes = tuple(i for i in range(len(x.shape)) if b.chance(0.5)) or (0,)
    attrs = {"axis": axes, "keepdims": b.chance(0.5)}
    if b.chance(0.15):
        attrs = {}  # over everything
    return b.apply(b.pick(("sum", "mean", "mean")), [x], **attrs)


@operator(2)
def softmax(b: GraphBuilder):
    x = b.tensor(2, 3, 4)
    if x is None:
        return None
    return b.apply(b.pick(("softmax", "log_softmax")), [x], axis=b.pick((-1, 1, 0)))


@operator(1)
def embedding(b: GraphBuilder):
    rows, columns = b.dim(), b.dim()
    shape = (b.dim(),) if b.chance(0.5) else (b.dim(), b.dim(5))
    # Some are out of range: Embedding and take clip them.
    index = b.input(shape, b.rs.randint(-2, rows + 2, shape), differentiable=False)
    if b.chance(0.5):
        return b.apply("Embedding", [index, b.parameter((rows, columns))], input_dim=rows, output_dim=columns)
    if b.chance(0.5):
        return b.apply("one_hot", [index], depth=rows, dtype=b.dtype)
    return b.apply("take", [b.parameter((columns, rows, 2)), index], axis=1)


@operator(2)
def dot(b: GraphBuilder):
    x = b.tensor(2, 3)
    if x is None:
        return None
    ta, tb = b.chance(0.3), b.chance(0.3)
    k = x.shape[-2] if ta else x.shape[-1]
    n = b.dim()
    shape = (n, k) if tb else (k, n)
    if len(x.shape) == 3:
        other, op = b.like((x.shape[0],) + shape), "batch_dot"
    else:
        other, op = b.like(shape), "dot"
    result = b.apply(op, [x, other], transpose_a=ta, transpose_b=tb)[0]
    return b.apply("_mul_scalar", [result], scalar=float(1 / np.sqrt(k)))


@operator(0.5)
def softmax_output(b: GraphBuilder):
    x = b.tensor(2)
    if x is None:
        return None
    label = b.input((x.shape[0],), b.rs.randint(0, x.shape[1], x.shape[0]), differentiable=False)
    return b.apply("pick", [b.apply("log_softmax", [x], axis=-1)[0], label], axis=1, keepdims=True)


@operator(2)
def without_a_rule(b: GraphBuilder):
    """Operators that a planner is unlikely to know: they are to be computed whole, and right."""
    x = b.tensor(2, 3)
    if x is None:
        return None
    d = b.rs.randint(len(x.shape))
    op = b.pick(("cumsum", "reverse", "sort", "topk", "linalg_syrk", "L2Normalization", "repeat", "tile"))
    if op in ("cumsum", "reverse"):
        return b.apply(op, [x], axis=d)
    if op == "sort":
        return b.apply(op, [b.distinct(x)], axis=d)
    if op == "topk":
        return b.apply(op, [b.distinct(x)], axis=d, k=b.rs.randint(1, x.shape[d] + 1), ret_typ="value")
    if op == "linalg_syrk":
        return b.apply(op, [x], alpha=0.3)
    if op == "L2Normalization":
        return b.apply(op, [b.distinct(x)], eps=0.01)
    if op == "repeat":
        return b.apply(op, [x], repeats=2, axis=d)
    return b.apply(op, [x], reps=(2,) + (1,) * (len(x.shape) - 1))


# -- whole programs ----------------------------------------------------------------------------------------------------
def random_program(seed: int, size: int, dtype: str = "float64", noise: float = 0.0) -> Program:
    """Draw a serial program of `size` operators; `noise` as in GraphBuilder."""
    rs = np.random.RandomState(seed)
    b = GraphBuilder(np.random.RandomState(rs.randint(2**31)), dtype, noise)
    choice = np.random.RandomState(rs.randint(2**31))
    _draw_inputs(b)
    for _ in range(size):
        _draw_operator(b)
    training = bool(choice.rand() < 0.85)
    symbol = _choose_outputs(b, choice)
    if choice.rand() < 0.3:
        symbol = with_numpy_names(symbol)
    used = set(symbol.list_arguments()) | set(symbol.list_auxiliary_states())
    variables = {n: v for n, v in b.variables.items() if n in used}
    if dtype == "float32":
        variables = _with_weight_gradients(symbol, variables)
    if not training or not any(v.requires_grad for v in variables.values()):
        variables = {n: _with_gradient(v, training) for n, v in variables.items()}
    return Program(symbol, variables, training, dtype)


def _with_gradient(v: Variable, training: bool) -> Variable:
    return Variable(v.role, training and v.role == "parameter", v.value)


def _with_weight_gradients(symbol: mx.sym.Symbol, variables: Dict[str, Variable]) -> Dict[str, Variable]:
    """Ask for the gradient of the weight wherever that of the bias is: oneDNN computes neither without the weight's."""
    result, nodes = dict(variables), json.loads(symbol.tojson())["nodes"]
    for node in nodes:
        if node["op"] == "FullyConnected" and len(node["inputs"]) == 3:
            weight = nodes[node["inputs"][1][0]]["name"]
            result[weight] = Variable("parameter", True, result[weight].value)
    return result


def _draw_inputs(b: GraphBuilder) -> None:
    n = b.dim()
    kinds = (
        lambda: (n, b.dim()),
        lambda: (n, b.dim(6), 2 + b.dim(7), 2 + b.dim(7)),
        lambda: (n, b.dim(6), 2 + b.dim(9)),
    )
    for kind in [b.pick(kinds) for _ in range(b.pick((1, 1, 2)))]:
        b.tensors.append(b.input(kind()))


def _draw_operator(b: GraphBuilder) -> None:
    weights = np.array([w for w, _ in OPERATORS])
    for _ in range(50):
        draw = OPERATORS[b.rs.choice(len(OPERATORS), p=weights / weights.sum())][1]
        outputs = draw(b)
        if outputs and all(np.prod(t.shape) <= MAX_ELEMENTS and len(t.shape) <= 5 for t in outputs):
            b.tensors.extend(outputs)
            return


def _choose_outputs(b: GraphBuilder, choice: np.random.RandomState) -> mx.sym.Symbol:
    computed = [t for t in b.tensors if t.symbol.name not in b.variables] or b.tensors
    outputs = [computed[-1]]
    for _ in range(choice.choice((0, 0, 1, 2, 3))):
        extra = computed[choice.randint(len(computed))]
        if extra not in outputs:
            outputs.append(extra)
    if choice.rand() < 0.02:
        outputs.append(b.tensors[0])  # a network that returns its input, too
    order = choice.permutation(len(outputs))
    return mx.sym.Group([outputs[i].symbol for i in order])


# What Gluon emits under mx.npx.set_np(), where the operator differs and the attributes do not.
NUMPY_NAMES = {
    "elemwise_add": "_npi_add",
    "elemwise_sub": "_npi_subtract",
    "elemwise_mul": "_npi_multiply",
    "broadcast_add": "_npi_add",
    "broadcast_sub": "_npi_subtract",
    "broadcast_mul": "_npi_multiply",
    "broadcast_div": "_npi_true_divide",
    "broadcast_to": "_npi_broadcast_to",
    "_maximum": "_npi_maximum",
    "_plus_scalar": "_npi_add_scalar",
    "_minus_scalar": "_npi_subtract_scalar",
    "_rminus_scalar": "_npi_rsubtract_scalar",
    "_mul_scalar": "_npi_multiply_scalar",
    "_div_scalar": "_npi_true_divide_scalar",
    "tanh": "_npi_tanh",
    "sin": "_npi_sin",
    "cos": "_npi_cos",
    "arctan": "_npi_arctan",
    "negative": "_npi_negative",
    "square": "_npi_square",
    "expm1": "_npi_expm1",
    "sum": "_np_sum",
    "mean": "_npi_mean",
    "transpose": "_np_transpose",
    "stack": "_npi_stack",
    "cumsum": "_np_cumsum",
    "expand_dims": "_npi_expand_dims",
    "repeat": "_np_repeat",
}


def with_numpy_names(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    """Return the symbol with operators of the numpy name set wherever one does the same."""
    graph = json.loads(symbol.tojson())
    for node in graph["nodes"]:
        # A numpy reduction over everything has no dims, which needs another mode of MXNet.
        reduces_all = node["op"] in ("sum", "mean") and node.get("attrs", {}).get("keepdims") != "True"
        if not reduces_all:
            node["op"] = NUMPY_NAMES.get(node["op"], node["op"])
    return mx.sym.load_json(json.dumps(graph))
