"""Language models: their sizes, what can be cut of them, and that they train tiled as on one device."""
from __future__ import annotations

from typing import Dict, Sequence

import mxnet as mx
import numpy as np
import pytest

from soybean_mx import core
from soybean_mx.graph import describe
from tests.child import run_child
from tests.parity.comparison import disagreements
from tests.scripts.script_modules import load
from tests.scripts.train_language_model import MODELS

models = load("language_models")

# Builder, the shapes of its inputs, and its millions of parameters.
FULL = {
    "bert_base": (models.bert_base, [(8, 128)], 110),
    "bert_large": (models.bert_large, [(8, 128)], 335),
    "gpt2_small": (models.gpt2_small, [(8, 128)], 124),
    "transformer": (models.transformer_encoder_decoder, [(8, 64), (8, 48)], 63),
    "lstm": (models.lstm_language_model, [(20, 35)], 20),
    "fused_lstm": (models.fused_lstm_language_model, [(20, 35)], 20),
}
STRATEGIES = ("optimal", "model", "recursive")


def request(net: mx.gluon.HybridBlock, shapes: Sequence) -> Dict:
    """Return the core's request for one training call of a block."""
    inputs = {f"data{i}": (shape, "float32") for i, shape in enumerate(shapes)}
    outputs = net(*[mx.sym.Variable(name) for name in inputs])
    symbol = mx.sym.Group(list(outputs)) if isinstance(outputs, (list, tuple)) else outputs
    parameters = net.collect_params()
    trained = {n for n, p in parameters.items() if p.grad_req != "null"}
    return describe(symbol, inputs, {n: (p.shape, "float32") for n, p in parameters.items()}, trained, True)


@pytest.mark.parametrize("name", FULL)
def test_sizes_are_the_published_ones(name):
    build, _, millions = FULL[name]
    assert models.parameter_count(build()) == pytest.approx(millions * 1e6, rel=0.02)


@pytest.mark.parametrize("name", FULL)
def test_no_operator_is_computed_whole(name):
    build, shapes, _ = FULL[name]
    depth = {"encoder_layers": 1, "decoder_layers": 1} if name == "transformer" else {"layers": 1}
    graph = request(build(**depth), shapes)
    plan = core.plan(graph, {"devices": 4, "strategy": "optimal"})
    assert plan["whole"] == []
    for operator, cuts in plan["operators"].items():
        size = sum(int(np.prod(shape)) for shape in graph["shapes"].get(operator, []))
        # The flat vector of an LSTM's weights is the only large thing that every device makes.
        if size > 1 << 18 and not operator.endswith("rnn_param_concat0") and "reshape" not in operator:
            assert not set(cuts) <= {"owner", "replicated"}, operator


@pytest.mark.parametrize("name", ["bert_base", "gpt2_small", "transformer"])
@pytest.mark.parametrize("batch", [1, 8])
def test_attention_is_cut_by_heads(name, batch):
    """Model parallelism cuts attention by its heads, whichever way it is written (dim 0 of a batch of one)."""
    build, shapes, _ = FULL[name]
    depth = {"encoder_layers": 1, "decoder_layers": 1} if name == "transformer" else {"layers": 1}
    graph = request(build(**depth, dropout=0), [(batch, *shape[1:]) for shape in shapes])
    plan = core.plan(graph, {"devices": 2, "strategy": "model"})
    softmax = [n for n in plan["operators"] if "softmax" in n]
    assert softmax
    for operator in softmax:
        assert plan["operators"][operator] in (["d1"], ["n"] if batch == 1 else ["d1"]), plan["operators"][operator]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder with the dumps of every network, plain and tiled."""
    folder = tmp_path_factory.mktemp("language_models")
    run_child("tests.scripts.train_language_model", [str(folder), *MODELS], timeout=120)
    tiled = [f"{model}-4-{strategy}" for model in MODELS for strategy in STRATEGIES]
    run_child("tests.scripts.train_language_model", [str(folder), *tiled], timeout=300)
    return folder


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model", MODELS)
def test_training_agrees_with_one_device(trained, model, strategy):
    plain, tiled = np.load(trained / f"{model}.npz"), np.load(trained / f"{model}-4-{strategy}.npz")
    assert not disagreements(plain, tiled, MODELS[model][2])
