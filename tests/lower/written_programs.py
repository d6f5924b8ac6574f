"""Programs written by hand, each under many random plans, compared with one device.

    python -m tests.lower.written_programs [NAME ...]

They are those whose lowering has something of its own: indices into a cut factor, merged samples and heads, the
interleaved operators, and recurrent layers.
"""
from __future__ import annotations

import sys
from typing import Callable, Dict, List, Sequence, Tuple

import mxnet as mx
import numpy as np

from soybean_mx import core
from tests.lower.execution import graph_of, head_gradients, run_lowered, run_serial
from tests.lower.random_graphs import Program, Variable
from tests.lower.random_plans import compare

DEVICES = (2, 3, 4, 6, 8)
RANDOM_PLANS = 12  # for each number of devices
HEADS = 4
STRATEGIES = ("optimal", "data", "model", "recursive")

S = mx.sym
Values = Dict[str, np.ndarray]


def program(symbol: mx.sym.Symbol, values: Values, dtype: str = "float64", inputs: Sequence[str] = ()) -> Program:
    """Return a program; all variables but the `inputs` are parameters of this type with gradients."""
    variables = {n: Variable("input", False, v) if n in inputs else Variable("parameter", True, v.astype(dtype))
                 for n, v in values.items()}
    return Program(symbol, variables, True, dtype)


def embedding(index_dtype: str, rows: int = 13) -> Program:
    """Rows are picked by indices of which some are out of range, and some are no whole numbers."""
    rs = np.random.RandomState(1)
    index = rs.randint(0 if index_dtype == "uint8" else -3, rows + 3, (6, 4))
    if index_dtype == "float64":
        index = index + rs.choice([0, 0.4, -0.4, 1e30, -1e30], index.shape)
    symbol = S.Embedding(S.Variable("index"), S.Variable("w"), input_dim=rows, output_dim=5)
    values = {"index": index.astype(index_dtype), "w": rs.normal(size=(rows, 5))}
    return program(S.Group([symbol * symbol, S.sum(symbol, axis=1)]), values, inputs=["index"])


def take_and_pick() -> Program:
    """`take` along an inner dim, `pick` from what it gives, `one_hot` of the same indices."""
    rs = np.random.RandomState(2)
    index, choice = S.Variable("index"), S.Variable("choice")
    taken = S.take(S.Variable("w"), index, axis=1)
    picked = S.pick(taken * taken, choice, axis=2, keepdims=True)
    hot = S.one_hot(index, depth=7, dtype="float64")
    values = {"index": rs.randint(-2, 9, (4,)).astype("int32"), "w": rs.normal(size=(3, 7, 5)),
              "choice": rs.randint(0, 5, (3, 4)).astype("float32")}
    return program(S.Group([picked, S.broadcast_mul(S.Variable("v"), hot)]), {**values, "v": rs.normal(size=(4, 1))},
                   inputs=["index", "choice"])


def merged_heads() -> Program:
    """Attention in one dim for samples and heads, with masks, and with uses of it as one dim in between."""
    rs = np.random.RandomState(3)
    x, w, mask = S.Variable("x"), S.Variable("w"), S.Variable("mask")

    def merged(y):
        split = S.reshape(y, shape=(0, 0, HEADS, -1))
        return S.reshape(S.transpose(split, axes=(0, 2, 1, 3)), shape=(-1, 0, 0), reverse=True)

    query = merged(S.FullyConnected(x, w, num_hidden=24, no_bias=True, flatten=False))
    key = merged(x * 0.5)
    scores = S.batch_dot(S.contrib.div_sqrt_dim(query), key, transpose_b=True)
    position = S.contrib.arange_like(scores, axis=-1)
    causal = S.broadcast_greater_equal(position.expand_dims(1), position.expand_dims(0))
    scores = S.broadcast_add(scores, ((causal - 1) * 5).expand_dims(0))
    repeated = S.broadcast_axis(mask.expand_dims(1), axis=1, size=HEADS)
    scores = S.broadcast_mul(scores, S.reshape(repeated, shape=(-1, 0), reverse=True).expand_dims(1))
    weights = S.softmax(scores, axis=-1)
    context = S.batch_dot(weights, key)
    split = S.reshape(context, shape=(-1, HEADS, 0, 0), reverse=True)
    out = S.reshape(S.transpose(split, axes=(0, 2, 1, 3)), shape=(0, 0, -1))
    return program(S.Group([out, S.transpose(weights, axes=(0, 2, 1)) * 2, S.sum(context, axis=0)]),
                   {"x": rs.normal(size=(3, 5, 24)), "w": rs.normal(size=(24, 24)) * 0.3,
                    "mask": (rs.rand(3, 5) > 0.3).astype("float64")}, inputs=["mask"])


