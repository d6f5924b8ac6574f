"""Operators of a user's own, cut by rules that are registered for them: random ones, under random plans.

    python -m tests.rules.custom_rules --seeds 0-100
    python -m tests.rules.custom_rules --library FILE
    python -m tests.rules.custom_rules --wrong-rules
    python -m tests.rules.custom_rules --training
    python -m tests.rules.custom_rules --kinds

A case draws sums of products (as in einsum) with and without an addend, writes each as a ``CustomOp`` that computes it
with numpy, and registers its rule. A program of a few of them, with operators of MXNet in between, runs on one device
and, lowered for a plan that is drawn without the core's search, on several.
"""
from __future__ import annotations

import argparse
import ast
import json
import sys
from dataclasses import dataclass
from typing import Callable, Dict, List, Tuple

import mxnet as mx
import numpy as np

from soybean_mx import core, rules
from tests.lower.drawn_plans import draw_plan
from tests.lower.execution import TiledExecutor, check_interface, graph_of, head_gradients, run_serial
from tests.lower.random_graphs import Program, Variable
from tests.lower.random_plans import compare, seed_ranges

DEVICES = (2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Product:
    """A sum of products of tensors: the letters of each operand's dims, and of the result's."""

    inputs: Tuple[str, ...]
    output: str
    addend: str  # the letters of a last input that is added, or ""
    whole: str  # the letters that the rule does not cut

    def rule(self) -> str:
        """The rule in words."""
        def operand(name: str, letters: str) -> str:
            return f"{name}[{','.join('*' if letter in self.whole else letter for letter in letters)}]"

        given = [operand(f"x{i}", letters) for i, letters in enumerate(self.inputs)]
        given += [operand("added", self.addend) + ("+" if self.is_sum() else "")] if self.addend else []
        return " ".join(given) + " -> " + operand("y", self.output)

    def is_sum(self) -> bool:
        """Whether the rule cuts a letter that only inputs have."""
        return bool(set("".join(self.inputs)) - set(self.output) - set(self.whole))

    def value(self, arrays: List[np.ndarray]) -> np.ndarray:
        """What it computes."""
        result = np.einsum(",".join(self.inputs) + "->" + self.output, *arrays[:len(self.inputs)])
        if self.addend:
            shape = [n if letter in self.addend else 1 for letter, n in zip(self.output, result.shape)]
            result = result + arrays[-1].reshape(shape)
        return result

    def gradients(self, arrays: List[np.ndarray], head: np.ndarray) -> List[np.ndarray]:
        """The gradient of every input."""
        found = []
        for i, letters in enumerate(self.inputs):
            others = [(self.inputs[k], arrays[k]) for k in range(len(self.inputs)) if k != i]
            ones = [(letter, np.ones(n)) for letter, n in zip(letters, arrays[i].shape)]
            terms = [(self.output, head), *others, *ones]
            found.append(np.einsum(",".join(t for t, _ in terms) + "->" + letters, *[a for _, a in terms]))
        if self.addend:
            found.append(head.sum(axis=tuple(d for d, letter in enumerate(self.output) if letter not in self.addend)))
        return found


def operator_of(product: Product):
    """The properties of the CustomOp that computes a product."""

    class Operator(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            value = product.value([array.asnumpy() for array in in_data])
            self.assign(out_data[0], req[0], mx.nd.array(value, dtype=value.dtype))

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            found = product.gradients([array.asnumpy() for array in in_data], out_grad[0].asnumpy())
            for target, request, value in zip(in_grad, req, found):
                self.assign(target, request, mx.nd.array(value, dtype=out_grad[0].dtype))

    class Properties(mx.operator.CustomOpProp):
        def list_arguments(self):
            return [f"x{i}" for i in range(len(product.inputs))] + (["added"] if product.addend else [])

        def list_outputs(self):
            return ["y"]

        def infer_shape(self, in_shape):
            extents = {letter: n for letters, shape in zip(product.inputs, in_shape)
                       for letter, n in zip(letters, shape)}
            return in_shape, [[extents[letter] for letter in product.output]], []

        def create_operator(self, context, shapes, dtypes):
            return Operator()

    return Properties


def draw_product(random: np.random.RandomState, first: str, letters: str) -> Product:
    """Draw a product whose first operand has these letters, out of an alphabet."""
    others = [letter for letter in letters if letter not in first]
    second = list(random.permutation(list(first))[:random.randint(1, len(first) + 1)])
    second = "".join(random.permutation(second + others[:random.randint(0, 2)]))
    inputs = (first, second) if random.rand() < 0.85 else (first,)
    present = sorted(set("".join(inputs)))
    kept = [letter for letter in present if random.rand() < 0.6] or present[:1]
    output = "".join(random.permutation(kept))
    addend = "".join(letter for letter in output if random.rand() < 0.6) if random.rand() < 0.5 else ""
    whole = "".join(letter for letter in present if random.rand() < 0.2)
    return Product(inputs, output, addend, whole)


def draw_program(seed: int) -> Tuple[Program, Dict[str, Product]]:
    """Draw a program of a few products; the rules of its operators are registered."""
    random = np.random.RandomState(seed)
    extents = dict(zip("abcdefgh", random.randint(1, 9, 8)))
    variables: Dict[str, Variable] = {}

    def variable(name: str, letters: str, role: str) -> mx.sym.Symbol:
        shape = tuple(extents[letter] for letter in letters)
        variables[name] = Variable(role, True, random.uniform(-1, 1, shape))
        return mx.sym.var(name)

    letters = "abc"[:random.randint(1, 4)]
    tensor = variable("data", letters, "input")
    products = {}
    for layer in range(random.randint(1, 4)):
        product = draw_product(random, letters, "abcdefgh")
        op = f"product{seed}_{layer}"
        mx.operator.register(op)(operator_of(product))
        rules.register(op, product.rule())
        products[op] = product
        given = [tensor] + [variable(f"w{layer}", text, "parameter") for text in product.inputs[1:]]
        given += [variable(f"b{layer}", product.addend, "parameter")] if product.addend else []
        tensor, letters = mx.sym.Custom(*given, op_type=op, name=f"op{layer}"), product.output
        if random.rand() < 0.5:
            tensor = mx.sym.tanh(tensor, name=f"tanh{layer}")
        if random.rand() < 0.3:  # several uses
            tensor = tensor + mx.sym.sin(tensor, name=f"sin{layer}")
    return Program(tensor, variables, True, "float64"), products


def check_case(seed: int) -> List[str]:
    """What is wrong with the case of a seed."""
    program, _ = draw_program(seed)
    random = np.random.RandomState(seed)
    graph = graph_of(program)
    graph["rules"] = rules.of_nodes(json.loads(graph["symbol"])["nodes"])
    heads = head_gradients(program, seed)
    expected = run_serial(program, heads)
    problems = []
    for _ in range(2):
        devices = int(random.choice(DEVICES))
        drawn = random.rand() < 0.7
        plan = draw_plan(graph, devices, "tiled", seed) if drawn else core.plan(graph, {"devices": devices})
        if plan.get("whole"):
            problems.append(f"{plan['whole']} are not cut")
        lowered = core.lower(graph, plan)
        check_interface(program, lowered, devices)
        # Not run_lowered: MXNet gives the backward node of a Custom operator its forward node's name, so that the
        # copies forward cannot be told from those backward.
        found = TiledExecutor(program, lowered, devices).run(heads)
        problems += [f"{name}: relative error {error:.3g} on {devices} devices ({'drawn' if drawn else 'searched'})"
                     for name, error in compare(expected, found, "float64").items()]
    return problems


def check_library(path: str) -> None:
    """An operator of a library, cut along everything: the one that tests/rules/library_operator.cc defines."""
    mx.library.load(path, verbose=False)
    rules.register("plain_dense", "data[n,c] weight[m,c] -> out[n,m]", extents={"num_hidden": "m"})
    cuts = rules.check("plain_dense", [(7, 6), (5, 6)], {"num_hidden": 5, "scale": 0.5})
    print(f"{len(cuts)} cuts of an operator of a library")


@mx.operator.register("dense")
class Dense(mx.operator.CustomOpProp):
    """A dense layer: data of (n, c), weight of (num_hidden, c), bias of (num_hidden)."""

    product = Product(("nc", "mc"), "nm", "m", "")

    def __init__(self, num_hidden="0"):
        super().__init__()
        self._hidden = int(num_hidden)

    def list_arguments(self):
        return ["data", "weight", "bias"]

    def infer_shape(self, in_shape):
        return ([in_shape[0], [self._hidden, in_shape[0][1]], [self._hidden]], [[in_shape[0][0], self._hidden]], [])

    def create_operator(self, context, shapes, dtypes):
        return operator_of(self.product)().create_operator(context, shapes, dtypes)


DENSE = "data[n,c] weight[m,c] bias[m]+ -> out[n,m]"
DENSE_CALL = {"inputs": [(7, 5), (6, 5), (6,)], "attributes": {"num_hidden": 6}}

# What is wrong with each, and what the message must say. The right rule is DENSE, extents {"num_hidden": "m"}.
WRONG_RULES = [
    ("a bias that is added by every group", DENSE.replace("+", ""), {"extents": {"num_hidden": "m"}}, "output 'out'"),
    ("an average instead of a sum", "data[n,c] weight[*,c] bias[*] -> out[n,*]",
     {"constants": ["num_hidden"], "join": "mean"}, "output 'out'"),
    ("an extent that stays whole", DENSE, {"constants": ["num_hidden"]}, "the operator fails"),
    ("an attribute that nothing is said of", DENSE, {}, "num_hidden = 6"),
    ("another extent", DENSE, {"extents": {"num_hidden": "2*m"}}, "makes it 12, but it is 6"),
    ("a dim too many", DENSE.replace("data[n,c]", "data[n,c,*]"), {"constants": ["num_hidden"]},
     "gives 'data' 3 dims, but its shape is (7, 5)"),
    ("dims that are not alike", DENSE.replace("weight[m,c]", "weight[c,m]").replace("[m]+", "[*]"),
     {"constants": ["num_hidden"]}, "where it is"),
]


def check_wrong_rules() -> None:
    """Each wrong rule is refused with a message that says what is wrong, and the one before it stays."""
    right = rules.register("dense", DENSE, extents={"num_hidden": "m"}, check=DENSE_CALL)
    assert len(rules.check("dense", **DENSE_CALL)) == 9
    for what, text, options, message in WRONG_RULES:
        try:
            rules.register("dense", text, check=DENSE_CALL, **options)
        except rules.RuleError as error:
            assert message in str(error) and "\n" not in str(error), f"{what}: {error}"
        else:
            raise AssertionError(f"{what} is not noticed")
        assert rules.registered()["dense"] is right
    print(f"{len(WRONG_RULES)} wrong rules refused")


def register_function(op: str, forward: Callable, backward: Callable) -> None:
    """Register a CustomOp of one or two inputs; ``shape`` is an attribute of some, which is the shape of the output."""

    class Operator(mx.operator.CustomOp):
        def __init__(self, attributes):
            super().__init__()
            self._attributes = attributes

        def forward(self, is_train, req, in_data, out_data, aux):
            value = forward(self._attributes, *[array.asnumpy() for array in in_data])
            self.assign(out_data[0], req[0], mx.nd.array(value))

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            found = backward(self._attributes, out_grad[0].asnumpy(), *[array.asnumpy() for array in in_data])
            for target, request, value in zip(in_grad, req, found):
                self.assign(target, request, mx.nd.array(value))

    class Properties(mx.operator.CustomOpProp):
        def __init__(self, **attributes):
            super().__init__(need_top_grad=True)
            self._attributes = attributes

        def list_arguments(self):
            return ["x", "y"][:backward.__code__.co_argcount - 2]

        def infer_shape(self, in_shape):
            out = forward(self._attributes, *[np.zeros(shape, "float32") for shape in in_shape])
            return in_shape, [list(out.shape)], []

        def create_operator(self, context, shapes, dtypes):
            return Operator(self._attributes)

    mx.operator.register(op)(Properties)


def check_kinds() -> None:
    """What rules can say beside sums of products: joins, further dims, shapes, and gradients of its own making."""
    def own_shape(attributes, x):
        return np.broadcast_to(x, ast.literal_eval(attributes["shape"])) + 0

    register_function("average", lambda a, x: x.mean(axis=1), lambda a, g, x: [
        np.broadcast_to(g[:, None] / x.shape[1], x.shape)])
    register_function("largest", lambda a, x: x.max(axis=1), lambda a, g, x: [
        g[:, None] * (x == x.max(axis=1, keepdims=True))])
    register_function("square", lambda a, x: x * x, lambda a, g, x: [2 * x * g])
    register_function("spread", own_shape, lambda a, g, x: [g.sum(axis=1, keepdims=True)])
    register_function("own_loss", lambda a, x, y: x * 1, lambda a, g, x, y: [x - y, np.zeros_like(y)])
    calls = [
        ("average", "x[n,c,d] -> out[n,d]", {"join": "mean"}, [(6, 7, 5)], {}, 9),
        ("largest", "x[n,c,d] -> out[n,d]", {"join": "max"}, [(6, 7, 5)], {}, 9),
        ("square", "x[...] -> out[...]", {}, [(4, 3, 5)], {}, 9),
        ("square", "x[n,...,*] -> out[n,...,*]", {}, [(4, 3, 5)], {}, 5),
        ("square", "x[n,...] -> out[n,...]", {}, [(5,)], {}, 2),
        ("spread", "x[n,*,c] -> out[n,*,c]", {"shapes": {"shape": "out"}}, [(4, 1, 5)], {"shape": (4, 3, 5)}, 5),
        ("own_loss", "x[n,c] y[n,c] -> out[n,c]", {"once": True}, [(4, 6), (4, 6)], {}, 5)]
    for op, text, options, shapes, attributes, cuts in calls:
        rules.register(op, text, **options)
        found = rules.check(op, shapes, attributes)
        assert len(found) == cuts, (op, text, found)
    for op, text, options in (("average", "x[n,c,d] -> out[n,d]", {}), ("largest", "x[n,c,d] -> out[n,d]", {}),
                              ("spread", "x[n,*,c] -> out[n,*,c]", {"constants": ["shape"]})):
        rules.register(op, text, **options)
        shapes, attributes = [call[3:5] for call in calls if call[0] == op][0]
        try:
            rules.check(op, shapes, attributes)
        except rules.RuleError:
            continue
        raise AssertionError(f"{op}: {text} with {options} is wrong, and the check does not see it")
    check_once()
    print(f"{len(calls)} kinds of rules")


def check_once() -> None:
    """No plan has an operator that makes its own gradient computed by two devices, which would count it twice."""
    rules.register("own_loss", "x[n,c] y[n,c] -> out[n,c]", once=True)
    symbol = mx.sym.Custom(mx.sym.var("x"), mx.sym.var("y"), op_type="own_loss", name="loss")
    variables = {name: Variable("input", True, np.ones((4, 6), "float32")) for name in "xy"}
    graph = graph_of(Program(symbol, variables, True, "float32"))
    graph["rules"] = rules.of_nodes(json.loads(graph["symbol"])["nodes"])
    try:
        core.plan(graph, {"devices": 2, "pins": {"loss": "replicated"}})
    except core.PlanError:
        return
    raise AssertionError("an operator that must be computed once is replicated")


class DenseLayer(mx.gluon.HybridBlock):
    """A layer of the Custom operator above."""

    def __init__(self, units: int, in_units: int):
        super().__init__()
        self._units = units
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(units, in_units))
            self.bias = self.params.get("bias", shape=(units,))

    def hybrid_forward(self, F, x, weight, bias):
        return F.Custom(x, weight, bias, op_type="dense", num_hidden=self._units)


def losses(devices: int, **options) -> Tuple[List[float], Dict]:
    """Train three steps; on one device as MXNet does, on several tiled. The losses and the plan."""
    import soybean_mx

    net = mx.gluon.nn.HybridSequential()
    net.add(DenseLayer(30, 12), mx.gluon.nn.Activation("tanh"), DenseLayer(7, 30))
    net.initialize()
    random = np.random.RandomState(1)
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.array(random.uniform(-0.5, 0.5, parameter.shape)))
    if devices > 1:
        options.update(backend="soybean_mx", devices=[mx.cpu(i) for i in range(devices)])
    net.hybridize(**options)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "momentum": 0.9})
    loss, found = mx.gluon.loss.SoftmaxCrossEntropyLoss(), []
    for _ in range(3):
        data, label = mx.nd.array(random.normal(size=(8, 12))), mx.nd.array(random.randint(0, 7, 8))
        with mx.autograd.record():
            value = loss(net(data), label)
        value.backward()
        trainer.step(8)
        found.append(float(value.mean().asscalar()))
    return found, soybean_mx.plan_of(net) if devices > 1 else {}


