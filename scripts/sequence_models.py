"""A catalogue of small models that are in no model zoo: recurrent and attention models, layers, losses, control flow.

``MODELS`` has a function for each name that returns a :class:`sample_model.SampleModel`. ``sweep_zoo.py`` trains each
on one device and tiled.
"""
from __future__ import annotations

from functools import partial
from typing import Callable, Dict, Optional

import mxnet as mx

import control_flow_models
import gluonnlp_models
import language_models
import layer_models
import numpy_models
import recurrent_models
from sample_blocks import Example, Examples, together, tokens
from sample_model import SampleModel

BATCH, LENGTH, VOCABULARY = 8, 6, 40


def on_tokens(net, dtype: Optional[str] = None) -> Example:
    """A language model."""
    return Example(net, tokens(VOCABULARY, (BATCH, LENGTH)), dtype)


def bert(layers: int, units: int, heads: int) -> Example:
    """BERT with segments and valid lengths."""
    net = language_models.bert_base(layers=layers, units=units, heads=heads, hidden=2 * units, max_length=16,
                                    vocabulary=VOCABULARY, dropout=0.0)
    inputs = together(tokens(VOCABULARY, (BATCH, LENGTH)), tokens(2, (BATCH, LENGTH)),
                      lambda rs: [mx.nd.array(rs.randint(1, LENGTH + 1, BATCH))])
    return Example(net, inputs)


def gpt2(layers: int, units: int, heads: int) -> Example:
    """GPT-2."""
    return on_tokens(language_models.gpt2_small(layers=layers, units=units, heads=heads, max_length=16,
                                                vocabulary=VOCABULARY, dropout=0.0))


def transformer(layers: int) -> Example:
    """The Transformer, on sequences of two lengths."""
    net = language_models.transformer_encoder_decoder(layers, layers, units=16, heads=4, hidden=32, max_length=16,
                                                      vocabulary=VOCABULARY, dropout=0.0)
    # The interleaved operators are there in single precision alone.
    return Example(net, tokens(VOCABULARY, (BATCH, LENGTH), (BATCH, LENGTH - 1)), "float32")


EXAMPLES: Examples = {
    "bert": lambda: bert(2, 16, 4),
    "bert_12_layers": lambda: bert(12, 48, 12),
    "gpt2": lambda: gpt2(2, 16, 4),
    "gpt2_12_layers": lambda: gpt2(12, 48, 12),
    "transformer": lambda: transformer(2),
    "transformer_6_layers": lambda: transformer(6),
    "lstm_language_model": lambda: on_tokens(language_models.lstm_language_model(
        2, 12, VOCABULARY, dropout=0.0, length=LENGTH), "float32"),  # the zeros that cells begin with are so
    "fused_lstm_language_model": lambda: on_tokens(language_models.fused_lstm_language_model(
        2, 12, VOCABULARY, dropout=0.0)),
    **recurrent_models.EXAMPLES,
    **layer_models.EXAMPLES,
    **control_flow_models.EXAMPLES,
    **numpy_models.EXAMPLES,
    **gluonnlp_models.EXAMPLES,
}


def sample(make: Callable[[], Example]) -> SampleModel:
    """The sample model of an example: a new network at every call."""
    example = make()
    return SampleModel(lambda: make().net, example.inputs, example.dtype, example.imperative)


MODELS: Dict[str, Callable[[], SampleModel]] = {name: partial(sample, make) for name, make in EXAMPLES.items()}
