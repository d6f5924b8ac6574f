"""Cuts one operator as its rule says, runs the parts with MXNet, and puts their results together again.

This is what a rule promises, without planner, lowering or devices: the parts' outputs, joined along the dims that
carry a cut factor and summed where it is reduced, are the whole outputs; and the parts' gradients, joined and summed
in the same way, are the whole gradients.
"""
from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from soybean_mx import core, operators

operators.are_usable([mx.cpu()])  # loads them

NODE = "op"  # the operator's name in its symbol; its inputs are x0, x1, ...
WHOLE = -1  # a dim without a factor, in a rule's dims

Draw = Callable[[np.random.RandomState, Tuple[int, ...]], np.ndarray]
Range = Tuple[int, int]


# How parts are joined, and what changes nothing: by what Rule::joined_by says.
JOINS = {"": (np.add, 0.0), "max": (np.maximum, -np.inf), "min": (np.minimum, np.inf)}


@dataclass(frozen=True)
class Operand:
    """An input of an operator: its shape, how its values are drawn, and whether a gradient is asked for."""

    shape: Tuple[int, ...]
    draw: Draw
    gradient: bool = True
    dtype: str = "float32"


def real(*shape: int) -> Operand:
    """Return an operand of normally distributed values."""
    return Operand(shape, lambda rng, s: rng.normal(size=s))


def positive(*shape: int) -> Operand:
    """Return an operand of values within (0.1, 0.9), where nearly every function is defined."""
    return Operand(shape, lambda rng, s: rng.uniform(0.1, 0.9, size=s))


def index(high: int, *shape: int, dtype: str = "float32") -> Operand:
    """Return an operand of indices 0 .. high-1, without a gradient."""
    return Operand(shape, lambda rng, s: rng.randint(0, high, size=s), gradient=False, dtype=dtype)


def length(high: int, *shape: int, dtype: str = "float32") -> Operand:
    """Return an operand of lengths 1 .. high, without a gradient."""
    return Operand(shape, lambda rng, s: rng.randint(1, high + 1, size=s), gradient=False, dtype=dtype)


@dataclass(frozen=True)
class Case:
    """One operator with its attributes and inputs, and what its rule should say.

    ``factors`` names the factors of size 2 and more, separated by spaces; a reduced one has a ``+`` behind its name,
    one over which a statistic is taken a ``*``. None: every dim of the output is a factor. ``numpy`` asks for NumPy's
    shape semantics. Of a case that draws random numbers (not ``exact``) only the shapes are compared.
    """

    op: str
    attrs: Dict[str, object]
    inputs: Sequence[Operand]
    factors: Optional[str] = None
    training: bool = True
    numpy: bool = False
    exact: bool = True

    def __str__(self) -> str:
        attrs = ",".join(f"{k}={v}" for k, v in self.attrs.items())
        shapes = ",".join("x".join(map(str, i.shape)) or "scalar" for i in self.inputs)
        return f"{self.op}({attrs};{shapes}{'' if self.training else ';predict'})".replace(" ", "")


@dataclass
class Result:
    """What one run gave: outputs, and the gradient of each input (None where none was asked for)."""

    outputs: List[np.ndarray]
    gradients: List[Optional[np.ndarray]] = field(default_factory=list)


def symbol_text(op: str, attrs: Dict[str, str], inputs: int, outputs: int) -> str:
    """Return the JSON of a symbol of one operator."""
    variables = [{"op": "null", "name": f"x{i}", "inputs": []} for i in range(inputs)]
    node = {"op": op, "name": NODE, "attrs": attrs, "inputs": [[i, 0, 0] for i in range(inputs)]}
    return json.dumps({
        "nodes": [*variables, node],
        "arg_nodes": list(range(inputs)),
        "heads": [[inputs, i, 0] for i in range(outputs)],
        "attrs": {"mxnet_version": ["int", 10901]},
    })