def check_training() -> None:
    """A block of Custom operators trains alike on one device, tiled by their rule, and whole without one."""
    expected, _ = losses(1)
    whole, plan = losses(4)
    assert len(plan["whole"]) == 2, plan["whole"]
    np.testing.assert_allclose(whole, expected, rtol=1e-5)
    np.testing.assert_allclose(losses(4, recompute=True)[0], expected, rtol=1e-5)
    rules.register("dense", DENSE, extents={"num_hidden": "m"})
    for devices, options in ((2, {}), (4, {}), (6, {}), (4, {"recompute": True}), (4, {"strategy": "data"})):
        tiled, plan = losses(devices, **options)
        assert not plan["whole"], plan["whole"]
        np.testing.assert_allclose(tiled, expected, rtol=1e-5)
    print("trained alike on 2, 4 and 6 contexts")


def main() -> int:
    """Run what the command line asks for; the exit status is 1 when a case failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", help="3, 0-500 or 1,7,20-30")
    parser.add_argument("--library", help="a compiled tests/rules/library_operator.cc")
    parser.add_argument("--wrong-rules", action="store_true", help="see that wrong rules are refused")
    parser.add_argument("--kinds", action="store_true", help="check what rules can say beside sums of products")
    parser.add_argument("--training", action="store_true", help="train a block of Custom operators")
    arguments = parser.parse_args()
    if arguments.wrong_rules:
        check_wrong_rules()
    if arguments.kinds:
        check_kinds()
    if arguments.training:
        check_training()
    if arguments.library:
        check_library(arguments.library)
    failures = cases = 0
    for seed in seed_ranges(arguments.seeds) if arguments.seeds else ():
        print(f"case {seed}", file=sys.stderr, flush=True)
        cases += 1
        problems = check_case(seed)
        if problems:
            failures += 1
            print(f"FAILED --seeds {seed}:", *problems[:6], sep="\n    ")
    print(f"{cases} cases, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