def gluonnlp_heads() -> Program:
    """The interleaved operators on weights that are put together head by head, with a mask chosen by `where`."""
    rs = np.random.RandomState(7)
    x, mask = S.Variable("x"), S.Variable("mask")
    names = ("query", "key", "value")
    weights = [S.reshape(S.Variable(n), shape=(HEADS, -1, 16)) for n in names]
    weight = S.reshape(S.concat(*weights, dim=-2), shape=(-1, 16))
    projected = S.FullyConnected(x, weight, num_hidden=72, no_bias=True, flatten=False)
    scores = S.contrib.interleaved_matmul_selfatt_qk(projected, heads=HEADS)
    seen = S.reshape(S.broadcast_axis(mask.expand_dims(1), axis=1, size=HEADS), shape=(-1, 0, 0), reverse=True)
    scores = S.where(seen, scores, S.ones_like(scores) * -50)
    weights = S.broadcast_mul(S.softmax(S.swapaxes(S.swapaxes(scores, 1, 2), 2, 1), axis=2), seen)
    out = S.contrib.interleaved_matmul_selfatt_valatt(projected, weights, heads=HEADS)
    seen = (rs.rand(3, 5, 5) > 0.3).astype("float32")
    return program(out, {"x": rs.normal(size=(5, 3, 16)), "mask": seen,
                         **{n: rs.normal(size=(24, 16)) * 0.3 for n in names}}, "float32", inputs=["mask"])


def interleaved_self_attention() -> Program:
    """Self-attention with the interleaved operators."""
    rs = np.random.RandomState(4)
    projected = S.FullyConnected(S.Variable("x"), S.Variable("w"), num_hidden=72, no_bias=True, flatten=False)
    scores = S.contrib.interleaved_matmul_selfatt_qk(projected, heads=HEADS)
    weights = S.softmax(scores * 0.7)
    out = S.contrib.interleaved_matmul_selfatt_valatt(projected, weights, heads=HEADS)
    return program(S.Group([out, S.sum(weights, axis=0)]),
                   {"x": rs.normal(size=(5, 3, 24)), "w": rs.normal(size=(72, 24)) * 0.3}, "float32")


def interleaved_cross_attention() -> Program:
    """Attention from one sequence to another with the interleaved operators."""
    rs = np.random.RandomState(5)
    memory = S.FullyConnected(S.Variable("m"), S.Variable("w"), num_hidden=48, no_bias=True, flatten=False)
    scores = S.contrib.interleaved_matmul_encdec_qk(S.Variable("x"), memory, heads=HEADS)
    out = S.contrib.interleaved_matmul_encdec_valatt(memory, S.softmax(scores * 0.7), heads=HEADS)
    return program(out, {"x": rs.normal(size=(5, 3, 24)), "m": rs.normal(size=(7, 3, 20)),
                         "w": rs.normal(size=(48, 20)) * 0.3}, "float32")


def recurrent() -> Program:
    """Two layers of LSTM in both directions, whose states are used too."""
    rs = np.random.RandomState(6)
    h, c, p = S.Variable("h"), S.Variable("c"), S.Variable("p")
    layers = S.RNN(S.Variable("x"), p, h, c, state_size=4, num_layers=2, mode="lstm", state_outputs=True,
                   bidirectional=True, p=0.0)
    return program(S.Group([layers[0] * 2, layers[1], layers[2]]),
                   {"x": rs.normal(size=(5, 6, 3)), "p": rs.normal(size=(736,)) * 0.3, "h": rs.normal(size=(4, 6, 4)),
                    "c": rs.normal(size=(4, 6, 4))}, "float32")


PROGRAMS: Dict[str, Callable[[], Program]] = {
    **{f"embedding_{dtype}": (lambda dtype=dtype: embedding(dtype))
       for dtype in ("float64", "float32", "float16", "int64", "int32", "int8", "uint8")},
    # Numbers from 2048 on are not all in float16; those of more than 127 rows are not all in int8.
    "embedding_many_rows": lambda: embedding("float16", rows=2100),
    "embedding_more_rows_than_int8": lambda: embedding("int8", rows=300),
    "take_and_pick": take_and_pick,
    "merged_heads": merged_heads,
    "gluonnlp_heads": gluonnlp_heads,
    "interleaved_self_attention": interleaved_self_attention,
    "interleaved_cross_attention": interleaved_cross_attention,
    "recurrent": recurrent,
}


def check(name: str) -> Tuple[int, List[str]]:
    """Run a program under plans; return how many, and a line for each that differs from one device."""
    case = PROGRAMS[name]()
    graph, head_grads = graph_of(case), head_gradients(case, 0)
    serial = run_serial(case, head_grads)
    count, problems = 0, []
    for devices in DEVICES:
        for strategy in (*STRATEGIES, *(f"random:{i}" for i in range(RANDOM_PLANS))):
            plan = core.plan(graph, {"devices": devices, "strategy": strategy})
            tiled = run_lowered(case, core.lower(graph, plan), devices, head_grads)
            errors = compare(serial, tiled, case.dtype)
            problems += [f"{name} {devices} {strategy}: {n}: {e:.3g}" for n, e in errors.items()]
            count += 1
    return count, problems


def main(names: Sequence[str]) -> None:
    """Check the programs of these names, or all."""
    failed = []
    for name in names or PROGRAMS:
        print(name, file=sys.stderr, flush=True)
        count, problems = check(name)
        print(f"{name}: {count} plans, {len(problems)} differences")
        failed += problems
    if failed:
        sys.exit("\n".join(failed[:20]))


if __name__ == "__main__":
    main(sys.argv[1:])