def visible_outputs(op: str, attrs: Dict[str, str], inputs: int) -> int:
    """Return how many outputs of the operator MXNet shows."""
    internals = mx.sym.load_json(symbol_text(op, attrs, inputs, 1)).get_internals().list_outputs()
    return sum(name.startswith(f"{NODE}_") for name in internals)


def run(case: Case, attrs: Dict[str, str], arrays: Sequence[np.ndarray], operands: Sequence[Operand], outputs: int,
        head_gradients: Optional[Sequence[np.ndarray]], op: str = "") -> Result:
    """Run the operator, or `op` in its place, with MXNet, backward too when head gradients are given."""
    with mx.util.np_shape(case.numpy):
        symbol = mx.sym.load_json(symbol_text(op or case.op, attrs, len(arrays), outputs))
        values = {f"x{i}": mx.nd.array(a, dtype=o.dtype) for i, (a, o) in enumerate(zip(arrays, operands))}
        asked = {f"x{i}" for i, o in enumerate(operands) if o.gradient and head_gradients is not None}
        auxiliary = symbol.list_auxiliary_states()
        names = symbol.list_arguments()
        gradients = {n: mx.nd.zeros(values[n].shape, dtype=values[n].dtype) for n in names if n in asked}
        executor = symbol.bind(mx.cpu(), {n: values[n] for n in names}, gradients,
                               {n: "write" if n in asked else "null" for n in names}, {n: values[n] for n in auxiliary})
        results = [o.asnumpy() for o in executor.forward(is_train=case.training)]
        if head_gradients is not None:
            executor.backward([mx.nd.array(g, dtype=o.dtype) for g, o in zip(head_gradients, results)])
        found = [gradients[f"x{i}"].asnumpy() if f"x{i}" in gradients else None for i in range(len(arrays))]
    return Result(results, found)


def rule_of(case: Case, attrs: Dict[str, str], shapes: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
            ) -> Dict:
    """Ask the core for the rule of the operator with inputs and outputs of these shapes."""
    graph = {
        "symbol": symbol_text(case.op, attrs, len(shapes), len(outputs)),
        "shapes": {f"x{i}": [list(s)] for i, s in enumerate(shapes)},
        "itemsizes": {f"x{i}": [8] for i in range(len(shapes))},
        "variables": {f"x{i}": {"role": "input", "requires_grad": True} for i in range(len(shapes))},
        "training": case.training,
    }
    graph["shapes"][NODE] = [list(s) for s in outputs]
    graph["itemsizes"][NODE] = [8] * len(outputs)
    return core.rules(graph)[NODE]


def parts_of(size: int, parts: int) -> List[Range]:
    """Divide 0 .. size-1 into ranges that differ by at most one in length, the longer ones first."""
    bounds = [size * i // parts for i in range(parts + 1)]
    lengths = sorted((b - a for a, b in zip(bounds, bounds[1:])), reverse=True)
    ends = list(itertools.accumulate(lengths))
    return [(end - own, end) for own, end in zip(lengths, ends)]


def can_cut(factor: Dict, parts: int) -> bool:
    """Whether a factor of a rule may be cut into that many parts, each computed by the operator itself."""
    return not factor["statistic"] and factor["size"] >= parts and not (factor["even"] and factor["size"] % parts)


def window_rows(window: Dict, out: Range, extent: int) -> Range:
    """Return the rows of an input dim from which an operator makes the rows ``out`` with its attributes unchanged.

    They begin at a multiple of the stride, so that the windows stand where the whole operator's do, and with the
    padding there are at least as many as a window is long.
    """
    reach = (window["kernel"] - 1) * window["dilate"] + 1
    end = min(extent, (out[1] - 1) * window["stride"] - window["pad"] + reach)
    begin = max(0, out[0] * window["stride"] - window["pad"]) // window["stride"] * window["stride"]
    while begin > 0 and end - begin + 2 * window["pad"] < reach:
        begin -= window["stride"]
    return begin, end


class Cut:
    """An operator cut along some factors of its rule: {factor index: number of parts}."""

    def __init__(self, rule: Dict, cuts: Dict[int, int]) -> None:
        self.rule = rule
        self.factors = rule["factors"]
        self.parts = {f: parts_of(self.factors[f]["size"], p) for f, p in cuts.items()}

    def groups(self) -> Iterator[Dict[int, Range]]:
        """Yield, for each group, its range of every cut factor."""
        for ranges in itertools.product(*self.parts.values()):
            yield dict(zip(self.parts, ranges))

    def tile(self, dims: Sequence[int], shape: Sequence[int], group: Dict[int, Range]) -> Tuple[slice, ...]:
        """Return the region of a tensor that a group has."""
        region = []
        for dim, extent in zip(dims, shape):
            block = extent // self.factors[dim]["size"] if dim != WHOLE else 1
            begin, end = group.get(dim, (0, extent // block))
            region.append(slice(begin * block, end * block))
        return tuple(region)

    def input_tile(self, number: int, shape: Sequence[int], group: Dict[int, Range]) -> Tuple[slice, ...]:
        """Return the region of an input that a group needs: along windows, the rows that they reach and some more."""
        windows = {w["dim"]: w for w in self.rule["windows"] if w["input"] == number}
        dims = [WHOLE if d in windows else f for d, f in enumerate(self.rule["inputs"][number]["dims"])]
        region = list(self.tile(dims, shape, group))
        for dim, window in windows.items():
            if window["factor"] in group:
                region[dim] = slice(*window_rows(window, group[window["factor"]], shape[dim]))
        return tuple(region)

    def own_rows(self, number: int, inputs: Dict[int, Tuple[slice, ...]], group: Dict[int, Range]
                 ) -> Tuple[slice, ...]:
        """Return the region of what a group computes that is its own part of an output."""
        dims = self.rule["outputs"][number]["dims"]
        region = [slice(None)] * len(dims)
        for window in self.rule["windows"]:
            if window["factor"] in group:
                begin, end = group[window["factor"]]
                first = inputs[window["input"]][window["dim"]].start // window["stride"]
                region[dims.index(window["factor"])] = slice(begin - first, end - first)
        return tuple(region)

    def adds(self, group: Dict[int, Range]) -> bool:
        """Whether the group is the one that has the addends: the first of every reduced factor that is cut."""
        return all(r[0] == 0 for f, r in group.items() if self.factors[f]["reduced"])

    def counts(self, output: int, group: Dict[int, Range]) -> bool:
        """Whether the group's output counts: groups that differ in a factor that it does not have compute the same."""
        dims = self.rule["outputs"][output]["dims"]
        return all(r[0] == 0 for f, r in group.items() if f not in dims and not self.factors[f]["reduced"])

    def scale(self, group: Dict[int, Range]) -> float:
        """Return what the group's outputs are multiplied with."""
        reduced = {f: r for f, r in group.items() if self.factors[f]["reduced"]}
        if not self.rule["average"]:
            return 1.0
        return float(np.prod([(end - begin) / self.factors[f]["size"] for f, (begin, end) in reduced.items()]))

    def operator(self, group: Dict[int, Range]) -> str:
        """Return the operator that a group runs in place of the whole one; empty for the same."""
        without_addends = "" if self.adds(group) else self.rule["runs_without_addends_as"]
        return without_addends or self.rule["runs_as"]

    def attributes(self, attrs: Dict[str, str], group: Dict[int, Range], outputs: Sequence[Tuple[int, ...]]
                   ) -> Dict[str, str]:
        """Return the attributes of the group's operator; ``outputs`` are the shapes of its outputs."""
        local = {**({} if self.rule["runs_as"] else attrs), **self.rule["restated"]}
        for name, extent in self.rule["extent_attrs"].items():
            size = self.factors[extent["factor"]]["size"]
            begin, end = group.get(extent["factor"], (0, size))
            local[name] = str((end - begin) * extent["block"])
        for name, start in self.rule["start_attrs"].items():
            begin, end = group.get(start["factor"], (0, self.factors[start["factor"]]["size"]))
            local[name] = f'{start["first"] + start["step"] * (end if start["at_end"] else begin):.17g}'
        for name, part in self.rule["shape_attrs"].items():
            shape = outputs[part["output"]]
            local[name] = str(tuple(shape[part["begin"]:len(shape) - part["behind"]]))
        if not self.adds(group):
            if self.rule["runs_without_addends_as"]:
                local = {}
            local.update(self.rule["without_addends"])
        return local

    def own_indices(self, used: List[int], tiles: List[np.ndarray],
                    group: Dict[int, Range]) -> List[np.ndarray]:
        """Return the tiles with every index counted from the beginning of the group's range."""
        tiles = list(tiles)
        for into in self.rule["indices"]:
            begin, _ = group.get(into["factor"], (0, 0))
            tiles[used.index(into["input"])] = np.trunc(tiles[used.index(into["input"])]).astype("int64") - begin
        return tiles

    def mask(self, output: int, tiles: Dict[int, np.ndarray], shape: Sequence[int], group: Dict[int, Range]
             ) -> np.ndarray:
        """Return 1 where an output element is the group's own, 0 where its index is another group's."""
        mask = np.ones(shape)
        dims = self.rule["outputs"][output]["dims"]
        for into in self.rule["indices"]:
            factor = self.factors[into["factor"]]
            if not factor["reduced"] or into["factor"] not in group:
                continue
            begin, end = group[into["factor"]]
            indices = np.clip(np.trunc(tiles[into["input"]]), 0, factor["size"] - 1)
            own = (indices >= begin) & (indices < end)
            carried = self.rule["inputs"][into["input"]]["dims"]
            mask = mask * own.reshape([n if d != WHOLE and d in carried else 1 for d, n in zip(dims, shape)])
        return mask


def draw_inputs(case: Case, seed: int) -> List[np.ndarray]:
    """Draw the values of the case's inputs."""
    rng = np.random.RandomState(seed)
    return [np.asarray(o.draw(rng, o.shape)).astype(o.dtype) for o in case.inputs]


def run_whole(case: Case, attrs: Dict[str, str], arrays: Sequence[np.ndarray], seed: int
              ) -> Tuple[Result, Optional[List[np.ndarray]]]:
    """Run the whole operator; return its result and the head gradients that it was given (None: no backward)."""
    count = visible_outputs(case.op, attrs, len(arrays))
    forward = run(case, attrs, arrays, case.inputs, count, None)
    if not case.training or not any(o.gradient for o in case.inputs):
        return forward, None
    rng = np.random.RandomState(seed + 1)
    heads = [rng.normal(size=o.shape).astype("float32") for o in forward.outputs]
    return run(case, attrs, arrays, case.inputs, count, heads), heads


def run_cut(case: Case, attrs: Dict[str, str], cut: Cut, arrays: Sequence[np.ndarray], whole: Result,
            heads: Optional[Sequence[np.ndarray]]) -> Result:
    """Run the parts and put their outputs and gradients together."""
    inputs, outputs = cut.rule["inputs"], cut.rule["outputs"]
    join, start = JOINS[cut.rule["joined_by"]]
    joined = Result([np.full(o.shape, start, "float64") for o in whole.outputs],
                    [None if g is None else np.zeros(g.shape, "float64") for g in whole.gradients])
    for group in cut.groups():
        used = [i for i, rule in enumerate(inputs) if cut.adds(group) or not rule["addend"]]
        regions = {i: cut.input_tile(i, arrays[i].shape, group) for i in used}
        tiles = [arrays[i][regions[i]] for i in used]
        out_regions = [cut.tile(rule["dims"], o.shape, group) for rule, o in zip(outputs, whole.outputs)]
        shapes = [o[r].shape for o, r in zip(whole.outputs, out_regions)]
        local = cut.attributes(attrs, group, shapes)
        scale = cut.scale(group)
        # Of groups that compute the same, one is asked for.
        masks = [float(cut.counts(k, group)) * cut.mask(k, dict(zip(used, tiles)), shape, group)
                 for k, shape in enumerate(shapes)]
        tiles = cut.own_indices(used, tiles, group)
        operands = [case.inputs[i] for i in used]
        op = cut.operator(group)
        result = run(case, local, tiles, operands, len(outputs), None, op)
        owned = [cut.own_rows(k, regions, group) for k in range(len(outputs))]
        if heads is not None:
            if cut.rule["joined_by"]:
                masks = [mask * (made == total[region]) for mask, made, total, region in
                         zip(masks, result.outputs, whole.outputs, out_regions)]
            own_heads = [np.zeros(o.shape, h.dtype) for o, h in zip(result.outputs, heads)]
            for own_head, own, head, region, mask in zip(own_heads, owned, heads, out_regions, masks):
                own_head[own] = head[region] * scale * mask
            result = run(case, local, tiles, operands, len(outputs), own_heads, op)
        for total, region, made, own, shape, mask in zip(
            joined.outputs, out_regions, result.outputs, owned, shapes, masks
        ):
            part = made[own]
            assert part.shape == shape, f"a part has shape {part.shape}, its region of the output {shape}"
            total[region] = join(total[region], part if cut.rule["joined_by"] else part * scale * mask)
        for i, gradient in zip(used, result.gradients):
            if gradient is not None:
                joined.gradients[i][regions[i]] += gradient
    return joined


def assert_same(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Fail unless the arrays agree to 1e-4 of the largest magnitude."""
    finite = expected[np.isfinite(expected)]
    largest = float(np.max(np.abs(finite.astype("float64")))) if finite.size else 1.0
    np.testing.assert_allclose(found, expected.astype("float64"), rtol=1e-4, atol=1e-4 * max(largest, 1e-3),
                               equal_nan=True, err_msg=what)


def check_cut(case: Case, attrs: Dict[str, str], rule: Dict, cuts: Dict[int, int], arrays: Sequence[np.ndarray],
              whole: Result, heads: Optional[Sequence[np.ndarray]]) -> None:
    """Fail unless the cut operator gives what the whole one gave."""
    joined = run_cut(case, attrs, Cut(rule, cuts), arrays, whole, heads)
    if not case.exact:
        return
    names = ", ".join(f"{rule['factors'][f]['name']} into {p}" for f, p in cuts.items())
    for i, (found, expected) in enumerate(zip(joined.outputs, whole.outputs)):
        assert_same(found, expected, f"output {i} of {case}, {names} parts")
    for i, (found, expected) in enumerate(zip(joined.gradients, whole.gradients)):
        if expected is not None:
            assert_same(found, expected, f"gradient of input {i} of {case}, {names} parts")


def possible_cuts(rule: Dict) -> List[Dict[int, int]]:
    """Return every cut of one factor into 2, 3 and 5, and every cut of two factors into 2 each."""
    factors = rule["factors"]
    single = [{f: p} for f, factor in enumerate(factors) for p in (2, 3, 5) if can_cut(factor, p)]
    halves = [next(iter(c)) for c in single if 2 in c.values()]
    return single + [{a: 2, b: 2} for a, b in itertools.combinations(halves, 2)]


def check_rule(case: Case, seed: int = 0) -> Dict:
    """Check every possible cut of a case against the whole operator; return the rule."""
    attrs = {k: str(v) for k, v in case.attrs.items()}
    arrays = draw_inputs(case, seed)
    whole, heads = run_whole(case, attrs, arrays, seed)
    rule = rule_of(case, attrs, [a.shape for a in arrays], [o.shape for o in whole.outputs])
    if heads is not None:
        passes = any(g is not None and g.any() for g in whole.gradients)
        assert not (passes and rule["stops_gradient"]), f"the gradient of {case} is not zero"
    if rule["known"]:
        for cuts in possible_cuts(rule):
            check_cut(case, attrs, rule, cuts, arrays, whole, heads)
    return rule
